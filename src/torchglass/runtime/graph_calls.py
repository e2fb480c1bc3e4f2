"""Graphs that do not run as kernels, behind the calls that kernels have: a list of tensors in, results out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..records.side_call import Layout, SideCall
from ..records.size_places import in_numbers, layout_places, read_sizes
from ..torch_compat import has_storage
from .load import ensure_layout
from .replay import Replayed

GraphCall = Callable[..., Any]


def by_kernels(kernels: GraphCall, forward: GraphCall, facts: SideCall) -> GraphCall:
    """A side in kernels, with what has to be asked before they run; ``forward`` is its graph file's function."""
    call = _with_copies(kernels, facts) if facts.copied else kernels
    if facts.drawn is not None:
        call = _unless_captured(call, forward, facts.drawn)
    if facts.saved is not None:
        call = _unless_batched(call, forward, facts.inputs[: facts.saved])
    return call


def replayed(kernels: GraphCall, facts: SideCall) -> GraphCall:
    """Kernels behind CUDA graphs, where these were asked for."""
    return kernels if facts.replay is None else Replayed(kernels, facts.replay, facts.inputs)


def by_operators(forward: GraphCall, facts: SideCall) -> GraphCall:
    """A side by its graph file's function, what it is given brought to the layouts that it was traced for."""
    return _on_list(forward, facts.inputs if facts.rearranged else ())


def with_grad_mode(call: GraphCall, facts: SideCall) -> GraphCall:
    """Custom operators in Python ask whether gradients are recorded, as ATen's below autograd do not."""
    return torch.no_grad()(call) if facts.calls_others else call


def _with_copies(kernels: GraphCall, facts: SideCall) -> GraphCall:
    """Kernels that get copies of those inputs that are zero tensors or are read as their negatives."""
    places = layout_places(facts.inputs)

    def call(inputs: list[Any]) -> Any:
        at = read_sizes(places, inputs)
        for place in facts.copied:
            inputs[place] = _laid_out(inputs[place], facts.inputs[place], at)
        return kernels(inputs)

    return call


def _on_list(forward: GraphCall, layouts: Sequence[Layout | None] = ()) -> GraphCall:
    """A graph file's function on a list of tensors, the first of them brought to ``layouts``."""
    if not layouts:
        return lambda inputs: forward(*inputs)
    count, places = len(layouts), layout_places(layouts)

    def call(inputs: list[Any]) -> Any:
        at = read_sizes(places, inputs)
        return forward(*(_laid_out(x, how, at) for x, how in zip(inputs, layouts)), *inputs[count:])

    return call


def _laid_out(x: torch.Tensor | None, layout: Layout | None, at: Mapping[str, int]) -> torch.Tensor | None:
    """An input as it was compiled for; None for what the backward of a part was not given, since nothing reads it."""
    if layout is None:
        return x
    sizes, strides, dtype = layout
    if at:
        sizes, strides = in_numbers(sizes, at), in_numbers(strides, at)
    return None if x is None and 0 not in sizes else ensure_layout(x, sizes, strides, dtype)  # type: ignore[arg-type]


def _unless_batched(kernels: GraphCall, forward: GraphCall, saved: Sequence[Layout | None]) -> GraphCall:
    """Gradients that are many at once (``is_grads_batched``, ``torch.func.vmap``) have no memory for kernels: the
    graph's function runs, on what is ``saved`` as it was traced for.
    """
    operators, count = _on_list(forward, saved), len(saved)

    def call(tensors: list[Any]) -> Any:
        return kernels(tensors) if all(map(has_storage, tensors[count:])) else operators(tensors)

    return call


def _unless_captured(kernels: GraphCall, forward: GraphCall, layouts: Sequence[Layout | None]) -> GraphCall:
    """Kernels that draw random numbers are told what these follow from, which a CUDA graph knows only when it is
    replayed: while one is captured the graph's function runs. ``layouts`` are those in which kernels leave results.
    """
    operators = _on_list(forward)

    def call(tensors: list[Any]) -> Any:
        if not torch.cuda.is_current_stream_capturing():
            return kernels(tensors)
        results = operators(tensors)
        return tuple(_laid_out(r, how, {}) for r, how in zip(results, layouts, strict=True))

    return call


class Foreign:
    """A foreign backend's callable. Entry code unpacks what graphs return, so the first call looks whether that is a
    tuple or list; from then on ``namespaces`` hold the callable itself: passing 400 parameters on costs a microsecond.
    """

    def __init__(self, call: GraphCall) -> None:
        self.call = call
        self.namespaces: list[dict[str, Any]] = []

    def __call__(self, *inputs: Any) -> Any:
        results: Sequence[Any] = self.call(*inputs)
        if not isinstance(results, (list, tuple)):
            return (results,)
        for namespace in self.namespaces:
            namespace["graph_0"] = self.call
        return results
