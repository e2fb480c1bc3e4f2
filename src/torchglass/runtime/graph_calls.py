"""Graphs that do not run as kernels, behind the calls that kernels have: a list of tensors in, results out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from ..records.size_places import in_numbers, read_sizes, size_places, symbols_of
from ..torch_compat import has_storage
from .load import ensure_layout

GraphCall = Callable[..., Any]
Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]


def on_list(forward: GraphCall, laid_out: torch.fx.GraphModule | None = None, first: int | None = None) -> GraphCall:
    """A graph file's function on a list of tensors, brought to the strides of ``laid_out``'s inputs if it is given: of
    all, or of the ``first`` so many.
    """
    if laid_out is None:
        return lambda inputs: forward(*inputs)
    vals = [node.meta["val"] for node in laid_out.graph.find_nodes(op="placeholder")[:first]]
    layouts = [(value.shape, value.stride(), value.dtype) for value in vals]
    count = len(layouts)
    if symbols_of(vals):
        places = size_places(vals, symbols_of(vals))

        def call(inputs: list[Any]) -> Any:
            at = read_sizes(places, inputs)
            laid = (_laid_out(x, in_numbers(a, at), in_numbers(b, at), c) for x, (a, b, c) in zip(inputs, layouts))
            return forward(*laid, *inputs[count:])

        return call
    return lambda inputs: forward(*(_laid_out(x, *how) for x, how in zip(inputs, layouts)), *inputs[count:])


def _laid_out(x: torch.Tensor | None, sizes: Any, strides: Any, dtype: torch.dtype) -> torch.Tensor | None:
    """An input as it was compiled for; None for what the backward of a part was not given, since nothing reads it."""
    return None if x is None and 0 not in sizes else ensure_layout(x, sizes, strides, dtype)


def unless_batched(kernels: GraphCall, forward: GraphCall, gm: torch.fx.GraphModule, saved: int) -> GraphCall:
    """Gradients that are many at once (``is_grads_batched``, ``torch.func.vmap``) have no memory for kernels: the
    graph's function runs, on the first ``saved`` inputs as they lie in ``gm``.
    """
    by_operators = on_list(forward, gm, saved)

    def call(tensors: list[Any]) -> Any:
        return kernels(tensors) if all(map(has_storage, tensors[saved:])) else by_operators(tensors)

    return call


def unless_captured(kernels: GraphCall, forward: GraphCall, layouts: Sequence[Layout | None]) -> GraphCall:
    """Kernels that draw random numbers are told what these follow from, which a CUDA graph knows only when it is
    replayed: while one is captured the graph's function runs. ``layouts`` are those in which kernels leave results.
    """
    by_operators = on_list(forward)

    def call(tensors: list[Any]) -> Any:
        if not torch.cuda.is_current_stream_capturing():
            return kernels(tensors)
        results = by_operators(tensors)
        return tuple(r if how is None else ensure_layout(r, *how) for r, how in zip(results, layouts, strict=True))

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
