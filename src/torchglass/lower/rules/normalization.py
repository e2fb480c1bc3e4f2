"""Normalizations and their backwards, by the textbook formulas, in loops over rows that fusing makes single kernels.

``native_layer_norm(x, shape, weight, bias, eps)``: mean, mean of squared differences, rstd, and one scaled map.
"""

from __future__ import annotations

from typing import Any

from torch import fx

from ...records.loops import View
from ...records.sizes import Size, product
from ..context import Lowering, dtype_name, sizes_of
from ..table import NotLowered, rule
from ..values import V, compute_dtype, rsqrt
from .reductions import count_of, mean_of, squared_difference


@rule("native_layer_norm")
def _layer_norm(low: Lowering, node: fx.Node, x: Any, normalized: Any, weight: Any, bias: Any, eps: float) -> Any:
    vals = node.meta["val"]
    if not isinstance(x, View):
        raise NotLowered("a repeated number")
    dims = list(range(len(x.shape) - len(normalized), len(x.shape)))
    to, n = compute_dtype(low.dtype(x)), node.name
    mean, count = mean_of(low, x, dims, to, n)
    rstd = low.reduce(
        "sum",
        [x, mean],
        dims,
        squared_difference(to),
        lambda s: rsqrt(s / max(count, 1) + eps),
        name=f"{n}_rstd",
        dtype=to,
    )

    def scaled(v: V, m: V, r: V, w: V | None, b: V | None) -> V:
        y = (v.cast(to) - m) * r
        y = y if w is None else y * w.cast(to)
        return y if b is None else y + b.cast(to)

    out = vals[0]
    y = low.map(
        scaled, [x, mean, rstd, weight, bias], shape=sizes_of(out.shape), dtype=dtype_name(out.dtype),
        strides=sizes_of(out.stride()), name=n,
    )  # fmt: skip
    return y, low.cast_like(mean, vals[1]), low.cast_like(rstd, vals[2])


@rule("native_layer_norm_backward")
def _layer_norm_backward(
    low: Lowering,
    node: fx.Node,
    grad: Any,
    x: Any,
    normalized: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    bias: Any,
    mask: Any,
) -> Any:
    rank, cut = len(x.shape), len(x.shape) - len(normalized)
    rows, dims = list(range(cut)), list(range(cut, rank))
    to, n = compute_dtype(low.dtype(x)), node.name
    if not isinstance(x, View) or compute_dtype(low.dtype(mean)) != to:
        raise NotLowered("mixed dtypes")
    count = count_of(product(tuple(x.shape[d] for d in dims)))
    keep = (*x.shape[:cut], *(1 for _ in dims))
    mean, rstd = _rows_view(mean, keep), _rows_view(rstd, keep)

    def normal(v: V, m: V, r: V) -> V:
        return (v.cast(to) - m) * r

    def scaled(g: V, w: V | None) -> V:
        return g.cast(to) if w is None else g.cast(to) * w.cast(to)

    dx: Any = None
    if mask[0]:
        first = low.reduce(
            "sum", [grad, weight], dims, scaled, lambda s: s / count, name=f"{n}_a", dtype=to, shape=x.shape
        )
        second = low.reduce(
            "sum", [grad, weight, x, mean, rstd], dims, lambda g, w, v, m, r: scaled(g, w) * normal(v, m, r),
            lambda s: s / count, name=f"{n}_b", dtype=to, shape=x.shape,
        )  # fmt: skip
        val = node.meta["val"][0]
        dx = low.map(
            lambda g, w, v, m, r, a, b: (scaled(g, w) - a - normal(v, m, r) * b) * r,
            [grad, weight, x, mean, rstd, first, second], shape=x.shape, dtype=dtype_name(val.dtype),
            strides=sizes_of(val.stride()), name=f"{n}_dx",
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
    count = count_of(product(tuple(x.shape[d] for d in dims)))
    rstd = low.reduce(
        "sum",
        [x],
        dims,
        lambda v: v.cast(to) * v.cast(to),
        lambda s: rsqrt(s / count + eps),
        name=f"{n}_rstd",
        dtype=to,
    )

    def scaled(v: V, r: V, w: V | None) -> V:
        y = v.cast(to) * r
        return y if w is None else y * w.cast(to)

    y = low.map(
        scaled,
        [x, rstd, weight],
        shape=x.shape,
        dtype=dtype_name(vals[0].dtype),
        strides=sizes_of(vals[0].stride()),
        name=n,
    )
    return y, low.cast_like(rstd, vals[1])
