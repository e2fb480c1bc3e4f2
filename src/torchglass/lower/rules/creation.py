"""Operators that make tensors of nothing: numbers repeated (no memory until ATen needs it) and counters.

``aten.full([2, 3], 0.5)`` is ``Splat(0.5, 'float32', (2, 3))``; loops that read it use the constant.
"""

from __future__ import annotations

from typing import Any

from torch import fx

from ...records.loops import HALF, View, compute_dtype
from ...records.symbolic_ints import sizes_of
from ..context import Lowering, Splat, dtype_name
from ..table import NotLowered, rule
from ..values import V, fits, nearest


def splat(node: fx.Node, value: Any) -> Splat:
    val = node.meta["val"]
    if not isinstance(value, (bool, int, float)):
        raise NotLowered("a fill value that is computed")
    dtype = dtype_name(val.dtype)
    if not fits(value, dtype):
        raise NotLowered("a fill value that the dtype does not hold: eager raises")
    return Splat(nearest(value, dtype) if dtype in HALF else value, dtype, sizes_of(val.shape))


@rule("empty_like", "new_empty", "new_empty_strided")
def _empty(low: Lowering, node: fx.Node, *args: Any, **kwargs: Any) -> View:
    """Memory that a call of ATen fills (dropout's random numbers), made without what it is to be like."""
    val, view = node.meta["val"], low.result(node)
    where = {"dtype": val.dtype, "device": val.device}
    low.extern("torch.ops.aten.empty_strided.default", [list(view.shape), list(view.strides)], where, [view.buffer])
    return view


rule("zeros", "zeros_like", "new_zeros")(lambda low, node, *args, **kwargs: splat(node, 0))
rule("ones", "ones_like", "new_ones")(lambda low, node, *args, **kwargs: splat(node, 1))
rule("full", "full_like", "fill.Scalar")(lambda low, node, like, value, **kwargs: splat(node, value))
rule("new_full")(lambda low, node, x, size, value, **kwargs: splat(node, value))
rule("scalar_tensor")(lambda low, node, value, **kwargs: splat(node, value))


@rule("arange.start_step", "arange.default", "arange.start")
def _arange(low: Lowering, node: fx.Node, *args: Any, **kwargs: Any) -> View:
    start, step = (0, 1) if len(args) < 2 else (args[0], args[2] if len(args) > 2 else 1)
    dtype = dtype_name(node.meta["val"].dtype)
    if not all(isinstance(number, (int, float)) for number in (start, step)):
        raise NotLowered("steps that are computed")
    fractional = isinstance(start, float) or isinstance(step, float)
    if fractional and dtype not in ("float32", "float64"):
        raise NotLowered("fractional steps of rounded numbers")

    def element(counters: list[V]) -> V:
        (i,) = counters
        if fractional:  # eager steps in double
            return (i.cast("float64") * step + start).cast(dtype)
        index = i.body.index((step,), start)
        return index.cast(compute_dtype(dtype))

    return low.finish(element, [], node, indexed=True)


@rule("eye.default", "eye.m")
def _eye(low: Lowering, node: fx.Node, *sizes: Any, **kwargs: Any) -> View:
    dtype = dtype_name(node.meta["val"].dtype)

    def element(counters: list[V]) -> V:
        return counters[0].do("eq", counters[1]).cast(compute_dtype(dtype))

    return low.finish(element, [], node, indexed=True)
