"""Normalizations of channels: batch norm and group norm, and their backwards.

A batch norm in training over (N, C, H, W) is three loops over the whole tensor: mean and mean of squared differences of
each channel, and one scaled map; running statistics are loops over C numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from ..records.loops import Size, View, product
from .context import Lowering, Splat, contiguous, dtype_name, sizes_of
from .reductions import count_of, squared_difference
from .table import NotLowered, rule
from .values import V, compute_dtype, rsqrt


def _row_of(x: Any, shape: Sequence[Size], at: int) -> Any:
    """A 1-D view as one that moves along dimension ``at`` of ``shape``."""
    if x is None or isinstance(x, Splat):
        return x if x is None else Splat(x.value, x.dtype, (1,) * len(shape))
    sizes = tuple(shape[at] if d == at else 1 for d in range(len(shape)))
    return View(x.buffer, sizes, tuple(x.strides[0] if d == at else 0 for d in range(len(shape))), x.offset)


def _empty(low: Lowering, val: Any, name: str) -> View:
    if tuple(val.shape) != (0,):
        raise NotLowered("statistics that are not the batch's")
    return low.map(lambda v: v, [Splat(0.0, dtype_name(val.dtype), (0,))], shape=(0,), name=name)


def _scaled(to: str) -> Any:
    def scaled(v: V, m: V, r: V, w: V | None, b: V | None) -> V:
        y = (v.cast(to) - m.cast(to)) * r
        y = y if w is None else y * w.cast(to)
        return y if b is None else y + b.cast(to)

    return scaled


def _statistics(low: Lowering, x: View, dims: list[int], eps: float, to: str, n: str) -> tuple[View, View, View]:
    """Mean, biased variance and 1 / sqrt(variance + eps) with their dimensions kept."""
    count = count_of(product(tuple(x.shape[d] for d in dims)))
    if count == 0:
        raise NotLowered("no elements")
    mean = low.reduce("sum", [x], dims, lambda v: v.cast(to), lambda s: s / count, name=f"{n}_mean", dtype=to)
    var = low.reduce("sum", [x, mean], dims, squared_difference(to), lambda s: s / count, name=f"{n}_var", dtype=to)
    return mean, var, low.map(lambda v: rsqrt(v + eps), [var], name=f"{n}_rstd", dtype=to)


def _normalized(low: Lowering, val: Any, inputs: list[Any], to: str, n: str) -> View:
    return low.map(
        _scaled(to), inputs, shape=sizes_of(val.shape), dtype=dtype_name(val.dtype), strides=sizes_of(val.stride()),
        name=n,
    )  # fmt: skip


# -- batch norm ------------------------------------------------------------------------------------------------------
def _batch_norm(
    low: Lowering, node: fx.Node, x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float,
    eps: float, updates: bool,
) -> Any:  # fmt: skip
    vals = node.meta["val"]
    if not isinstance(x, View) or len(x.shape) < 2 or 0 in x.shape:
        raise NotLowered("nothing to normalize")
    to, n, shape = compute_dtype(low.dtype(x)), node.name, x.shape
    w, b, old_mean, old_var = (_row_of(t, shape, 1) for t in (weight, bias, mean, var))
    if not training:
        if mean is None or var is None:
            raise NotLowered("no running statistics")
        if to != low.dtype(x) and any(user.args[1] in (1, 2) for user in node.users):
            raise NotLowered("empty results whose dtype fake tensors do not know")
        r = low.map(lambda v: rsqrt(v.cast(to) + eps), [old_var], name=f"{n}_rstd", dtype=to)
        y = _normalized(low, vals[0], [x, old_mean, r, w, b], to, n)
        saved = tuple(_empty(low, val, f"{n}_none") for val in vals[1:3])
        return (y, *saved, *((mean, var) if updates else ()))
    dims = [d for d in range(len(shape)) if d != 1]
    m, v, r = _statistics(low, x, dims, eps, to, n)
    y = _normalized(low, vals[0], [x, m, r, w, b], to, n)
    results = [y, low.settled(m, vals[1]), low.settled(r, vals[2])]
    if updates:
        count = count_of(product(tuple(shape[d] for d in dims)))
        unbiased = count / max(count - 1, 1)
        for old, new, factor, val in ((old_mean, m, 1.0, vals[3]), (old_var, v, unbiased, vals[4])):
            moved = low.map(
                lambda o, s, f=factor: (o.cast(to) * (1 - momentum)) + s * (momentum * f), [old, new],
                name=f"{n}_running", dtype=dtype_name(val.dtype),
            )  # fmt: skip
            results.append(low.settled(moved, val))
    return tuple(results)


@rule("native_batch_norm")
def _native(low: Lowering, node: fx.Node, x: Any, w: Any, b: Any, m: Any, v: Any, training: bool, *rest: float) -> Any:
    if training and m is not None:
        raise NotLowered("running statistics written in place")
    return _batch_norm(low, node, x, w, b, m, v, training, rest[0], rest[1], updates=False)


@rule("_native_batch_norm_legit_functional")
def _functional(
    low: Lowering, node: fx.Node, x: Any, w: Any, b: Any, m: Any, v: Any, training: bool, *rest: float
) -> Any:
    return _batch_norm(low, node, x, w, b, m, v, training, rest[0], rest[1], updates=True)


@rule("_native_batch_norm_legit.no_stats")
def _no_statistics(low: Lowering, node: fx.Node, x: Any, w: Any, b: Any, training: bool, *rest: float) -> Any:
    return _batch_norm(low, node, x, w, b, None, None, training, rest[0], rest[1], updates=False)


@rule("_native_batch_norm_legit_no_training")
def _no_training(low: Lowering, node: fx.Node, x: Any, w: Any, b: Any, m: Any, v: Any, *rest: float) -> Any:
    return _batch_norm(low, node, x, w, b, m, v, False, rest[0], rest[1], updates=False)


@rule("native_batch_norm_backward")
def _batch_norm_backward(
    low: Lowering, node: fx.Node, grad: Any, x: Any, weight: Any, mean: Any, var: Any, save_mean: Any, save_rstd: Any,
    training: bool, eps: float, mask: Sequence[bool],
) -> Any:  # fmt: skip
    vals = node.meta["val"]
    if not isinstance(x, View) or len(x.shape) < 2 or 0 in x.shape:
        raise NotLowered("nothing to normalize")
    to, n, shape = compute_dtype(low.dtype(x)), node.name, x.shape
    dims = [d for d in range(len(shape)) if d != 1]
    count = count_of(product(tuple(shape[d] for d in dims)))
    w = _row_of(weight, shape, 1)
    if training:
        m, r = _row_of(save_mean, shape, 1), _row_of(save_rstd, shape, 1)
    else:
        m = _row_of(mean, shape, 1)
        r = low.map(lambda v: rsqrt(v.cast(to) + eps), [_row_of(var, shape, 1)], name=f"{n}_rstd", dtype=to)
    sums = low.reduce("sum", [grad], dims, lambda g: g.cast(to), shape=shape, name=f"{n}_db", dtype=to)
    dots = low.reduce(
        "sum", [grad, x, m], dims, lambda g, v, c: g.cast(to) * (v.cast(to) - c), shape=shape, name=f"{n}_dot", dtype=to
    )
    dx = dw = None
    if mask[0]:

        def slope(g: V, v: V, c: V, s: V, w: V | None, a: V, d: V) -> V:
            g = g.cast(to)
            if training:
                g = g - a * (1.0 / count) - (v.cast(to) - c) * (d * s * s * (1.0 / count))
            g = g * s
            return g if w is None else g * w.cast(to)

        dx = low.map(
            slope, [grad, x, m, r, w, sums, dots], shape=shape, dtype=dtype_name(vals[0].dtype),
            strides=sizes_of(vals[0].stride()), name=f"{n}_dx",
        )  # fmt: skip
    if mask[1]:
        dw = low.map(lambda d, s: d * s, [dots, r], name=f"{n}_dw", dtype=dtype_name(vals[1].dtype))
        dw = low.settled(dw, vals[1])
    return dx, dw, low.settled(sums, vals[2]) if mask[2] else None


# -- group norm ------------------------------------------------------------------------------------------------------
def _grouped(x: Any, shape: tuple[Size, ...]) -> View:
    """Contiguous (N, C, ...) as (N, groups, channels of a group, the rest)."""
    if not isinstance(x, View) or 0 in x.shape or not all(isinstance(s, int) for s in shape):
        raise NotLowered("nothing to normalize")
    if any(a != b and d != 1 for a, b, d in zip(x.strides, contiguous(x.shape), x.shape)):
        raise NotLowered("groups that do not lie together")
    return View(x.buffer, shape, contiguous(shape), x.offset)


def _by_channel(x: Any, groups: int, channels: int) -> Any:
    if not isinstance(x, View):
        return x
    step = x.strides[0]
    return View(x.buffer, (1, groups, channels, 1), (0, step * channels, step, 0), x.offset)


@rule("native_group_norm")
def _group_norm(
    low: Lowering, node: fx.Node, x: Any, weight: Any, bias: Any, n: int, c: int, rest: int, groups: int, eps: float
) -> Any:
    vals = node.meta["val"]
    shape = (n, groups, c // groups, rest)
    g = _grouped(x, shape)
    to = compute_dtype(low.dtype(x))
    if tuple(vals[0].stride()) != contiguous(tuple(vals[0].shape)):
        raise NotLowered("a layout of channels last")
    mean, _, rstd = _statistics(low, g, [2, 3], eps, to, node.name)
    w, b = _by_channel(weight, groups, c // groups), _by_channel(bias, groups, c // groups)
    y = low.map(_scaled(to), [g, mean, rstd, w, b], shape=shape, dtype=dtype_name(vals[0].dtype), name=node.name)
    return low.settled(y, vals[0]), low.settled(mean, vals[1]), low.settled(rstd, vals[2])


@rule("native_group_norm_backward")
def _group_norm_backward(
    low: Lowering, node: fx.Node, grad: Any, x: Any, mean: Any, rstd: Any, weight: Any, n: int, c: int, rest: int,
    groups: int, mask: Sequence[bool],
) -> Any:  # fmt: skip
    vals = node.meta["val"]
    shape = (n, groups, c // groups, rest)
    g, v = _grouped(grad, shape), _grouped(x, shape)
    to = compute_dtype(low.dtype(x))
    if any(not isinstance(s, View) for s in (mean, rstd)):
        raise NotLowered("statistics that are no tensor")
    m, r = (View(s.buffer, (n, groups, 1, 1), (*s.strides, 0, 0), s.offset) for s in (mean, rstd))
    w = _by_channel(weight, groups, c // groups)
    name, count = node.name, c // groups * rest

    def scaled(gr: V, wt: V | None) -> V:
        return gr.cast(to) if wt is None else gr.cast(to) * wt.cast(to)

    dx = dw = db = None
    if mask[0]:
        a = low.reduce("sum", [g, w], [2, 3], scaled, lambda s: s / count, shape=shape, name=f"{name}_a", dtype=to)
        b = low.reduce(
            "sum", [g, w, v, m, r], [2, 3], lambda gr, wt, y, c, s: scaled(gr, wt) * ((y.cast(to) - c) * s),
            lambda s: s / count, shape=shape, name=f"{name}_b", dtype=to,
        )  # fmt: skip
        dx = low.map(
            lambda gr, wt, y, c, s, p, q: (scaled(gr, wt) - p - (y.cast(to) - c) * s * q) * s,
            [g, w, v, m, r, a, b], shape=shape, dtype=dtype_name(vals[0].dtype), name=f"{name}_dx",
        )  # fmt: skip
        dx = low.settled(dx, vals[0])
    if mask[1]:
        dw = low.reduce(
            "sum", [g, v, m, r], [0, 3], lambda gr, y, c, s: gr.cast(to) * ((y.cast(to) - c) * s), shape=shape,
            name=f"{name}_dw", dtype=dtype_name(vals[1].dtype),
        )  # fmt: skip
        dw = low.settled(dw, vals[1])
    if mask[2]:
        db = low.reduce(
            "sum", [g], [0, 3], lambda gr: gr.cast(to), shape=shape, name=f"{name}_db", dtype=dtype_name(vals[2].dtype)
        )
        db = low.settled(db, vals[2])
    return dx, dw, db
