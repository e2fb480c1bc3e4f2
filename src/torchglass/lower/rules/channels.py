"""Normalizations of channels: batch norm and group norm, and their backwards.

A batch norm in training over (N, C, H, W) is three loops over the whole tensor: mean and mean of squared differences of
each channel, and one scaled map; running statistics are loops over C numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from ...records.loops import View, compute_dtype
from ...records.size_floats import maximum
from ...records.sizes import Size, product
from ...records.symbolic_ints import sizes_of
from ..context import Lowering, Splat, count_of, dtype_name, known_size
from ..table import NotLowered, rule
from ..values import V, rsqrt
from .centered import moments, squared_difference
from .normalization import scaled


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


def _inverse_root(eps: float, to: str) -> Callable[[V], V]:
    """1 / sqrt(variance + eps), rounded once: all elements of a channel are scaled by it, so their errors add up."""
    return lambda v: rsqrt(v.cast("float64") + eps).cast(to)


def _statistics(low: Lowering, x: View, dims: list[int], eps: float, to: str, n: str) -> tuple[View, View, View]:
    """Mean, biased variance and 1 / sqrt(variance + eps) with their dimensions kept."""
    count = count_of(x.shape, dims)
    if count == 0:
        raise NotLowered("no elements")
    mean, var = moments(low, x, dims, to, n, lambda s: s / count, f"{n}_var", to)
    return mean, var, low.map(_inverse_root(eps, to), [var], name=f"{n}_rstd", dtype=to)


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
        r = low.map(_inverse_root(eps, to), [old_var], name=f"{n}_rstd", dtype=to)
        y = low.map_like(vals[0], n, scaled(to), [x, old_mean, r, w, b])
        saved = tuple(_empty(low, val, f"{n}_none") for val in vals[1:3])
        return (y, *saved, *((mean, var) if updates else ()))
    dims = [d for d in range(len(shape)) if d != 1]
    m, v, r = _statistics(low, x, dims, eps, to, n)
    y = low.map_like(vals[0], n, scaled(to), [x, m, r, w, b])
    results = [y, low.cast_like(m, vals[1]), low.cast_like(r, vals[2])]
    if updates:
        count = count_of(shape, dims)
        unbiased = count / maximum(count - 1, 1)
        for old, new, factor, val in ((old_mean, m, 1.0, vals[3]), (old_var, v, unbiased, vals[4])):
            moved = low.map(
                lambda o, s, f=factor: (o.cast(to) * (1 - momentum)) + s * (momentum * f), [old, new],
                name=f"{n}_running", dtype=dtype_name(val.dtype),
            )  # fmt: skip
            results.append(low.cast_like(moved, val))
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
    count = count_of(shape, dims)
    w = _row_of(weight, shape, 1)
    if training:
        m, r = _row_of(save_mean, shape, 1), _row_of(save_rstd, shape, 1)
    else:
        m = _row_of(mean, shape, 1)
        r = low.map(_inverse_root(eps, to), [_row_of(var, shape, 1)], name=f"{n}_rstd", dtype=to)
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

        dx = low.map_like(vals[0], f"{n}_dx", slope, [grad, x, m, r, w, sums, dots])
    if mask[1]:
        dw = low.map(lambda d, s: d * s, [dots, r], name=f"{n}_dw", dtype=dtype_name(vals[1].dtype))
        dw = low.cast_like(dw, vals[1])
    return dx, dw, low.cast_like(sums, vals[2]) if mask[2] else None


# -- group norm ------------------------------------------------------------------------------------------------------
def _grouped(x: Any, groups: int) -> View:
    """(N, C, ...) as (N, groups, channels of a group, the rest)."""
    if not isinstance(x, View) or 0 in x.shape:
        raise NotLowered("nothing to normalize")
    shape = (x.shape[0], groups, known_size(x.shape[1]) // groups, product(x.shape[2:]))
    return View(x.buffer, shape, _wide_strides(x.shape, x.strides, shape), x.offset)


def _wide_strides(shape: Sequence[Any], strides: Sequence[Any], wide: Sequence[Any]) -> tuple[Size, ...]:
    """Strides of (N, groups, channels of a group, the rest) for those of (N, C, ...)."""
    rest = [(d, s) for d, s in zip(shape[2:], strides[2:]) if d != 1]
    if any(s != d * inner for (_, s), (d, inner) in itertools.pairwise(rest)):
        raise NotLowered("an image whose rows do not lie together")
    return (strides[0], strides[1] * wide[2], strides[1], rest[-1][1] if rest else 1)


def _by_channel(x: Any, groups: Size, channels: Size) -> Any:
    if not isinstance(x, View):
        return x
    step = x.strides[0]
    return View(x.buffer, (1, groups, channels, 1), (0, step * channels, step, 0), x.offset)


def _group_statistics(low: Lowering, g: View, eps: float, to: str, n: str) -> tuple[View, View]:
    """Mean and 1 / sqrt(variance + eps) of each group, with its dimensions kept.

    Where channels lie next to each other each is added up by itself, so that sums are over neighbours.
    """
    if not _channels_are_neighbours(g):
        mean, _, rstd = _statistics(low, g, [2, 3], eps, to, n)
        return mean, rstd
    count, inverse = count_of(g.shape[2:]), _inverse_root(eps, to)
    sums = low.reduce("sum", [g], [3], lambda v: v.cast(to), name=f"{n}_sums", dtype=to)
    mean = low.reduce("sum", [sums], [2], post=lambda s: s / count, name=f"{n}_mean", dtype=to)
    centers = low.map(lambda m: m, [mean], shape=sums.shape, name=f"{n}_centers", dtype=to)
    squares = low.reduce("sum", [g, centers], [3], squared_difference(to), name=f"{n}_squares", dtype=to)
    rstd = low.reduce("sum", [squares], [2], post=lambda s: inverse(s / count), name=f"{n}_rstd", dtype=to)
    return mean, rstd


def _channels_are_neighbours(g: View) -> bool:
    return g.strides[2] == 1 and g.shape[2] != 1 and g.strides[3] != 1


@rule("native_group_norm")
def _group_norm(
    low: Lowering, node: fx.Node, x: Any, weight: Any, bias: Any, n: int, c: int, rest: int, groups: int, eps: float
) -> Any:
    vals, name = node.meta["val"], node.name
    g = _grouped(x, groups)
    shape = g.shape
    to = compute_dtype(low.dtype(x))
    mean, rstd = _group_statistics(low, g, eps, to, name)
    w, b = (_by_channel(v, *shape[1:3]) for v in (weight, bias))
    m, r = mean, rstd
    if _channels_are_neighbours(g):  # numbers for each channel, so that the loop over elements is over neighbours
        each = (*shape[:3], 1)
        m = low.map(lambda v: v, [mean], shape=each, name=f"{name}_shift", dtype=to)
        r = low.map(_scale(to), [rstd, w], shape=each, name=f"{name}_scale", dtype=to)
        w = None
    strides = _wide_strides(sizes_of(vals[0].shape), sizes_of(vals[0].stride()), shape)
    y = low.map(scaled(to), [g, m, r, w, b], shape=shape, strides=strides, dtype=dtype_name(vals[0].dtype), name=name)
    return low.cast_like(y, vals[0]), low.cast_like(mean, vals[1]), low.cast_like(rstd, vals[2])


def _scale(to: str) -> Any:
    return lambda r, w: r if w is None else r * w.cast(to)


@rule("native_group_norm_backward")
def _group_norm_backward(
    low: Lowering, node: fx.Node, grad: Any, x: Any, mean: Any, rstd: Any, weight: Any, n: int, c: int, rest: int,
    groups: int, mask: Sequence[bool],
) -> Any:  # fmt: skip
    vals, name = node.meta["val"], node.name
    g, v = _grouped(grad, groups), _grouped(x, groups)
    shape, each = v.shape, (*v.shape[:3], 1)
    count = count_of(shape[2:])
    to = compute_dtype(low.dtype(x))
    if any(not isinstance(s, View) for s in (mean, rstd)):
        raise NotLowered("statistics that are no tensor")
    m, r = (View(s.buffer, (*shape[:2], 1, 1), (*s.strides, 0, 0), s.offset) for s in (mean, rstd))
    w = _by_channel(weight, *shape[1:3])
    m = low.map(lambda s: s.cast(to), [m], shape=each, name=f"{name}_centers", dtype=to)
    sums = low.reduce("sum", [g], [3], lambda gr: gr.cast(to), name=f"{name}_sums", dtype=to)
    dots = low.reduce(
        "sum", [g, v, m], [3], lambda gr, y, s: gr.cast(to) * (y.cast(to) - s), name=f"{name}_dots", dtype=to
    )
    dx = dw = db = None
    if mask[0]:
        weighted = _scale(to)
        a = low.reduce("sum", [sums, w], [2], weighted, lambda s: s / count, shape=each, name=f"{name}_a", dtype=to)
        b = low.reduce("sum", [dots, w], [2], weighted, lambda s: s / count, shape=each, name=f"{name}_b", dtype=to)
        scale = low.map(weighted, [r, w], shape=each, name=f"{name}_scale", dtype=to)
        shift = low.map(lambda p, s: p * s, [a, r], shape=each, name=f"{name}_shift", dtype=to)
        slope = low.map(lambda q, s: q * s * s * s, [b, r], shape=each, name=f"{name}_slope", dtype=to)
        dx = low.map(
            lambda gr, y, c, k, p, q: gr.cast(to) * k - p - (y.cast(to) - c) * q, [g, v, m, scale, shift, slope],
            shape=shape, strides=_wide_strides(sizes_of(vals[0].shape), sizes_of(vals[0].stride()), shape),
            dtype=dtype_name(vals[0].dtype), name=f"{name}_dx",
        )  # fmt: skip
        dx = low.cast_like(dx, vals[0])
    if mask[1]:
        dw = low.reduce(
            "sum", [dots, r], [0], lambda d, s: d * s.cast(to), shape=each, name=f"{name}_dw",
            dtype=dtype_name(vals[1].dtype),
        )  # fmt: skip
        dw = low.cast_like(dw, vals[1])
    if mask[2]:
        db = low.reduce("sum", [sums], [0], name=f"{name}_db", dtype=dtype_name(vals[2].dtype))
        db = low.cast_like(db, vals[2])
    return dx, dw, db
