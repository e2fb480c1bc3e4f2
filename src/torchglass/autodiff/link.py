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
from typing import Any, NamedTuple

import torch

from .._native import GraphFunction, below_autograd, overlap, write_back
from ..records.partition import (
    NO_GRAPH,
    Arrived,
    Computed,
    Constant,
    InputItself,
    Output,
    Part,
    Partition,
    SameAs,
    ViewOf,
    ViewStep,
)
from ..records.tensor_spec import TensorSpec
from ..torch_compat import in_forward_mode, in_function_transform
from .aliases import apply
from .recorder import AutodiffError

Graph = Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]
"""A compiled graph: takes a list of tensors, which it may clear, and returns a list or tuple of tensors."""

CompileBackward = Callable[[Partition], Graph]
"""Compiles ``partition.backward``."""

NO_DOUBLE_BACKWARD = (
    "torchglass compiles the first derivative only, and this backward was asked to be differentiable itself "
    "(create_graph=True). Compile the function with backend='eager' to take second derivatives."
)

FREED = (
    "torchglass: trying to backward through the graph a second time, for gradients whose backward needs what the first "
    "one freed. Specify retain_graph=True in the first."
)


def link(
    partition: Partition,
    forward_call: Graph,
    compile_backward: CompileBackward,
    eager: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """``partition`` as a callable on the captured graph's inputs. Backward is compiled at the first backward, for the
    gradients that arrive there.

    ``eager`` runs the captured graph itself: it takes over in calls where a tensor that the graph writes to shares
    memory with another input, which a pure graph cannot see, and within ``forward_ad.dual_level``, where tensors may
    carry tangents that a compiled graph would drop.

    Raises nothing itself; a backward with ``create_graph=True`` is refused with a RuntimeError, a second one without
    ``retain_graph`` fails as in eager.
    """
    if partition.autocast:
        forward_call, compile_backward = _without_autocast(partition.autocast, forward_call, compile_backward)
    finish = _finish(partition)
    instead = eager if finish is None else None
    if partition.training:
        run = _training(partition, forward_call, compile_backward, instead)
    else:
        run = _inference(partition, forward_call, instead)
    if finish is None:
        return run
    written = tuple(mutation.input for mutation in partition.mutations)

    def call(*inputs: torch.Tensor) -> tuple[Any, ...]:
        if eager is not None and (in_forward_mode() or (written and overlap(inputs, written))):
            return tuple(eager(*inputs))
        return finish(inputs, run(*inputs))

    return call


# --- around the call --------------------------------------------------------------------------------------------------
def _without_autocast(kinds: tuple[str, ...], forward_call: Graph, compile_backward: CompileBackward) -> Any:
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

    return shielded(forward_call), lambda partition: shielded(compile_backward(partition))


# --- user outputs and writes ------------------------------------------------------------------------------------------
Finish = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], tuple[Any, ...]]
Maker = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor], list[Any]], Any]


def _finish(partition: Partition) -> Finish | None:
    """What turns results into user outputs, or None where they are the same tuple."""
    plain = [output in (Computed(i, True), Computed(i, False)) for i, output in enumerate(partition.outputs)]
    if all(plain) and not partition.mutations and len(plain) == partition.returned:
        return None
    writes = tuple((m.input, m.output, _KINDS[m.tracked, m.bumps_version]) for m in partition.mutations)
    makers = [_maker(output) for output in partition.outputs]

    def finish(inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        write_back(inputs, results, writes)
        made: list[Any] = []
        for make in makers:
            made.append(make(inputs, results, made))
        return tuple(made)

    return finish


# How `write_back` writes: as autograd records it, unseen by it, or unseen by version counters too.
_KINDS = {(True, True): 0, (True, False): 0, (False, True): 1, (False, False): 2}


_MAKERS: dict[type, Callable[[Any], Maker]] = {}


def _makes(kind: type) -> Callable[[Callable[[Any], Maker]], Callable[[Any], Maker]]:
    """Enter how to make one kind of user output."""

    def enter(function: Callable[[Any], Maker]) -> Callable[[Any], Maker]:
        if kind in _MAKERS:
            raise AssertionError(f"{kind.__name__} has a maker already")
        _MAKERS[kind] = function
        return function

    return enter


def _maker(output: Output) -> Maker:
    return _MAKERS[type(output)](output)


@_makes(Computed)
def _computed(output: Computed) -> Maker:
    if output.leaf:
        return lambda inputs, results, made: results[output.index].requires_grad_()
    return lambda inputs, results, made: results[output.index]


@_makes(InputItself)
def _input_itself(output: InputItself) -> Maker:
    return lambda inputs, results, made: inputs[output.index]


@_makes(SameAs)
def _same_as(output: SameAs) -> Maker:
    return lambda inputs, results, made: made[output.index]


@_makes(Constant)
def _constant(output: Constant) -> Maker:
    return lambda inputs, results, made: output.value


@_makes(ViewOf)
def _view_of(output: ViewOf) -> Maker:
    steps = output.steps
    if not steps and not output.detached:
        steps = (ViewStep(torch.ops.aten.alias.default),)  # eager gave a new tensor object
    index, from_input = output.base.index, output.base.kind == "input"

    def make(inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor], made: list[Any]) -> torch.Tensor:
        value = inputs[index] if from_input else results[index]
        if output.detached:
            value = value.detach()
        for step in steps:
            value = apply(step, value)
        return value

    return torch.no_grad()(make) if output.leaf else make


# --- autograd ---------------------------------------------------------------------------------------------------------
def _training(
    partition: Partition, forward_call: Graph, compile_backward: CompileBackward, eager: Callable[..., Any] | None
) -> Callable[..., Any]:
    """The graph with its node in the autograd graph: csrc/graph_function.cpp. It calls ``_Backward``."""
    width = len(partition.input_names)
    saved = [saved.place.index + (0 if saved.place.kind == "input" else width) for saved in partition.saved]
    watched = [width + index for index in partition.watched]
    forward, backward = _showing(partition, forward_call), _Backward(partition, compile_backward)
    run = GraphFunction(
        forward,
        backward,
        inputs=width,
        saved=(*saved, *watched),
        kept=len(saved),
        gradients=tuple(gradient.input for gradient in partition.gradients),
        differentiable=partition.differentiable,
        returned=partition.returned,
        instead=_as_tuple(eager),
        spends=None if partition.sharing is None else partition.sharing.spends,
        readers=None if partition.sharing is None else partition.sharing.readers,
    )
    if partition.parts:
        return _in_parts(partition, run, forward, backward, (*saved, *watched))
    return run if partition.gradients else _without_gradients(run, partition.differentiable)


def _in_parts(
    partition: Partition, whole: Callable[..., Any], forward: Graph, backward: _Backward, kept: Sequence[int]
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


def _part_node(partition: Partition, part: Part, backward: _Backward, kept: Sequence[int]) -> Callable[..., Any]:
    """``node(*inputs, results)``: the results, with a history where they are the part's."""
    width = len(partition.input_names)
    sharing, own = partition.sharing, {result: position for position, result in enumerate(part.results)}
    assert sharing is not None
    return GraphFunction(
        lambda values: values[-1],
        _PartBackward(partition, part, backward),
        inputs=width + 1,
        saved=tuple(kept[index] + (kept[index] >= width) for index in part.kept),
        kept=sum(index < len(partition.saved) for index in part.kept),
        gradients=tuple(partition.gradients[index].input for index in part.gradients),
        differentiable=tuple(partition.differentiable[result] for result in part.results),
        returned=partition.returned
        + sum(s.place.kind == "output" and s.place.index >= partition.returned for s in partition.saved),
        instead=None,
        spends=tuple(_renumbered(sharing.spends[result], own) for result in part.results),
        readers=tuple(_renumbered(sharing.readers[index], own) for index in part.kept),
    )


def _renumbered(indices: Sequence[int], numbers: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(numbers[index] for index in indices if index in numbers)


def _showing(partition: Partition, forward_call: Graph) -> Graph:
    """The graph with the results that show an input's or another result's memory put in place of its copies of it."""
    outputs = [output for output in partition.outputs if isinstance(output, Computed)]
    shown = [(output.index, output.shown) for output in outputs if output.shown is not None]
    if not shown:
        return forward_call

    def call(tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        inputs = list(tensors)
        results = list(forward_call(tensors))
        for index, (base, steps) in shown:
            value = (inputs if base.kind == "input" else results)[base.index].detach()
            for step in steps:
                value = apply(step, value)
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
        instead=_as_tuple(eager),
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


class _Route(NamedTuple):
    """How gradients that arrive in one way are handled."""

    graph: Graph
    taken: tuple[tuple[int, TensorSpec], ...]  # forward output whose gradient the graph takes, and as what
    given: tuple[int | None, ...]  # for each input that is differentiated: the graph's output, None for no gradient
    read: tuple[int, ...]  # the saved tensors that the graph reads


class _Backward:
    """The backwards of one graph. Each is compiled at the first backward whose gradients arrive as they do there: which
    outputs have one, and in what layout. Where none can be made, gradients are copied and zeros stand for those that
    are missing.
    """

    def __init__(self, partition: Partition, compile_backward: CompileBackward) -> None:
        self.partition = partition
        self.compile_backward = compile_backward
        self.routes: dict[Arrived, _Route] = {}
        self.made: dict[Arrived, _Route] = {}  # by what matters of the strides
        self.assumed: tuple[Graph, tuple[int, ...]] | None = None  # the partition's own backward, and what it reads
        self.expected = tuple(_layout(spec.shape, spec.strides) for spec in partition.tangents)

    def __call__(self, tensors: list[Any], tangents: list[torch.Tensor | None]) -> Any:
        """One gradient, or None, for each of the partition's gradients. ``tensors`` are those saved, None for what an
        earlier backward has freed; both lists are used up.
        """
        if torch.is_grad_enabled():
            raise RuntimeError(NO_DOUBLE_BACKWARD)
        kind = tuple([None if tangent is None else tangent.stride() for tangent in tangents])
        route = self.routes.get(kind)
        if route is None:
            route = self.routes[kind] = self._route(kind)
        if self.partition.sharing is not None and any(tensors[index] is None for index in route.read):
            raise RuntimeError(FREED)
        tensors += [_fit(tangents[index], spec) for index, spec in route.taken]
        tangents.clear()
        computed = below_autograd(route.graph, tensors)
        return [None if place is None else computed[place] for place in route.given]

    def _route(self, kind: Arrived) -> _Route:
        specs = self.partition.tangents
        layouts = tuple(None if s is None else _layout(spec.shape, s) for s, spec in zip(kind, specs))
        if layouts not in self.made and len(self.made) >= MOST_LAYOUTS:
            kind = tuple(None if strides is None else spec.strides for strides, spec in zip(kind, specs))
            layouts = tuple(None if s is None else known for s, known in zip(kind, self.expected))
        if layouts not in self.made:
            self.made[layouts] = self._compiled(kind, layouts)
        return self.made[layouts]

    def _compiled(self, kind: Arrived, layouts: Arrived) -> _Route:
        partition, missing = self.partition, {i for i, strides in enumerate(kind) if strides is None}
        present = [i for i in range(len(kind)) if i not in missing]
        if layouts != self.expected or self._has_let_go():
            again = self._again(kind) if present else None
            if again is not None:
                self.partition = partition.after_backward()
                partition, missing = again, set()
            else:
                present = list(range(len(kind)))
        # inputs that only unused outputs depend on get None, as in eager, not zeros
        places = {
            gradient.input: place
            for place, gradient in enumerate(partition.gradients)
            if not (gradient.tangents and gradient.tangents <= missing)
        }
        given = tuple(places.get(gradient.input) for gradient in self.partition.gradients)
        if not places:
            return _Route(lambda tensors: (), (), given, ())
        graph, read = self._as_assumed() if partition is self.partition else self._made_of(partition)
        return _Route(graph, tuple(zip(present, partition.tangents)), given, read)

    def _has_let_go(self) -> bool:
        """Whether the partition's own backward is gone before anybody needed it: the gradients of most programs arrive
        in one way, and a graph with its fake tensors is megabytes.
        """
        return self.assumed is None and self.partition.backward is NO_GRAPH

    def _again(self, kind: Arrived) -> Partition | None:
        """The partition for the gradients that arrive: as they lie, or else copied to where they were assumed."""
        partition = self.partition
        if partition.again is None:
            return None
        made = partition.again(kind)
        if made is None and None in kind:
            made = partition.again(
                tuple(None if s is None else spec.strides for s, spec in zip(kind, partition.tangents))
            )
        return made

    def _as_assumed(self) -> tuple[Graph, tuple[int, ...]]:
        if self.assumed is None:
            assumed = tuple(spec.strides for spec in self.partition.tangents)
            partition = self._again(assumed) if self._has_let_go() else self.partition
            if partition is None:
                raise AutodiffError("backward cannot be traced a second time")
            self.assumed = self._made_of(partition)
            self.partition = self.partition.after_backward()
        return self.assumed

    def _made_of(self, partition: Partition) -> tuple[Graph, tuple[int, ...]]:
        assert partition.backward is not None
        placeholders = partition.backward.graph.find_nodes(op="placeholder")
        read = tuple(index for index, node in enumerate(placeholders[: len(partition.saved)]) if node.users)
        return self.compile_backward(partition), read


class _PartBackward:
    """The backward of a part: that of the graph, which nothing arrives for otherwise."""

    def __init__(self, partition: Partition, part: Part, backward: _Backward) -> None:
        self.part = part
        self.backward = backward
        self.saved, self.results = len(partition.saved), len(partition.differentiable)

    def __call__(self, tensors: list[Any], tangents: list[torch.Tensor | None]) -> Any:
        saved = _spread(tensors, self.part.kept, self.saved)
        gradients = self.backward(saved, _spread(tangents, self.part.results, self.results))
        return [gradients[index] for index in self.part.gradients]


def _spread(values: list[Any], places: Sequence[int], count: int) -> list[Any]:
    """The values at their places among ``count``, None elsewhere; the list is used up."""
    spread: list[Any] = [None] * count
    for place, value in zip(places, values):
        spread[place] = value
    values.clear()
    return spread


MOST_LAYOUTS = 4
"""Backwards made for the layouts of gradients; those of further layouts are copied."""


def _layout(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Strides without those that say nothing."""
    if 0 in shape:
        return (0,) * len(shape)
    return tuple(stride if size != 1 else 0 for size, stride in zip(shape, strides))


def _fit(tangent: torch.Tensor | None, spec: TensorSpec) -> torch.Tensor:
    """The tangent in the layout backward was made for; zeros where the output was not used."""
    if tangent is None:
        return torch.empty_strided(spec.shape, spec.strides, dtype=spec.dtype, device=spec.device).zero_()
    if tangent.dtype == spec.dtype:
        strides = tangent.stride()
        if strides == spec.strides:
            return tangent
        if _layout(spec.shape, strides) == _layout(spec.shape, spec.strides):
            return tangent.as_strided(spec.shape, spec.strides)
    fitted = torch.empty_strided(spec.shape, spec.strides, dtype=spec.dtype, device=spec.device)
    return fitted.copy_(tangent)
