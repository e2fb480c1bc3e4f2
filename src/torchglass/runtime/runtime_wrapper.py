"""Puts compiled forward and backward graphs behind one callable with eager's meaning.

Input: a ``Partition``, the compiled forward, and a function that compiles the backward when it is first needed. Output:
``call(*inputs) -> tuple of user outputs``. Around the graphs it does what they cannot: a node in the autograd graph
keeps the saved tensors and receives gradients, writes go back to inputs, views are made of inputs and results::

    outs = forward([x, w])            # below autograd
    running_mean.copy_(outs[0])       # mutations, in order
    return outs[1], outs[1].view(-1)  # outputs
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .._native import GraphFunction, below_autograd, overlap, write_back
from ..process.tables import enters
from ..records.partition import Computed, Constant, InputItself, Output, Part, Partition, SameAs, ViewOf, ViewStep
from ..records.segments import CutGraph, Groups
from ..records.size_places import SizePlaces, read_sizes
from ..torch_compat import ACTIVE_DATA_PARALLEL, in_forward_mode, in_function_transform
from .backward import Backward, CompileBackward, Graph, PartBackward
from .chained_backward import Buckets, Chains, CompileSegments


def runtime_wrapper(
    partition: Partition,
    forward_call: Graph,
    compile_backward: CompileBackward,
    eager: Callable[..., Any] | None = None,
    undone: type[Exception] | None = None,
    compile_segments: CompileSegments | None = None,
) -> Callable[..., Any]:
    """``partition`` as a callable on the captured graph's inputs. Backward is compiled at the first backward, for the
    gradients that arrive there.

    ``eager`` runs the captured graph itself: it takes over in calls where a tensor that the graph writes to shares
    memory with another input, which a pure graph cannot see, and within ``forward_ad.dual_level``, where tensors may
    carry tangents that a compiled graph would drop.

    Within the forward of a DistributedDataParallel the backward is cut at its buckets, by ``compile_segments``.

    Where a graph that writes to inputs fails, it has not written yet: ``undone``, if given, is raised from its error.
    Raises nothing else; a backward with ``create_graph=True`` is refused with a RuntimeError, a second one without
    ``retain_graph`` fails as in eager.
    """
    if partition.autocast:
        graphs = forward_call, compile_backward, compile_segments
        forward_call, compile_backward, compile_segments = _without_autocast(partition.autocast, *graphs)
    epilogue = _epilogue(partition)
    fallback = eager if epilogue is None else None
    if partition.training:
        run = _training(partition, forward_call, compile_backward, fallback, compile_segments)
    else:
        run = _inference(partition, forward_call, fallback)
    if epilogue is None:
        return run
    written = tuple(mutation.input for mutation in partition.mutations)

    def call(*inputs: torch.Tensor) -> tuple[Any, ...]:
        if eager is not None and (in_forward_mode() or (written and overlap(inputs, written))):
            return tuple(eager(*inputs))
        try:
            results = run(*inputs)
        except Exception as error:
            if undone is None or not written:
                raise
            raise undone(str(error)) from error
        return epilogue(inputs, results)

    return call


# --- around the call --------------------------------------------------------------------------------------------------
def _without_autocast(
    kinds: tuple[str, ...],
    forward_call: Graph,
    compile_backward: CompileBackward,
    compile_segments: CompileSegments | None,
) -> Any:
    """The graphs hold every cast already; the surrounding autocast must not add its own."""

    def shielded(graph: Graph) -> Graph:
        def call(tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
            on = [kind for kind in kinds if torch.is_autocast_enabled(kind)]
            for kind in on:
                torch.set_autocast_enabled(kind, False)
            try:
                return graph(tensors)
            finally:
                for kind in on:
                    torch.set_autocast_enabled(kind, True)

        return call

    def segments(partition: Partition, groups: Groups, buckets: Buckets) -> CutGraph | None:
        assert compile_segments is not None
        found = compile_segments(partition, groups, buckets)
        return None if found is None else found.with_graphs(shielded)

    return (
        shielded(forward_call),
        lambda partition: shielded(compile_backward(partition)),
        None if compile_segments is None else segments,
    )


# --- user outputs and writes ------------------------------------------------------------------------------------------
Epilogue = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], tuple[Any, ...]]
MakeOutput = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor], list[Any]], Any]


def _epilogue(partition: Partition) -> Epilogue | None:
    """What turns results into user outputs, or None where they are the same tuple."""
    plain = [output in (Computed(i, True), Computed(i, False)) for i, output in enumerate(partition.outputs)]
    if all(plain) and not partition.mutations and len(plain) == partition.returned:
        return None
    writes = tuple((m.input, m.output, _KINDS[m.tracked, m.bumps_version]) for m in partition.mutations)
    told = _told_sizes(partition)
    makers = [_maker(output, told) for output in partition.outputs]

    def epilogue(inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        write_back(inputs, results, writes)
        made: list[Any] = []
        for make in makers:
            made.append(make(inputs, results, made))
        return tuple(made)

    return epilogue


# How `write_back` writes: as autograd records it, unseen by it, or unseen by version counters too.
_KINDS = {(True, True): 0, (True, False): 0, (False, True): 1, (False, False): 2}


Maker = Callable[[Any, SizePlaces], MakeOutput]
_MAKERS: dict[type, Maker] = {}
_makes = enters(_MAKERS)
"""Enters how to make one kind of user output, of inputs and results that tell the sizes that change."""


def _maker(output: Output, sizes: SizePlaces) -> MakeOutput:
    return _MAKERS[type(output)](output, sizes)


@_makes(Computed)
def _computed(output: Computed, sizes: SizePlaces) -> MakeOutput:
    if output.leaf:
        return lambda inputs, results, made: results[output.index].requires_grad_()
    return lambda inputs, results, made: results[output.index]


@_makes(InputItself)
def _input_itself(output: InputItself, sizes: SizePlaces) -> MakeOutput:
    return lambda inputs, results, made: inputs[output.index]


@_makes(SameAs)
def _same_as(output: SameAs, sizes: SizePlaces) -> MakeOutput:
    return lambda inputs, results, made: made[output.index]


@_makes(Constant)
def _constant(output: Constant, sizes: SizePlaces) -> MakeOutput:
    return lambda inputs, results, made: output.value


@_makes(ViewOf)
def _view_of(output: ViewOf, sizes: SizePlaces) -> MakeOutput:
    steps = output.steps
    if not steps and not output.detached:
        steps = (ViewStep(torch.ops.aten.alias.default),)  # eager gave a new tensor object
    steps_of = _steps_of(steps, sizes)
    index, from_input = output.base.index, output.base.kind == "input"

    def make(inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor], made: list[Any]) -> torch.Tensor:
        value = inputs[index] if from_input else results[index]
        if output.detached:
            value = value.detach()
        for step in steps if steps_of is None else steps_of((*inputs, *results)):
            value = step.apply(value)
        return value

    return torch.no_grad()(make) if output.leaf else make


def _told_sizes(partition: Partition) -> SizePlaces:
    """Which of the inputs, and of the results behind them, tells a size."""
    behind = len(partition.input_names)
    told = {name: (behind + index, dim) for name, (index, dim) in partition.result_sizes.items()}
    return {**told, **partition.input_sizes}


def _steps_of(steps: Sequence[ViewStep], sizes: SizePlaces) -> Callable[[Sequence[Any]], list[ViewStep]] | None:
    """The steps in the sizes of a call, by its tensors; None where they are the same in all."""
    if not any(step.is_symbolic for step in steps):
        return None

    def of(tensors: Sequence[Any]) -> list[ViewStep]:
        at = read_sizes(sizes, tensors)
        return [step.at(at) for step in steps]

    return of


# --- autograd ---------------------------------------------------------------------------------------------------------
def _training(
    partition: Partition,
    forward_call: Graph,
    compile_backward: CompileBackward,
    eager: Callable[..., Any] | None,
    compile_segments: CompileSegments | None,
) -> Callable[..., Any]:
    """The graph with its node in the autograd graph: csrc/graph_function.cpp. It calls ``Backward``."""
    width = len(partition.input_names)
    saved = [saved.place.index + (0 if saved.place.kind == "input" else width) for saved in partition.saved]
    watched = [width + index for index in partition.watched]
    forward, backward = _showing(partition, forward_call), Backward(partition, compile_backward)
    run = GraphFunction(
        forward,
        backward,
        inputs=width,
        saved=(*saved, *watched),
        kept=len(saved),
        gradients=tuple(gradient.input for gradient in partition.gradients),
        differentiable=partition.differentiable,
        returned=partition.returned,
        fallback=_as_tuple(eager),
        kills=None if partition.liveness is None else partition.liveness.kills,
        uses=None if partition.liveness is None else partition.liveness.uses,
        chain=None if compile_segments is None else (*ACTIVE_DATA_PARALLEL, Chains(backward, compile_segments)),
    )
    if partition.parts:
        return _in_parts(partition, run, forward, backward, (*saved, *watched))
    return run if partition.gradients else _without_gradients(run, partition.differentiable)


def _in_parts(
    partition: Partition, whole: Callable[..., Any], forward: Graph, backward: Backward, kept: Sequence[int]
) -> Callable[..., Any]:
    """The graph with a node for each part where an input has a history.

    Autograd visits all that lies behind a node, without a gradient where none arrived. Most formulas unpack what they
    have saved before they look: they complain of writes to it, and a later backward of their own finds it freed. Eager
    visits only what lies behind the results that were used. Behind leaves lies nothing, and one node costs less.
    """
    given = tuple(gradient.input for gradient in partition.gradients)
    nodes = [_part_node(partition, part, backward, kept) for part in partition.parts]

    def call(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if in_forward_mode() or in_function_transform() or all(inputs[index].grad_fn is None for index in given):
            return whole(*inputs)
        results = below_autograd(forward, list(inputs))
        for node in nodes:
            results = node(*inputs, results)
        return results[: partition.returned]

    return call


def _part_node(partition: Partition, part: Part, backward: Backward, kept: Sequence[int]) -> Callable[..., Any]:
    """``node(*inputs, results)``: the results, with a history where they are the part's."""
    width = len(partition.input_names)
    liveness, own = partition.liveness, {result: position for position, result in enumerate(part.results)}
    assert liveness is not None
    return GraphFunction(
        lambda values: values[-1],
        PartBackward(partition, part, backward),
        inputs=width + 1,
        saved=tuple(kept[index] + (kept[index] >= width) for index in part.kept),
        kept=sum(index < len(partition.saved) for index in part.kept),
        gradients=tuple(partition.gradients[index].input for index in part.gradients),
        differentiable=tuple(partition.differentiable[result] for result in part.results),
        returned=partition.returned
        + sum(s.place.kind == "output" and s.place.index >= partition.returned for s in partition.saved),
        fallback=None,
        kills=tuple(_renumbered(liveness.kills[result], own) for result in part.results),
        uses=tuple(_renumbered(liveness.uses[index], own) for index in part.kept),
    )


def _renumbered(indices: Sequence[int], numbers: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(numbers[index] for index in indices if index in numbers)


def _showing(partition: Partition, forward_call: Graph) -> Graph:
    """The graph with the results that show an input's or another result's memory put in place of its copies of it."""
    outputs = [output for output in partition.outputs if isinstance(output, Computed)]
    shown = [(output.index, output.shown) for output in outputs if output.shown is not None]
    if not shown:
        return forward_call
    told = _told_sizes(partition)
    steps_of = [_steps_of(steps, told) for _, (_, steps) in shown]

    def call(tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        inputs = list(tensors)
        results = list(forward_call(tensors))
        for (index, (base, steps)), of in zip(shown, steps_of):
            value = (inputs if base.kind == "input" else results)[base.index].detach()
            for step in steps if of is None else of((*inputs, *results)):
                value = step.apply(value)
            results[index] = value
        return results

    return call


def _inference(partition: Partition, forward_call: Graph, eager: Callable[..., Any] | None) -> Callable[..., Any]:
    """The graph alone: its results have no history."""
    return GraphFunction(
        forward_call,
        None,
        inputs=len(partition.input_names),
        saved=(),
        kept=0,
        gradients=(),
        differentiable=(),
        returned=partition.returned,
        fallback=_as_tuple(eager),
    )


def _as_tuple(eager: Callable[..., Any] | None) -> Callable[..., tuple[Any, ...]] | None:
    """What runs in place of a graph, with its results as a tuple."""
    return None if eager is None else lambda *inputs: tuple(eager(*inputs))


def _without_gradients(run: Callable[..., Any], differentiable: Sequence[int]) -> Callable[..., Any]:
    """Outputs require a gradient but no input influences them: eager's backward runs and finds nothing."""

    def call(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = run(*inputs)
        for index in differentiable:
            results[index].requires_grad_()
        return results

    return call
