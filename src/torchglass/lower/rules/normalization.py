"""Normalizations and their backwards, by the textbook formulas, in loops over rows that fusing makes single kernels.

``native_layer_norm(x, shape, weight, bias, eps)``: mean, mean of squared differences, rstd, and one scaled map.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from ...records.loops import View, compute_dtype
from ...records.size_floats import maximum
from ...records.sizes import Size
from ..context import Lowering, count_of
from ..table import NotLowered, rule
from ..values import V, rsqrt
from .centered import moments


def scaled(to: str) -> Callable[..., V]:
    """A number less its mean, if it has one, by a factor and by a weight, and a bias added, in ``to``."""

    def element(v: V, m: V | None, r: V, w: V | None, b: V | None = None) -> V:
        y = (v.cast(to) if m is None else v.cast(to) - m.cast(to)) * r
        y = y if w is None else y * w.cast(to)
        return y if b is None else y + b.cast(to)

    return element


@rule("native_layer_norm")
def _layer_norm(low: Lowering, node: fx.Node, x: Any, normalized: Any, weight: Any, bias: Any, eps: float) -> Any:
    vals = node.meta["val"]
    if not isinstance(x, View):
        raise NotLowered("a repeated number")
    dims = list(range(len(x.shape) - len(normalized), len(x.shape)))
    to, n = compute_dtype(low.dtype(x)), node.name
    count = maximum(count_of(x.shape, dims), 1)
    mean, rstd = moments(low, x, dims, to, n, lambda s: rsqrt(s / count + eps), f"{n}_rstd", to)
    y = low.map_like(vals[0], n, scaled(to), [x, mean, rstd, weight, bias])
    return y, low.cast_like(mean, vals[1]), low.cast_like(rstd, vals[2])


@rule("native_layer_norm_backward")
def _layer_norm_backward(
    low: Lowering, node: fx.Node, grad: Any, x: Any, normalized: Any, mean: Any, rstd: Any, weight: Any, bias: Any,
    mask: Any,
) -> Any:  # fmt: skip
    rows, dims, keep = _rows_and_dims(low, x, normalized, mean)
    to, n, count = compute_dtype(low.dtype(x)), node.name, count_of(x.shape, dims)
    mean, rstd = _rows_view(mean, keep), _rows_view(rstd, keep)

    def normal(v: V, m: V, r: V) -> V:
        return (v.cast(to) - m) * r

    weighted = _weighted(to)
    dx: Any = None
    if mask[0]:
        first = low.reduce(
            "sum", [grad, weight], dims, weighted, lambda s: s / count, name=f"{n}_a", dtype=to, shape=x.shape
        )
        second = low.reduce(
            "sum", [grad, weight, x, mean, rstd], dims, lambda g, w, v, m, r: weighted(g, w) * normal(v, m, r),
            lambda s: s / count, name=f"{n}_b", dtype=to, shape=x.shape,
        )  # fmt: skip
        dx = low.map_like(
            node.meta["val"][0], f"{n}_dx",
            lambda g, w, v, m, r, a, b: (weighted(g, w) - a - normal(v, m, r) * b) * r,
            [grad, weight, x, mean, rstd, first, second],
        )  # fmt: skip
    dw = db = None
    if mask[1] and weight is not None:
        dw = low.reduce(
            "sum", [grad, x, mean, rstd], rows, lambda g, v, m, r: g.cast(to) * normal(v, m, r),
            name=f"{n}_dw", dtype=low.dtype(weight), shape=x.shape,
        )  # fmt: skip
        dw = low.cast_like(dw, node.meta["val"][1])
    if mask[2] and bias is not None:
        db = low.reduce("sum", [grad], rows, lambda g: g.cast(to), name=f"{n}_db", dtype=low.dtype(bias), shape=x.shape)
        db = low.cast_like(db, node.meta["val"][2])
    return dx, dw, db


def _rows_and_dims(
    low: Lowering, x: Any, normalized: Any, statistics: Any
) -> tuple[list[int], list[int], tuple[Size, ...]]:
    """The dimensions of rows and those inside them, and the shape of what there is one of for each row."""
    if not isinstance(x, View) or compute_dtype(low.dtype(statistics)) != compute_dtype(low.dtype(x)):
        raise NotLowered("mixed dtypes")
    cut = len(x.shape) - len(normalized)
    dims = list(range(cut, len(x.shape)))
    return list(range(cut)), dims, (*x.shape[:cut], *(1 for _ in dims))


def _weighted(to: str) -> Callable[..., V]:
    return lambda g, w: g.cast(to) if w is None else g.cast(to) * w.cast(to)


def _rows_view(x: Any, keep: tuple[Size, ...]) -> Any:
    """Row statistics come with or without their trailing ones."""
    if not isinstance(x, View):
        raise NotLowered("statistics that are no tensor")
    strides = (*x.strides, *(1 for _ in range(len(keep) - len(x.strides))))
    return View(x.buffer, keep, strides[: len(keep)], x.offset)


@rule("_fused_rms_norm")
def _rms_norm(low: Lowering, node: fx.Node, x: Any, normalized: Any, weight: Any, eps: Any) -> Any:
    vals = node.meta["val"]
    to, n = compute_dtype(low.dtype(x)), node.name
    if eps is None:
        raise NotLowered("the default epsilon")
    dims = list(range(len(x.shape) - len(normalized), len(x.shape)))
    count = count_of(x.shape, dims)
    rstd = low.reduce(
        "sum",
        [x],
        dims,
        lambda v: v.cast(to) * v.cast(to),
        lambda s: rsqrt(s / count + eps),
        name=f"{n}_rstd",
        dtype=to,
    )
    y = low.map_like(vals[0], n, scaled(to), [x, None, rstd, weight])
    return y, low.cast_like(rstd, vals[1])


@rule("_fused_rms_norm_backward")
def _rms_norm_backward(
    low: Lowering, node: fx.Node, grad: Any, x: Any, normalized: Any, rstd: Any, weight: Any, mask: Any
) -> Any:
    rows, dims, keep = _rows_and_dims(low, x, normalized, rstd)
    to, n, count = compute_dtype(low.dtype(x)), node.name, count_of(x.shape, dims)
    rstd = _rows_view(rstd, keep)
    weighted = _weighted(to)
    dx = dw = None
    if mask[0]:
        along = low.reduce(
            "sum", [grad, weight, x, rstd], dims, lambda g, w, v, r: weighted(g, w) * (v.cast(to) * r),
            lambda s: s / count, name=f"{n}_a", dtype=to, shape=x.shape,
        )  # fmt: skip
        dx = low.map_like(
            node.meta["val"][0], f"{n}_dx",
            lambda g, w, v, r, a: (weighted(g, w) - v.cast(to) * r * a) * r,
            [grad, weight, x, rstd, along],
        )  # fmt: skip
    if mask[1] and weight is not None:
        dw = low.reduce(
            "sum", [grad, x, rstd], rows, lambda g, v, r: g.cast(to) * (v.cast(to) * r),
            name=f"{n}_dw", dtype=low.dtype(weight), shape=x.shape,
        )  # fmt: skip
        dw = low.cast_like(dw, node.meta["val"][1])
    return dx, dw
