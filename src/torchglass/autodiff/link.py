"""Puts compiled forward and backward graphs behind one callable with eager's meaning.

Input: a ``Partition``, the compiled forward, and a function that compiles the backward when it is first needed. Output:
``call(*inputs) -> tuple of user outputs``. Around the graphs it does what they cannot: an ``autograd.Function`` keeps
the saved tensors and receives gradients, writes go back to inputs, views are made of inputs and results::

    outs = forward([x, w])            # inside autograd.Function, below autograd
    running_mean.copy_(outs[0])       # mutations, in order
    return outs[1], outs[1].view(-1)  # outputs
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..records.partition import (
    Computed,
    Constant,
    InputItself,
    Mutation,
    Output,
    Partition,
    SameAs,
    TensorSpec,
    ViewOf,
    ViewStep,
)
from ..torch_compat import below_autograd, release_saved_tensors
from .aliases import apply

Graph = Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]
"""A compiled graph: takes a list of tensors, which it may clear, and returns a list or tuple of tensors."""

NO_DOUBLE_BACKWARD = (
    "torchglass compiles the first derivative only, and this backward was asked to be differentiable itself "
    "(create_graph=True). Compile the function with backend='eager' to take second derivatives."
)


def link(
    partition: Partition,
    forward_call: Graph,
    compile_backward: Callable[[], Graph],
    eager: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """``partition`` as a callable on the captured graph's inputs. Backward is compiled at the first backward.

    ``eager`` runs the captured graph itself: it takes over in calls where a tensor that the graph writes to shares
    memory with another input, which a pure graph cannot see.

    Raises nothing itself; a backward with ``create_graph=True`` is refused with a RuntimeError, a second one without
    ``retain_graph`` fails as in eager.
    """
    if partition.autocast:
        forward_call, compile_backward = _without_autocast(partition.autocast, forward_call, compile_backward)
    if partition.training:
        run = _training(partition, forward_call, compile_backward)
    else:
        run = _inference(forward_call)
    finish = _finish(partition)
    if finish is None:
        return run
    written = [mutation.input for mutation in partition.mutations]

    def call(*inputs: torch.Tensor) -> tuple[Any, ...]:
        if eager is not None and written and _overlap(inputs, written):
            return tuple(eager(*inputs))
        return finish(inputs, run(*inputs))

    return call


def _overlap(inputs: Sequence[torch.Tensor], written: list[int]) -> bool:
    """Whether a tensor that is written to shares memory with another input."""
    memory = [tensor.untyped_storage().data_ptr() for tensor in inputs]
    if len(set(memory)) == len(memory):
        return False
    return any(memory[index] and memory.count(memory[index]) > 1 for index in written)


# --- around the call --------------------------------------------------------------------------------------------------
def _inference(forward_call: Graph) -> Callable[..., tuple[torch.Tensor, ...]]:
    def run(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with below_autograd():
            return tuple(forward_call(list(inputs)))

    return run


def _without_autocast(kinds: tuple[str, ...], forward_call: Graph, compile_backward: Callable[[], Graph]) -> Any:
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

    return shielded(forward_call), lambda: shielded(compile_backward())


# --- user outputs and writes ------------------------------------------------------------------------------------------
Finish = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], tuple[Any, ...]]
Maker = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor], list[Any]], Any]


def _finish(partition: Partition) -> Finish | None:
    """What turns results into user outputs, or None where they are the same tuple."""
    plain = [type(output) is Computed and output.index == i for i, output in enumerate(partition.outputs)]
    if all(plain) and not partition.mutations and len(plain) == partition.returned:
        return None
    writers = [_writer(mutation) for mutation in partition.mutations]
    makers = [_maker(output) for output in partition.outputs]

    def finish(inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        for write in writers:
            write(inputs, results)
        made: list[Any] = []
        for make in makers:
            made.append(make(inputs, results, made))
        return tuple(made)

    return finish


def _writer(mutation: Mutation) -> Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], None]:
    target, source = mutation.input, mutation.output
    if mutation.tracked:

        def write(inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
            inputs[target].copy_(results[source])
    elif mutation.bumps_version:

        def write(inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
            with torch.no_grad():
                inputs[target].copy_(results[source])
    else:

        def write(inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
            inputs[target].data.copy_(results[source])

    return write


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

    return make


# --- autograd ---------------------------------------------------------------------------------------------------------
def _training(partition: Partition, forward_call: Graph, compile_backward: Callable[[], Graph]) -> Callable[..., Any]:
    """The autograd.Function of one graph, as a callable."""
    width = len(partition.input_names)
    saved = [saved.place.index + (0 if saved.place.kind == "input" else width) for saved in partition.saved]
    count = len(saved)
    pick_saved = _picker([*saved, *(width + index for index in partition.watched)])
    pick_differentiated = _picker([gradient.input for gradient in partition.gradients])
    returned = partition.returned
    silent = [index for index in range(returned) if index not in partition.differentiable]
    backward_of = _Backward(partition, compile_backward)

    class CompiledGraph(torch.autograd.Function):
        # ``differentiated`` are in ``inputs`` too: autograd looks at each argument, so it gets no more than it needs
        @staticmethod
        def forward(ctx: Any, inputs: tuple[torch.Tensor, ...], *differentiated: torch.Tensor) -> Any:
            with below_autograd():
                results = tuple(forward_call(list(inputs)))
            ctx.save_for_backward(*pick_saved(inputs + results))
            ctx.set_materialize_grads(False)
            if silent:
                ctx.mark_non_differentiable(*(results[index] for index in silent))
            return results[:returned]

        @staticmethod
        def backward(ctx: Any, *tangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
            if torch.is_grad_enabled():
                raise RuntimeError(NO_DOUBLE_BACKWARD)
            tensors = list(ctx.saved_tensors[:count])
            release_saved_tensors(ctx)  # the list holds them now, and the graph clears it
            return (None, *backward_of(tensors, tangents))

    apply = CompiledGraph.apply
    if not partition.gradients:
        return _without_gradients(partition, forward_call)
    return lambda *inputs: apply(inputs, *pick_differentiated(inputs))


def _without_gradients(partition: Partition, forward_call: Graph) -> Callable[..., Any]:
    """Outputs require a gradient but no input influences them: eager's backward runs and finds nothing."""
    run = _inference(forward_call)

    def call(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = run(*inputs)
        for index in partition.differentiable:
            results[index].requires_grad_()
        return results

    return call


def _picker(indices: Sequence[int]) -> Callable[[tuple[torch.Tensor, ...]], tuple[torch.Tensor, ...]]:
    """Takes the tensors at ``indices`` out of a tuple."""
    if len(indices) > 1:
        return operator.itemgetter(*indices)
    return lambda tensors: tuple(tensors[index] for index in indices)


class _Backward:
    """The backward of one graph: gives tangents the layout they were traced with, and leaves out zero gradients."""

    def __init__(self, partition: Partition, compile_backward: Callable[[], Graph]) -> None:
        self.partition = partition
        self.compile_backward = compile_backward
        self.graph: Graph | None = None
        self.slots = [(index, partition.tangents[i]) for i, index in enumerate(partition.differentiable)]

    def __call__(self, tensors: list[torch.Tensor], arrived: Sequence[torch.Tensor | None]) -> Any:
        """One gradient, or None, for each of the partition's gradients. ``tensors`` are those saved; the list is used
        up.
        """
        if self.graph is None:
            self.graph = self.compile_backward()
        missing = [i for i, (index, _) in enumerate(self.slots) if arrived[index] is None]
        with below_autograd():
            tensors += [_fit(arrived[index], spec) for index, spec in self.slots]
            computed = self.graph(tensors)
        if not missing:
            return computed
        # inputs that only unused outputs depend on get None, as in eager, not zeros
        unused = frozenset(missing)
        gradients = zip(self.partition.gradients, computed)
        return [None if entry.tangents and entry.tangents <= unused else gradient for entry, gradient in gradients]


def _fit(tangent: torch.Tensor | None, spec: TensorSpec) -> torch.Tensor:
    """The tangent in the layout backward was traced with; zeros where the output was not used."""
    if tangent is None:
        return torch.empty_strided(spec.shape, spec.strides, dtype=spec.dtype, device=spec.device).zero_()
    if tangent.stride() == spec.strides and tangent.dtype == spec.dtype and tangent.layout is torch.strided:
        return tangent
    fitted = torch.empty_strided(spec.shape, spec.strides, dtype=spec.dtype, device=spec.device)
    return fitted.copy_(tangent)
