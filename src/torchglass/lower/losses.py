"""Losses and their backwards: one loop over the elements, reduced as asked.

``mse_loss(x, y, mean)`` is ``sum((x - y)**2) / n``; its backward ``(x - y) * grad * (2 / n)``. ``reduction`` is 0 for
none, 1 for the mean, 2 for the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from ..records.loops import View, product
from .context import Lowering, broadcast, dtype_name, sizes_of
from .gathering import INDEX_TARGET, bounded, picked
from .reductions import count_of
from .table import NotLowered, rule
from .values import V, absolute, compute_dtype, exp, is_float, where

NONE, MEAN, SUM = 0, 1, 2


def _reduced(low: Lowering, node: fx.Node, inputs: list[Any], reduction: int, fn: Callable[..., V]) -> View:
    """``fn`` of every element, or the sum or mean of that."""
    to = compute_dtype(dtype_name(node.meta["val"].dtype))
    if not is_float(to):
        raise NotLowered("a loss of integers")

    def element(*values: V) -> V:
        return fn(*(v.cast(to) if isinstance(v, V) else v for v in values))

    if reduction == NONE:
        return low.finish(element, inputs, node)
    shape = broadcast(*(x.shape for x in inputs if x is not None))
    scale = count_of(product(shape)) if reduction == MEAN else 1
    if scale == 0:
        raise NotLowered("no elements")
    out = low.reduce(
        "sum", inputs, list(range(len(shape))), element, lambda s: s / scale if scale != 1 else s,
        shape=shape, dtype=dtype_name(node.meta["val"].dtype), name=node.name,
    )  # fmt: skip
    return View(out.buffer, (), ())


def _norm(x: View, reduction: int) -> float:
    return 1.0 / max(count_of(product(x.shape)), 1) if reduction == MEAN else 1.0


def _gradient(low: Lowering, node: fx.Node, inputs: list[Any], fn: Callable[..., V]) -> View:
    to = compute_dtype(dtype_name(node.meta["val"].dtype))
    return low.finish(lambda *values: fn(*(v.cast(to) if isinstance(v, V) else v for v in values)), inputs, node)


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


@rule("nll_loss_forward")
def _nll(low: Lowering, node: fx.Node, x: Any, target: Any, weight: Any, reduction: int, ignored: int) -> Any:
    """Losses of rows of log-probabilities, and what the mean divides by."""
    vals = node.meta["val"]
    to = compute_dtype(low.dtype(x))
    if reduction == NONE or weight is not None or not isinstance(x, View) or len(x.shape) != 2:
        raise NotLowered("no sum over rows")
    if not isinstance(target, View) or low.dtype(target) != "int64" or 0 in x.shape:
        raise NotLowered("targets of another kind")

    def loss(t: V) -> V:
        label, counts = _checked(t, x.shape[1], ignored)
        return where(counts, -picked(low, x, 1, label, 1).cast(to), 0)

    n = node.name
    total = low.reduce("sum", [target], [0], loss, name=f"{n}_sum", dtype=to)
    counted = low.reduce(
        "sum", [target], [0], lambda t: t.do("ne", ignored).cast("int64"), lambda s: s.cast(to), name=f"{n}_weight",
        dtype=dtype_name(vals[1].dtype),
    )  # fmt: skip
    total, counted = (View(v.buffer, (), ()) for v in (total, counted))
    result = low.map(
        lambda s, c: s / c if reduction == MEAN else s, [total, counted], shape=(), dtype=dtype_name(vals[0].dtype),
        name=n,
    )  # fmt: skip
    return result, counted


@rule("nll_loss_backward")
def _nll_backward(
    low: Lowering, node: fx.Node, grad: Any, x: Any, target: Any, weight: Any, reduction: int, ignored: int, total: Any
) -> View:
    shape = sizes_of(node.meta["val"].shape)
    to = compute_dtype(dtype_name(node.meta["val"].dtype))
    if weight is not None or len(shape) != 2 or not isinstance(target, View) or low.dtype(target) != "int64":
        raise NotLowered("weights")
    labels = View(target.buffer, (shape[0], 1), (target.strides[0], 0), target.offset)
    if isinstance(grad, View) and len(grad.shape) == 1:
        grad = View(grad.buffer, (shape[0], 1), (grad.strides[0], 0), grad.offset)

    def slope(counters: list[V], g: V, t: V, c: V | None) -> V:
        here = counters[1].do("eq", t).do("and", t.do("ne", ignored))
        g = -g.cast(to)
        return where(here, g if c is None else g / c.cast(to), 0)

    return low.finish(slope, [grad, labels, total if reduction == MEAN else None], node, indexed=True)
