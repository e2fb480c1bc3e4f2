"""Operators that make tensors of nothing: numbers repeated (no memory until ATen needs it) and counters.

``aten.full([2, 3], 0.5)`` is ``Splat(0.5, 'float32', (2, 3))``; loops that read it use the constant.
"""

from __future__ import annotations

from typing import Any

from torch import fx

from ..records.loops import View
from .context import Lowering, Splat, dtype_name, sizes_of
from .table import NotLowered, rule
from .values import V, compute_dtype, fits


def _splat(node: fx.Node, value: Any) -> Splat:
    val = node.meta["val"]
    if not isinstance(value, (bool, int, float)):
        raise NotLowered("a fill value that is computed")
    if val.device.type != "cpu":
        raise NotLowered(f"device {val.device}")
    dtype = dtype_name(val.dtype)
    if not fits(value, dtype):
        raise NotLowered("a fill value that the dtype does not hold: eager raises")
    return Splat(value, dtype, sizes_of(val.shape))


@rule("zeros", "zeros_like", "new_zeros")
def _zeros(low: Lowering, node: fx.Node, *args: Any, **kwargs: Any) -> Splat:
    return _splat(node, 0)


@rule("ones", "ones_like", "new_ones")
def _ones(low: Lowering, node: fx.Node, *args: Any, **kwargs: Any) -> Splat:
    return _splat(node, 1)


@rule("full", "full_like")
def _full(low: Lowering, node: fx.Node, like: Any, value: Any, **kwargs: Any) -> Splat:
    return _splat(node, value)


@rule("new_full")
def _new_full(low: Lowering, node: fx.Node, x: Any, size: Any, value: Any, **kwargs: Any) -> Splat:
    return _splat(node, value)


@rule("scalar_tensor")
def _scalar_tensor(low: Lowering, node: fx.Node, value: Any, **kwargs: Any) -> Splat:
    return _splat(node, value)


@rule("fill.Scalar")
def _fill(low: Lowering, node: fx.Node, x: Any, value: Any) -> Splat:
    return _splat(node, value)


@rule("arange.start_step", "arange.default", "arange.start")
def _arange(low: Lowering, node: fx.Node, *args: Any, **kwargs: Any) -> View:
    start, step = (0, 1) if len(args) < 2 else (args[0], args[2] if len(args) > 2 else 1)
    dtype = dtype_name(node.meta["val"].dtype)
    if not (isinstance(start, int) and isinstance(step, int)):
        raise NotLowered("fractional steps")

    def element(counters: list[V]) -> V:
        (i,) = counters
        index = i.body.index((step,), start)
        return index.cast(compute_dtype(dtype))

    return low.finish(element, [], node, indexed=True)
