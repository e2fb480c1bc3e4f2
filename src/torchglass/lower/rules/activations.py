"""Activations and their backwards, element by element.

``silu_backward(grad, x)`` is ``grad * s * (1 + x * (1 - s))`` with ``s = sigmoid(x)``; formulas are those of ATen's CPU
kernels, so that special values come out alike.
"""

from __future__ import annotations

import math
from typing import Any

from torch import fx

from ...records.loops import View
from ...records.symbolic_ints import sizes_of
from ..context import Lowering
from ..table import NotLowered, rule
from ..values import Number, V, absolute, clamp_max, clamp_min, exp, is_float, ndtr, sigmoid, tanh, where
from .pointwise import pointwise


@pointwise("relu")
def _relu(x: V) -> V:
    return clamp_min(x, 0)


@pointwise("threshold_backward")
def _threshold_backward(grad: V, x: V, threshold: Number) -> V:
    return where(x <= threshold, 0, grad)


@pointwise("leaky_relu")
def _leaky_relu(x: V, slope: Number = 0.01) -> V:
    return where(x > 0, x, x * slope)


@pointwise("leaky_relu_backward")
def _leaky_relu_backward(grad: V, x: V, slope: Number, is_result: bool) -> V:
    return where(x > 0, grad, grad * slope)


@pointwise("elu")
def _elu(x: V, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> V:
    return where(x <= 0, x.do("mul", input_scale).do("expm1") * (alpha * scale), x * scale)


@pointwise("gelu")
def _gelu(x: V, approximate: str = "none") -> V:
    if approximate == "none":
        return x * ndtr(x)
    return 0.5 * x * (1 + tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


@pointwise("gelu_backward")
def _gelu_backward(grad: V, x: V, approximate: str = "none") -> V:
    if approximate == "none":
        return grad * (ndtr(x) + x * (exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))))
    beta, kappa = math.sqrt(2 / math.pi), 0.044715
    t = tanh(beta * (x + kappa * x * x * x))
    return grad * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * (beta * (1 + 3 * kappa * x * x)))


@pointwise("silu")
def _silu(x: V) -> V:
    return x * sigmoid(x)


@pointwise("silu_backward")
def _silu_backward(grad: V, x: V) -> V:
    s = sigmoid(x)
    return grad * s * (1 + x * (1 - s))


@pointwise("sigmoid_backward")
def _sigmoid_backward(grad: V, y: V) -> V:
    return grad * (1 - y) * y


@pointwise("tanh_backward")
def _tanh_backward(grad: V, y: V) -> V:
    return grad * (1 - y * y)


@pointwise("softplus")
def _softplus(x: V, beta: Number = 1, threshold: Number = 20) -> V:
    scaled = x * beta
    return where(scaled > threshold, x, exp(scaled).do("log1p") / beta)


@pointwise("softplus_backward")
def _softplus_backward(grad: V, x: V, beta: Number, threshold: Number) -> V:
    scaled = x * beta
    return where(scaled > threshold, grad, grad * sigmoid(scaled))


@pointwise("hardtanh")
def _hardtanh(x: V, low: Number = -1, high: Number = 1) -> V:
    return clamp_max(clamp_min(x, low), high)


@pointwise("hardtanh_backward")
def _hardtanh_backward(grad: V, x: V, low: Number, high: Number) -> V:
    return where((x <= low).do("or", x >= high), 0, grad)


@pointwise("hardsigmoid")
def _hardsigmoid(x: V) -> V:
    return clamp_max(clamp_min(x + 3, 0), 6) / 6


@pointwise("hardswish")
def _hardswish(x: V) -> V:
    return x * clamp_max(clamp_min(x + 3, 0), 6) / 6


@pointwise("mish")
def _mish(x: V) -> V:
    return x * tanh(_softplus(x))


@pointwise("elu_backward")
def _elu_backward(grad: V, alpha: Number, scale: Number, input_scale: Number, is_result: bool, x: V) -> V:
    if is_result:
        return where(x <= 0, grad * input_scale * (x + alpha * scale), grad * scale)
    return where(x <= 0, grad * (input_scale * alpha * scale) * exp(x * input_scale), grad * scale)


@pointwise("celu")
def _celu(x: V, alpha: Number = 1) -> V:
    return where(x <= 0, (x * (1 / alpha)).do("expm1") * alpha, x)


@pointwise("threshold")
def _threshold(x: V, threshold: Number, value: Number) -> V:
    return where(x <= threshold, value, x)


@pointwise("hardswish_backward")
def _hardswish_backward(grad: V, x: V) -> V:
    return where(x <= -3, 0, where(x < 3, grad * (x / 3 + 0.5), grad))


@pointwise("hardsigmoid_backward")
def _hardsigmoid_backward(grad: V, x: V) -> V:
    sixth = 0.1666666716337204  # float32's, which ATen takes for float64 too
    return where((x > -3).do("and", x < 3), grad * sixth, 0)


@pointwise("mish_backward")
def _mish_backward(grad: V, x: V) -> V:
    t = tanh(exp(x).do("log1p"))
    return grad * (t + x * sigmoid(x) * (1 - t * t))


@pointwise("softshrink")
def _softshrink(x: V, lambd: Number = 0.5) -> V:
    return where(x > lambd, x - lambd, where(x < -lambd, x + lambd, where(x.do("isnan"), x, 0)))


@pointwise("hardshrink", jumps=True)
def _hardshrink(x: V, lambd: Number = 0.5) -> V:
    return _outside(x, lambd, x)


@pointwise("softshrink_backward", "hardshrink_backward", jumps=True)
def _shrink_backward(grad: V, x: V, lambd: Number) -> V:
    return _outside(x, lambd, grad)


def _outside(x: V, lambd: Number, y: V) -> V:
    """``y`` where ``x`` is farther from 0 than ``lambd``."""
    return where((x >= -lambd).do("and", x <= lambd), 0, y)


@pointwise("_prelu_kernel")
def _prelu(x: V, weight: V) -> V:
    return where(x > 0, x, x * weight)


@rule("log_sigmoid_backward")
def _log_sigmoid_backward(low: Lowering, node: fx.Node, grad: Any, x: Any, buffer: Any) -> View:
    """``sigmoid(-x)``, by ``exp(-|x|)``, since ``1 - sigmoid(x)`` cancels. What forward kept is not read: on a GPU it
    keeps nothing.
    """

    def slope(v: V) -> V:
        z = exp(-absolute(v))
        share = z / (1 + z)
        return where(v < 0, 1 - share, share)

    return low.finish(lambda g, v: g * slope(v), [grad, x], node)


@rule("log_sigmoid_forward")
def _log_sigmoid(low: Lowering, node: fx.Node, x: Any) -> Any:
    """``(log_sigmoid(x), exp(-|x|))``: the second is what ATen's backward would read."""
    result, buffer = node.meta["val"]
    if not is_float(low.dtype(x)) or not isinstance(x, View):
        raise NotLowered("no floats in memory")
    strides = sizes_of(result.stride())
    y = low.map(
        lambda v: v.do("minimum", 0) - exp(-absolute(v)).do("log1p"), [x], dtype=low.dtype(x), strides=strides,
        name=node.name,
    )  # fmt: skip
    if 0 in sizes_of(buffer.shape):
        raise NotLowered("no buffer")
    kept = low.map(lambda v: exp(-absolute(v)), [x], dtype=low.dtype(x), strides=strides, name=f"{node.name}_buffer")
    return y, kept


@rule("glu")
def _glu(low: Lowering, node: fx.Node, x: Any, dim: int = -1) -> View:
    a, b = _halves(x, dim)
    return low.finish(lambda u, v: u * sigmoid(v), [a, b], node)


def _halves(x: Any, dim: int) -> tuple[View, View]:
    if not isinstance(x, View):
        raise NotLowered("a repeated number")
    dim = dim % len(x.shape)
    half = x.shape[dim] // 2
    shape = (*x.shape[:dim], half, *x.shape[dim + 1 :])
    return View(x.buffer, shape, x.strides, x.offset), View(
        x.buffer, shape, x.strides, x.offset + half * x.strides[dim]
    )
