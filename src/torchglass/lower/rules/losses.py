"""Losses and their backwards: one loop over the elements, reduced as asked.

``mse_loss(x, y, mean)`` is ``sum((x - y)**2) / n``; its backward ``(x - y) * grad * (2 / n)``. ``reduction`` is 0 for
none, 1 for the mean, 2 for the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from ...records.loops import View, compute_dtype
from ...records.size_floats import Float, maximum
from ...records.symbolic_ints import sizes_of
from ..context import Lowering, Splat, count_of, dtype_name
from ..strides import broadcast
from ..table import NotLowered, rule
from ..values import V, absolute, exp, is_float, where
from .gathering import INDEX_TARGET, bounded, picked

NONE, MEAN, SUM = 0, 1, 2


def _in(to: str, fn: Callable[..., V]) -> Callable[..., V]:
    """``fn`` of values that are converted to ``to``."""
    return lambda *values: fn(*(v.cast(to) if isinstance(v, V) else v for v in values))


def _reduced(low: Lowering, node: fx.Node, inputs: list[Any], reduction: int, fn: Callable[..., V]) -> View:
    """``fn`` of every element, or the sum or mean of that."""
    to = compute_dtype(dtype_name(node.meta["val"].dtype))
    if not is_float(to):
        raise NotLowered("a loss of integers")

    element = _in(to, fn)
    if reduction == NONE:
        return low.finish(element, inputs, node)
    shape = broadcast(*(x.shape for x in inputs if x is not None))
    scale = count_of(shape) if reduction == MEAN else 1
    if scale == 0:
        raise NotLowered("no elements")
    out = low.reduce(
        "sum", inputs, list(range(len(shape))), element, lambda s: s / scale if scale != 1 else s,
        shape=shape, dtype=dtype_name(node.meta["val"].dtype), name=node.name,
    )  # fmt: skip
    return View(out.buffer, (), ())


def _norm(x: View, reduction: int) -> Float:
    return 1.0 / maximum(count_of(x.shape), 1) if reduction == MEAN else 1.0


def _gradient(low: Lowering, node: fx.Node, inputs: list[Any], fn: Callable[..., V]) -> View:
    return low.finish(_in(compute_dtype(dtype_name(node.meta["val"].dtype)), fn), inputs, node)


@rule("mse_loss")
def _mse(low: Lowering, node: fx.Node, x: Any, y: Any, reduction: int = MEAN) -> View:
    return _reduced(low, node, [x, y], reduction, lambda a, b: (a - b) * (a - b))


@rule("mse_loss_backward")
def _mse_backward(low: Lowering, node: fx.Node, grad: Any, x: Any, y: Any, reduction: int) -> View:
    scale = 2 * _norm(x, reduction)
    return _gradient(low, node, [grad, x, y], lambda g, a, b: (a - b) * scale * g)


@rule("smooth_l1_loss")
def _smooth_l1(low: Lowering, node: fx.Node, x: Any, y: Any, reduction: int = MEAN, beta: float = 1.0) -> View:
    if beta == 0:
        return _reduced(low, node, [x, y], reduction, lambda a, b: absolute(a - b))

    def loss(a: V, b: V) -> V:
        z = absolute(a - b)
        return where(z < beta, z * 0.5 * z / beta, z - 0.5 * beta)

    return _reduced(low, node, [x, y], reduction, loss)


@rule("smooth_l1_loss_backward")
def _smooth_l1_backward(low: Lowering, node: fx.Node, grad: Any, x: Any, y: Any, reduction: int, beta: float) -> View:
    n = _norm(x, reduction)
    if beta == 0:
        raise NotLowered("the sign alone")

    def slope(g: V, a: V, b: V) -> V:
        d = a - b
        return where(d <= -beta, g * -n, where(d >= beta, g * n, d * n * g / beta))

    return _gradient(low, node, [grad, x, y], slope)


@rule("huber_loss")
def _huber(low: Lowering, node: fx.Node, x: Any, y: Any, reduction: int = MEAN, delta: float = 1.0) -> View:
    def loss(a: V, b: V) -> V:
        z = absolute(a - b)
        return where(z < delta, z * 0.5 * z, (z - 0.5 * delta) * delta)

    return _reduced(low, node, [x, y], reduction, loss)


@rule("huber_loss_backward")
def _huber_backward(low: Lowering, node: fx.Node, grad: Any, x: Any, y: Any, reduction: int, delta: float) -> View:
    n = _norm(x, reduction)

    def slope(g: V, a: V, b: V) -> V:
        d = a - b
        return where(d <= -delta, g * (-n * delta), where(d >= delta, g * (n * delta), d * n * g))

    return _gradient(low, node, [grad, x, y], slope)


@rule("soft_margin_loss")
def _soft_margin(low: Lowering, node: fx.Node, x: Any, y: Any, reduction: int = MEAN) -> View:
    return _reduced(low, node, [x, y], reduction, lambda a, b: exp(-b * a).do("log1p"))


@rule("binary_cross_entropy_with_logits")
def _bce_with_logits(
    low: Lowering, node: fx.Node, x: Any, y: Any, weight: Any = None, pos_weight: Any = None, reduction: int = MEAN
) -> View:
    def loss(a: V, t: V, w: V | None, p: V | None) -> V:
        softplus = exp(-absolute(a)).do("log1p") + (-a).do("maximum", 0)
        result = (1 - t) * a + softplus if p is None else (1 - t) * a + (1 + (p - 1) * t) * softplus
        return result if w is None else result * w

    return _reduced(low, node, [x, y, weight, pos_weight], reduction, loss)


# -- class numbers ---------------------------------------------------------------------------------------------------
def _checked(target: V, classes: int, ignored: int) -> tuple[V, V]:
    """The class to look at (0 where it is ignored), and whether it counts."""
    counts = target.do("ne", ignored)
    return bounded(where(counts, target, 0), classes, INDEX_TARGET), counts


def _classes(low: Lowering, x: Any, target: Any) -> None:
    """NotLowered unless ``target`` has class numbers for the rows of ``x``: (N, C) and (N), or with further sizes."""
    if not isinstance(x, View) or not isinstance(target, View) or low.dtype(target) != "int64" or 0 in x.shape:
        raise NotLowered("targets of another kind")
    if len(x.shape) < 2 or (x.shape[0], *x.shape[2:]) != target.shape:
        raise NotLowered("a single row")


def _weight_of(low: Lowering, weight: Any, label: V, rank: int, to: str) -> V | None:
    """The class weight, for a label that is in range."""
    return None if weight is None else picked(low, low.view(weight), 0, label, rank, [0]).cast(to)


@rule("nll_loss_forward", "nll_loss2d_forward")
def _nll(low: Lowering, node: fx.Node, x: Any, target: Any, weight: Any, reduction: int, ignored: int) -> Any:
    """Losses of rows of log-probabilities, and what the mean divides by."""
    _classes(low, x, target)
    vals, n, rank = node.meta["val"], node.name, len(target.shape)
    to = compute_dtype(low.dtype(x))
    at = [0, 0, *range(1, rank)]

    def loss(t: V) -> V:
        label, counts = _checked(t, x.shape[1], ignored)
        w = _weight_of(low, weight, label, rank, to)
        lost = -picked(low, x, 1, label, rank, at).cast(to)
        return where(counts, lost if w is None else lost * w, 0)

    def share(t: V) -> V:
        label, counts = _checked(t, x.shape[1], ignored)
        w = _weight_of(low, weight, label, rank, to)
        return counts.cast("int64") if w is None else where(counts, w, 0)

    if reduction == NONE:
        return low.map_like(vals[0], n, loss, [target]), Splat(0.0, dtype_name(vals[1].dtype), ())
    dims = list(range(rank))
    total = low.reduce("sum", [target], dims, loss, name=f"{n}_sum", dtype=to)
    counted = low.reduce(
        "sum", [target], dims, share, lambda s: s.cast(to), name=f"{n}_weight", dtype=dtype_name(vals[1].dtype)
    )
    total, counted = (View(v.buffer, (), ()) for v in (total, counted))
    return low.map_like(vals[0], n, lambda s, c: s / c if reduction == MEAN else s, [total, counted]), counted


@rule("nll_loss_backward", "nll_loss2d_backward")
def _nll_backward(
    low: Lowering, node: fx.Node, grad: Any, x: Any, target: Any, weight: Any, reduction: int, ignored: int, total: Any
) -> View:
    shape = sizes_of(node.meta["val"].shape)
    to = compute_dtype(dtype_name(node.meta["val"].dtype))
    _classes(low, x, target)

    def by_row(v: Any) -> Any:  # one dimension more, for the classes
        return View(v.buffer, (v.shape[0], 1, *v.shape[1:]), (v.strides[0], 0, *v.strides[1:]), v.offset)

    if isinstance(grad, View) and grad.shape:
        grad = by_row(grad)
    along = None if weight is None else low.view(weight)
    if along is not None:
        ones = (1,) * (len(shape) - 2)
        along = View(along.buffer, (1, shape[1], *ones), (0, along.strides[0], *ones), along.offset)

    def slope(counters: list[V], g: V, t: V, w: V | None, c: V | None) -> V:
        here = counters[1].do("eq", t).do("and", t.do("ne", ignored))
        g = -g.cast(to)
        g = g if w is None else g * w.cast(to)
        return where(here, g if c is None else g / c.cast(to), 0)

    return low.finish(slope, [grad, by_row(target), along, total if reduction == MEAN else None], node, indexed=True)


@rule("binary_cross_entropy_backward")
def _bce_backward(
    low: Lowering, node: fx.Node, grad: Any, x: Any, y: Any, weight: Any = None, reduction: int = MEAN
) -> View:
    n = _norm(x, reduction)

    def slope(g: V, a: V, t: V, w: V | None) -> V:
        d = g * (a - t) / ((1 - a) * a).do("maximum", 1e-12)
        d = d if w is None else d * w
        return d if n == 1.0 else d * n

    return _gradient(low, node, [grad, x, y, weight], slope)
