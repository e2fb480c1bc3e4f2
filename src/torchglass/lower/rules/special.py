"""Element-wise functions beyond arithmetic: of infinities and signs, logarithms of sums, what `torch.special` has.

``aten.nan_to_num`` on float32 is one loop: load, isnan, where, two comparisons, store.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ...records.loops import HALF, View, compute_dtype
from ...records.sizes import all_known
from ..context import Lowering, dtype_name
from ..table import NotLowered, rule
from ..values import Number, V, absolute, exp, is_float, log, nearest, sin, where
from .pointwise import both, multiplied_and_added, pointwise


def _times_logarithm(logarithm: str) -> Callable[..., V]:
    """0 where the factor is, whatever the logarithm."""

    def element(x: V | Number, y: V | Number) -> V:
        x, y = both(x, y)
        return where(y.do("isnan"), y, where(x.do("eq", 0), 0, x * y.do(logarithm)))

    return element


pointwise("xlogy")(_times_logarithm("log"))
pointwise("special_xlog1py")(_times_logarithm("log1p"))


@pointwise("atan2")
def _atan2(x: V, y: V) -> V:
    return x.do("atan2", y)


@pointwise("sinc")
def _sinc(x: V) -> V:
    return where(x.do("eq", 0), 1, sin(x * math.pi) / (x * math.pi))


@pointwise("logit", told=("stored",))
def _logit(x: V, eps: Number | None = None, *, stored: str) -> V:
    if eps is not None:
        low, high = _logit_bounds(eps, stored)
        x = x.do("maximum", low).do("minimum", high)
    return log(x / (1 - x))


def _logit_bounds(eps: Number | None, stored: str) -> tuple[Number, Number]:
    """``eps`` and ``1 - eps`` as the dtype holds them: the second is 1 for an ``eps`` that is small to a half float."""
    if eps is None:
        return 0, 1
    return eps, nearest(1 - eps, stored) if stored in HALF else 1 - eps


@rule("lgamma")
def _lgamma(low: Lowering, node: fx.Node, x: Any) -> View:
    """ATen's is vectors; the C library's, one number at a time, takes five times as long."""
    val = node.meta["val"]
    if not all_known(val.shape) or val.numel() > low.limits.gamma_numbers:
        raise NotLowered("the logarithm of the gamma function of many numbers")
    to = compute_dtype(dtype_name(val.dtype))
    return low.finish(lambda x: x.cast(to).do("lgamma"), [x], node)


@pointwise("deg2rad")
def _deg2rad(x: V) -> V:
    return x * (math.pi / 180)


@pointwise("rad2deg")
def _rad2deg(x: V) -> V:
    return x * (180 / math.pi)


# -- extremes, signs, sums of exponentials -----------------------------------------------------------------------------
@pointwise("lerp.Tensor")
def _lerp_tensor(x: V, y: V, weight: V) -> V:
    d = y - x
    near, far = multiplied_and_added(d, weight, x), multiplied_and_added(d, weight - 1, y)
    return where(absolute(weight) < 0.5, near, far)


def _numbers_extreme(of_integers: str, order: str, of_bfloat16: str) -> Callable[..., V]:
    """The extreme of two values that are numbers. Of 0.0 and -0.0 eager takes the first, but of bfloat16 the second."""

    def element(x: V, y: V, stored: str) -> V:
        if not is_float(stored):
            return x.do(of_integers, y)
        after = y.do(of_bfloat16 if stored == "bfloat16" else order, x)
        return where(after.do("or", x.do("isnan")), y, x)

    return element


pointwise("fmax", told=("stored",))(_numbers_extreme("maximum", "gt", "ge"))
pointwise("fmin", told=("stored",))(_numbers_extreme("minimum", "lt", "le"))


@pointwise("frac", jumps=True)
def _frac(x: V) -> V:
    return x - x.do("trunc")


def _log_of_sum(x: V, y: V, smaller: Callable[[V], V]) -> V:
    """The larger of two logarithms, and what ``smaller`` adds for the other, which lies so far below it."""
    top = x.do("maximum", y)
    equal_infinities = x.do("eq", y).do("and", x.do("isinf"))
    return where(equal_infinities, x, top + smaller(-absolute(x - y)))


@pointwise("logaddexp")
def _logaddexp(x: V, y: V) -> V:
    return _log_of_sum(x, y, lambda below: exp(below).do("log1p"))


@pointwise("isposinf", cast="none", jumps=True)
def _isposinf(x: V) -> V:
    return x.do("eq", math.inf) if is_float(x.dtype) else x.body.const(False, "bool")


@pointwise("isneginf", cast="none", jumps=True)
def _isneginf(x: V) -> V:
    return x.do("eq", -math.inf) if is_float(x.dtype) else x.body.const(False, "bool")


@pointwise("special_entr")
def _entr(x: V) -> V:
    return where(x.do("isnan"), x, where(x > 0, -x * log(x), where(x.do("eq", 0), 0, x.lift(-math.inf))))


@pointwise("copysign")
def _copysign(x: V, y: V | Number) -> V:
    return x.do("copysign", y)


@pointwise("hypot")
def _hypot(x: V, y: V) -> V:
    return x.do("hypot", y)


@rule("nextafter")
def _nextafter(low: Lowering, node: fx.Node, x: Any, y: Any) -> View:
    to = dtype_name(node.meta["val"].dtype)
    if to in HALF:
        raise NotLowered("the neighbour in half precision")
    return low.finish(lambda x, y: x.cast(to).do("nextafter", y.cast(to)), [x, y], node)


@pointwise("signbit", cast="none", jumps=True)
def _signbit(x: V) -> V:
    if x.dtype == "bool":
        return x.body.const(False, "bool")
    return x.lift(1).do("copysign", x) < 0 if is_float(x.dtype) else x < 0


@pointwise("heaviside", jumps=True)
def _heaviside(x: V, y: V) -> V:
    return where(x.do("eq", 0), y, (x > 0).cast(x.dtype))


@pointwise("logaddexp2")
def _logaddexp2(x: V, y: V) -> V:
    return _log_of_sum(x, y, lambda below: below.do("exp2").do("log1p") * (1 / math.log(2)))


@rule("nan_to_num")
def _nan_to_num(
    low: Lowering, node: fx.Node, x: Any, nan: Any = None, posinf: Any = None, neginf: Any = None
) -> View:  # fmt: skip
    dtype = node.meta["val"].dtype
    if not dtype.is_floating_point:
        return low.finish(lambda v: v, [x], node)
    top = torch.finfo(dtype).max if posinf is None else posinf
    bottom = torch.finfo(dtype).min if neginf is None else neginf

    def element(v: V) -> V:
        v = where(v.do("eq", math.inf), top, where(v.do("eq", -math.inf), bottom, v))
        return where(v.do("isnan"), 0.0 if nan is None else nan, v)

    return low.finish(element, [x], node)


@pointwise("angle")
def _angle(x: V) -> V:
    return where(x.do("isnan"), x, where(x < 0, x.lift(math.pi), x.lift(0)))


@pointwise("logit_backward", told=("stored",))
def _logit_backward(grad: V, x: V, eps: Number | None = None, *, stored: str) -> V:
    """As ATen's scalar kernel; its vectors differ in NaN and -0.0."""
    low, high = _logit_bounds(eps, stored)
    outside = (x < low).do("or", x > high)
    at_end = x.do("eq", 0).do("or", x.do("eq", 1))
    slope = where(at_end, grad * math.inf, grad / (x * (1 - x)))
    return where(outside, math.nan if eps is None else 0, slope)
