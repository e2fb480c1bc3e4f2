"""Cumulative operators: cumsum, cumprod, cummax, cummin, logcumsumexp.

``x.cumsum(1)`` of float32 is one loop, as exact as eager's: load, cast to float64, scan_sum along i1, cast, store. The
places of cummax are a scan of their own: the largest index so far of an element that equals the maximum so far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from ...records.loops import Loop, View, compute_dtype
from ...records.sizes import at_most
from ..context import Lowering, dtype_name
from ..table import NotLowered, rule
from ..values import MOST_PLACES, V, is_float, where

WIDE = {"float32": "float64", "bfloat16": "float32", "float16": "float32"}
"""What eager adds up, multiplies and takes logarithms in."""


def line_of(x: Any, dim: int) -> int:
    """The dimension as a number from 0; 0 for a single number."""
    return dim % len(x.shape) if x.shape else 0


def _cumulative(kind: str) -> Callable[..., View]:
    def lower(low: Lowering, node: fx.Node, x: Any, dim: int, *, dtype: Any = None) -> View:
        val = node.meta["val"]
        stored = dtype_name(val.dtype)

        def element(v: V) -> V:
            if low.dtype(x) != stored:  # eager converts before it adds up
                v = v.cast(stored)
                v = v if compute_dtype(stored) == stored else v.cast(compute_dtype(stored))
            return v.cast(WIDE.get(stored, stored))

        return low.scan(kind, [x], line_of(x, dim), val, node.name, element)

    return lower


rule("cumsum")(_cumulative("sum"))
rule("cumprod")(_cumulative("prod"))


@rule("logcumsumexp")
def _logcumsumexp(low: Lowering, node: fx.Node, x: Any, dim: int) -> View:
    if not is_float(low.dtype(x)):
        raise NotLowered("logarithms of integers")
    to = WIDE.get(low.dtype(x), "float64")
    return low.scan("logaddexp", [x], line_of(x, dim), node.meta["val"], node.name, lambda v: v.cast(to))


def _extremum_so_far(kind: str) -> Callable[..., Any]:
    def lower(low: Lowering, node: fx.Node, x: Any, dim: int) -> Any:
        values, places = node.meta["val"]
        dim, stored = line_of(x, dim), low.dtype(x)
        dtype = compute_dtype(stored)
        if x.shape and not at_most(x.shape[dim], MOST_PLACES):
            raise NotLowered("a line too long")

        made = any(isinstance(n, Loop) and x.buffer in n.writes for n in low.nodes) if isinstance(x, View) else False

        def rounded(v: V) -> V:  # of what a kernel made, memory would have rounded some away: then more are equal
            return v.cast(stored).cast(dtype) if made and stored != dtype else v

        best = low.scan(kind, [x], dim, values, node.name, rounded)

        def place(v: V, m: V) -> V:
            v = rounded(v)
            same = v.do("eq", m)
            if is_float(v.dtype):
                same = same.do("or", v.do("isnan"))
            here = v.body.index(tuple(int(k == dim) for k in range(len(x.shape))), 0, "int32")
            return where(same, here, 0)

        return best, low.scan("max", [x, best], dim, places, f"{node.name}_place", place, lambda p: p.cast("int64"))

    return lower


rule("cummax")(_extremum_so_far("max"))
rule("cummin")(_extremum_so_far("min"))
