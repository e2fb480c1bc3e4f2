"""Reductions and softmax: sums, means, extrema, any/all, variance; softmax and log_softmax with their backwards.

``aten.mean.dim(x, [-1])`` is one loop: load, reduce_sum, multiply by 1/n, store. A softmax is four loops that fusing
makes one kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from ...records.loops import View, compute_dtype
from ...records.size_floats import Float, maximum, whole_number
from ...records.sizes import Size, at_least, at_most, hint, product
from ..context import Lowering, count_of, dtype_name, layout_of
from ..strides import contiguous, is_dense
from ..table import NotLowered, rule
from ..values import MOST_PLACES, V, exp, is_float, log, where
from .centered import moments, top_and_total


def normalize_dims(dims: Any, rank: int) -> list[int]:
    """``dim`` arguments of reductions as a sorted list; None and [] mean all."""
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return list(range(rank))
    if isinstance(dims, int):
        dims = [dims]
    return sorted({d % rank for d in dims}) if rank else []


def to_node(
    low: Lowering, node: fx.Node, kind: str, inputs: Sequence[Any], dims: Sequence[int], keepdim: bool,
    fn: Callable[..., V] = lambda x: x, post: Callable[[V], V] = lambda x: x,
) -> View:  # fmt: skip
    """``reduce`` to the value of ``node``, whose shape lacks the reduced dimensions unless ``keepdim``."""
    val = node.meta["val"]
    strides = _with_dims(val, dims, keepdim)
    out = low.reduce(kind, inputs, dims, fn, post, dtype=dtype_name(val.dtype), strides=strides, name=node.name)
    return View(out.buffer, *layout_of(val))


def _with_dims(val: torch.Tensor, dims: Sequence[int], keepdim: bool) -> tuple[Size, ...]:
    """The strides of a result with the dimensions that were reduced."""
    _, strides = layout_of(val)
    if keepdim:
        return strides
    kept = iter(strides)
    return tuple(1 if k in dims else next(kept) for k in range(len(strides) + len(dims)))


def _sum_like(kind: str) -> Callable[..., View]:
    def lower(
        low: Lowering, node: fx.Node, x: Any, dims: Any = None, keepdim: bool = False, *, dtype: Any = None
    ) -> View:
        to = compute_dtype(dtype_name(node.meta["val"].dtype))
        return to_node(low, node, kind, [x], normalize_dims(dims, len(x.shape)), keepdim, lambda v: v.cast(to))

    return lower


rule("sum.default", "sum.dim_IntList")(_sum_like("sum"))
rule("prod.default", "prod.dim_int")(_sum_like("prod"))


@rule("mean.default", "mean.dim")
def _mean(low: Lowering, node: fx.Node, x: Any, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> View:
    to = compute_dtype(dtype_name(node.meta["val"].dtype))
    over = normalize_dims(dims, len(x.shape))
    count = count_of(x.shape, over)
    return to_node(low, node, "sum", [x], over, keepdim, lambda v: v.cast(to), lambda total: total / count)


def _extremum(kind: str) -> Callable[..., View]:
    def lower(low: Lowering, node: fx.Node, x: Any, dims: Any = None, keepdim: bool = False) -> View:
        over = normalize_dims(dims, len(x.shape))
        if any(x.shape[d] == 0 for d in over):
            raise NotLowered("no elements: eager raises")
        return to_node(low, node, kind, [x], over, keepdim)

    return lower


rule("amax", "max.default")(_extremum("max"))
rule("amin", "min.default")(_extremum("min"))


def truth(v: V) -> V:
    return v if v.dtype == "bool" else v.do("ne", 0)


def _truth_reduction(kind: str) -> Callable[..., View]:
    def lower(low: Lowering, node: fx.Node, x: Any, dims: Any = None, keepdim: bool = False) -> View:
        to = dtype_name(node.meta["val"].dtype)  # that of uint8 is uint8
        over = [] if dims == [] else normalize_dims(dims, len(x.shape))  # no dimensions are none here
        return to_node(low, node, kind, [x], over, keepdim, truth, lambda v: v.cast(to))

    return lower


rule("any.default", "any.dim", "any.dims")(_truth_reduction("any"))
rule("all.default", "all.dim", "all.dims")(_truth_reduction("all"))


@rule("var.correction", "var.dim", "var.default")
def _var(
    low: Lowering, node: fx.Node, x: Any, dims: Any = None, *rest: Any, correction: Any = None, keepdim: bool = False
) -> View:
    return _variance(low, node, x, dims, rest, correction, keepdim, root=False)


@rule("std.correction")
def _std(
    low: Lowering, node: fx.Node, x: Any, dims: Any = None, *, correction: Any = None, keepdim: bool = False
) -> View:
    return _variance(low, node, x, dims, (), correction, keepdim, root=True)


def _variance(
    low: Lowering,
    node: fx.Node,
    x: Any,
    dims: Any,
    rest: tuple[Any, ...],
    correction: Any,
    keepdim: bool,
    root: bool,
) -> View:
    if rest or isinstance(dims, bool):
        raise NotLowered("the old unbiased flag")
    return _moments(low, x, dims, correction, node.name, node.meta["val"], root, keepdim)[1]


def _accumulated(val: Any, root: bool) -> str:
    """What squared differences are summed in. Those of a standard deviation may be out of float32's range where it is
    not: of numbers past 1e19, or below 1e-19.
    """
    dtype = compute_dtype(dtype_name(val.dtype))
    return "float64" if root and dtype == "float32" and val.dtype is not torch.float16 else dtype


def _spread(freedom: Float, root: bool) -> Callable[[V], V]:
    return lambda s: (s / freedom).do("sqrt") if root else s / freedom


def _moments(
    low: Lowering, x: Any, dims: Any, correction: Any, name: str, val: torch.Tensor, root: bool, keepdim: bool
) -> tuple[View, View]:
    """The mean with its dimensions kept, and the variance, or its root: the FX value ``val``."""
    to, over = _accumulated(val, root), normalize_dims(dims, len(x.shape))
    count = count_of(x.shape, over)
    freedom = count - (1 if correction is None else correction)
    if count == 0:
        raise NotLowered("the mean of nothing")
    if isinstance(freedom, float):
        if freedom <= 0:
            raise NotLowered("too few elements: eager's NaN or inf")
    elif whole_number(freedom) is None:
        raise NotLowered("a correction that is no whole number")
    else:
        freedom = maximum(freedom, 0)
    strides, dtype = _with_dims(val, over, keepdim), dtype_name(val.dtype)
    mean, spread = moments(low, x, over, to, name, _spread(freedom, root), name, dtype, strides)
    return mean, View(spread.buffer, *layout_of(val))


def _with_mean(root: bool) -> Callable[..., Any]:
    def lower(
        low: Lowering, node: fx.Node, x: Any, dims: Any = None, *, correction: Any = None, keepdim: bool = False
    ) -> Any:
        spread, middle = node.meta["val"]
        mean, y = _moments(low, x, dims, correction, node.name, spread, root, keepdim)
        return y, low.cast_like(mean, middle)

    return lower


rule("var_mean.correction")(_with_mean(root=False))
rule("std_mean.correction")(_with_mean(root=True))


@rule("logsumexp")
def _logsumexp(low: Lowering, node: fx.Node, x: Any, dims: Any, keepdim: bool = False) -> View:
    to = compute_dtype(dtype_name(node.meta["val"].dtype))
    over = normalize_dims(dims, len(x.shape))
    if not over or any(x.shape[d] == 0 for d in over) or not is_float(to):
        raise NotLowered("nothing to reduce")
    top = low.reduce("max", [x], over, lambda v: v.cast(to), name=f"{node.name}_max", dtype=to)

    def shift(m: V) -> V:  # a row of infinities keeps its sign
        return where(m.do("isinf"), 0, m)

    total = low.reduce(
        "sum", [x, top], over, lambda v, m: exp(v.cast(to) - shift(m)), name=f"{node.name}_sum", dtype=to
    )
    val = node.meta["val"]
    kept = tuple(1 if d in over else size for d, size in enumerate(x.shape))
    y = low.map(lambda s, m: log(s) + shift(m), [total, top], shape=kept, dtype=dtype_name(val.dtype), name=node.name)
    return low.cast_like(y, val)


@rule("linalg_vector_norm")
def _vector_norm(
    low: Lowering, node: fx.Node, x: Any, order: Any = 2, dims: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> View:
    to = compute_dtype(dtype_name(node.meta["val"].dtype))
    over = normalize_dims(dims, len(x.shape))
    if not is_float(low.dtype(x)) or (order in (math.inf, -math.inf) and any(x.shape[d] == 0 for d in over)):
        raise NotLowered("a norm of other numbers, or of none")

    def size(v: V) -> V:
        return v.cast(to).do("abs")

    kinds: dict[Any, tuple[str, Callable[[V], V], Callable[[V], V]]] = {
        0: ("sum", lambda v: truth(v).cast(to), lambda s: s),
        1: ("sum", size, lambda s: s),
        2: ("sum", lambda v: v.cast(to) * v.cast(to), lambda s: s.do("sqrt")),
        math.inf: ("max", size, lambda s: s),
        -math.inf: ("min", size, lambda s: s),
    }
    power = ("sum", lambda v: size(v).do("pow", order), lambda s: s.do("pow", 1.0 / order))
    kind, element, post = kinds.get(order, power)
    return to_node(low, node, kind, [x], over, keepdim, element, post)


@rule("count_nonzero.dim_IntList", "count_nonzero")
def _count_nonzero(low: Lowering, node: fx.Node, x: Any, dims: Any = None) -> View:
    over = normalize_dims(dims, len(x.shape))
    return to_node(low, node, "sum", [x], over, False, lambda v: truth(v).cast("int64"))


@rule("nansum")
def _nansum(
    low: Lowering, node: fx.Node, x: Any, dims: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> View:
    to = compute_dtype(dtype_name(node.meta["val"].dtype))

    def element(v: V) -> V:
        return (where(v.do("isnan"), 0, v) if is_float(v.dtype) else v).cast(to)

    return to_node(low, node, "sum", [x], normalize_dims(dims, len(x.shape)), keepdim, element)


@rule("aminmax")
def _aminmax(low: Lowering, node: fx.Node, x: Any, *, dim: Any = None, keepdim: bool = False) -> Any:
    over = normalize_dims(dim, len(x.shape))
    if any(x.shape[d] == 0 for d in over):
        raise NotLowered("no elements: eager raises")
    pair = [
        low.reduce(kind, [x], over, name=f"{node.name}_{kind}", dtype=low.dtype(x)) for kind in ("min", "max")
    ]  # fmt: skip
    return tuple(low.cast_like(v, val) for v, val in zip(pair, node.meta["val"]))


def _place_of(kind: str, low: Lowering, x: Any, dim: int, name: str) -> tuple[View, View]:
    """The extremum along ``dim`` and its first place, both with the dimension kept: two passes that vectorize."""
    length = x.shape[dim]
    if not at_least(length, 1) or hint(length) > MOST_PLACES:
        raise NotLowered("no elements: eager raises; or too many")
    dtype = compute_dtype(low.dtype(x))
    if dtype == "bool" or not isinstance(x, View):
        raise NotLowered("the first of equal truths")
    best = low.reduce(kind, [x], [dim], name=f"{name}_{kind}", dtype=low.dtype(x))
    rank = len(x.shape)

    stored = low.dtype(x)
    places = "int32" if at_most(length, MOST_PLACES) else "int64"

    def place(counters: Sequence[V], v: V, m: V) -> V:
        if stored != dtype:  # the best may have been rounded for memory since, or these not yet
            v, m = v.cast(stored).cast(dtype), m.cast(stored).cast(dtype)
        same = v.do("eq", m)
        if is_float(v.dtype):
            same = same.do("or", v.do("isnan").do("and", m.do("isnan")))
        here = v.body.index(tuple(int(k == dim) for k in range(rank)), 0, places)
        return where(same, here, length - 1)

    found = low.reduce("min", [x, best], [dim], place, lambda p: p.cast("int64"), name=f"{name}_place", indexed=True)
    return best, found


def _argument_of(kind: str) -> Callable[..., View]:
    def lower(low: Lowering, node: fx.Node, x: Any, dim: Any = None, keepdim: bool = False) -> View:
        if dim is None and isinstance(x, View) and x.strides == contiguous(x.shape):
            x, dim = View(x.buffer, (product(x.shape),), (1,), x.offset), 0
        if dim is None or not x.shape:
            raise NotLowered("the place in the flat tensor")
        _, found = _place_of(kind, low, x, dim % len(x.shape), node.name)
        return low.cast_like(found, node.meta["val"])

    return lower


rule("argmax")(_argument_of("max"))
rule("argmin")(_argument_of("min"))


def _extremum_and_place(kind: str) -> Callable[..., Any]:
    def lower(low: Lowering, node: fx.Node, x: Any, dim: int, keepdim: bool = False) -> Any:
        if not x.shape:
            raise NotLowered("a single number")
        pair = _place_of(kind, low, x, dim % len(x.shape), node.name)
        return tuple(low.cast_like(v, val) for v, val in zip(pair, node.meta["val"]))

    return lower


rule("max.dim")(_extremum_and_place("max"))
rule("min.dim")(_extremum_and_place("min"))


# -- softmax ---------------------------------------------------------------------------------------------------------
def _float_to(node: fx.Node) -> str:
    to = compute_dtype(dtype_name(node.meta["val"].dtype))
    if not is_float(to):
        raise NotLowered("softmax of integers")
    return to


def _exponentials(low: Lowering, x: Any, dim: int, to: str, name: str) -> tuple[View, View]:
    """The largest number of each line, and e to the power of all less that."""
    top = low.reduce("max", [x], [dim], lambda v: v.cast(to), name=f"{name}_max", dtype=to)
    e = low.map(lambda v, m: exp(v.cast(to) - m), [x, top], name=f"{name}_exp", dtype=to, strides=_strides(low, x))
    return top, e


@rule("_softmax")
def _softmax(low: Lowering, node: fx.Node, x: Any, dim: int, half_to_float: bool = False) -> View:
    to, n = _float_to(node), node.name
    _, e = _exponentials(low, x, dim, to, n)
    share = low.reduce("sum", [e], [dim], post=lambda s: 1.0 / s, name=f"{n}_share", dtype=to)
    return low.finish(lambda v, s: v * s, [e, share], node)


@rule("_safe_softmax")
def _safe_softmax(low: Lowering, node: fx.Node, x: Any, dim: int, dtype: Any = None) -> View:
    to, n = _float_to(node), node.name
    top, e = _exponentials(low, x, dim, to, n)
    total = low.reduce("sum", [e], [dim], name=f"{n}_sum", dtype=to)
    # a row of -inf alone is all zeros here, NaN in plain softmax
    return low.finish(lambda v, s, m: where(m.do("eq", float("-inf")), 0.0, v / s), [e, total, top], node)


@rule("_log_softmax")
def _log_softmax(low: Lowering, node: fx.Node, x: Any, dim: int, half_to_float: bool = False) -> View:
    to, n = _float_to(node), node.name
    top, total = top_and_total(low, x, dim, to, n, log, f"{n}_lse")
    return low.finish(lambda v, m, s: v.cast(to) - m - s, [x, top, total], node)


@rule("_softmax_backward_data")
def _softmax_backward(low: Lowering, node: fx.Node, grad: Any, y: Any, dim: int, input_dtype: Any = None) -> View:
    to = _float_to(node)
    dot = low.reduce("sum", [grad, y], [dim], lambda g, v: g.cast(to) * v.cast(to), name=f"{node.name}_dot", dtype=to)
    return low.finish(lambda g, v, d: (g.cast(to) - d) * v.cast(to), [grad, y, dot], node)


@rule("_log_softmax_backward_data")
def _log_softmax_backward(low: Lowering, node: fx.Node, grad: Any, y: Any, dim: int, input_dtype: Any = None) -> View:
    to = _float_to(node)
    total = low.reduce("sum", [grad], [dim], lambda g: g.cast(to), name=f"{node.name}_sum", dtype=to)
    return low.finish(lambda g, v, s: g.cast(to) - exp(v.cast(to)) * s, [grad, y, total], node)


def _strides(low: Lowering, x: Any) -> tuple[Size, ...] | None:
    """A full-size intermediate keeps its input's layout when that is dense, so that loops walk memory in order."""
    if isinstance(x, View) and is_dense(x.shape, x.strides) and x.buffer in low.buffers:
        ordered = sorted(range(len(x.shape)), key=lambda k: hint(x.strides[k]))
        step: Size = 1
        out: list[Size] = [0] * len(x.shape)
        for k in ordered:
            out[k] = step
            step = step * x.shape[k]
        return tuple(out)
    return None
