"""Element-wise operators: the rule says what happens to one element, the decorator does shapes, dtypes and promotion.

``aten.silu`` on float32 (512, 64) becomes one loop: load, sigmoid, mul, store. Inputs are converted to the dtype the
computation is done in (that of the result, float32 for the half floats); comparisons convert both sides to their
common dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from ...records.loops import View, compute_dtype
from ..context import Lowering, Splat, dtype_name
from ..table import NotLowered, add_rule
from ..values import Number, V, absolute, clamp_max, clamp_min, exp, fits, is_float, rsqrt, sqrt, where
from .creation import splat
from .integers import power, quotient, shift


def pointwise(
    *names: str, cast: str = "result", keep: Sequence[int] = (), jumps: bool = False, told: bool = False
) -> Callable[[Callable[..., V]], Callable[..., V]]:
    """Register an element-wise rule ``fn(*values) -> V``.

    ``cast``: convert tensor arguments to the dtype of the "result", to their common dtype ("operands"), or "none".
    Arguments whose positions are in ``keep`` are never converted. ``jumps``: nearly equal numbers give different
    results, so that half-precision operands are rounded as eager's are; comparisons do so, too. ``told``: the rule gets
    the result's own dtype as ``stored``, where eager does otherwise for a half than for the float32 it computes in.
    """
    exact = jumps or cast == "operands"

    def register(fn: Callable[..., V]) -> Callable[..., V]:
        def lower(low: Lowering, node: fx.Node, *args: Any, **kwargs: Any) -> View:
            to = _target_dtype(cast, node)
            kwargs = {
                k: v for k, v in kwargs.items() if k not in ("dtype", "layout", "device", "pin_memory", "memory_format")
            }
            extra = list(kwargs.items())
            more = {"stored": dtype_name(node.meta["val"].dtype)} if told else {}
            inexact = {k for k, x in enumerate(args) if exact and may_be_unrounded(low, x)}

            def element(*values: Any) -> V:
                values = tuple(rounded(v, low.dtype(args[k])) if k in inexact else v for k, v in enumerate(values))
                ready = [_ready(v, to, position not in keep) for position, v in enumerate(values)]
                plain, named = ready[: len(args)], dict(zip((k for k, _ in extra), ready[len(args) :]))
                result = fn(*plain, **named, **more)
                if not isinstance(result, V):
                    raise NotLowered("a rule that folds to a number")
                return result

            return low.finish(element, [*args, *(v for _, v in extra)], node)

        lower.elementwise = True  # type: ignore[attr-defined]
        for name in names:
            add_rule(name, lower)
        return fn

    return register


def may_be_unrounded(low: Lowering, x: Any) -> bool:
    """Whether a half-precision value may reach a reader as it was computed, before it was rounded for memory.

    Comparisons round it: the largest of some values, once stored, must be found among them again.
    """
    return isinstance(x, View) and compute_dtype(low.dtype(x)) != low.dtype(x) and low.buffers[x.buffer].role == "temp"


def rounded(value: V, dtype: str) -> V:
    return value.cast(dtype).cast(compute_dtype(dtype))


def _ready(value: Any, to: str | None, convert: bool) -> Any:
    if not isinstance(value, V) or to is None or not convert:
        return value
    return value.cast(to)


def _target_dtype(cast: str, node: fx.Node) -> str | None:
    if cast == "none":
        return None
    if cast == "result":
        return compute_dtype(dtype_name(node.meta["val"].dtype))
    return compute_dtype(dtype_name(common_dtype(node.args)))


def common_dtype(args: Sequence[Any]) -> torch.dtype:
    """torch's promotion of FX arguments: tensors with dimensions outrank those without, those outrank numbers."""
    ranks: list[torch.dtype | None] = [None, None, None]
    for arg in args:
        if isinstance(arg, fx.Node):
            val = arg.meta["val"]
            if not isinstance(val, torch.Tensor):
                raise NotLowered("a symbolic number among the operands")
            kind, dtype = (0 if val.dim() else 1), val.dtype
        elif isinstance(arg, (bool, int, float)):
            kind = 2
            dtype = (
                torch.bool
                if isinstance(arg, bool)
                else torch.int64
                if isinstance(arg, int)
                else torch.get_default_dtype()
            )
        else:
            continue
        known = ranks[kind]
        ranks[kind] = dtype if known is None else torch.promote_types(known, dtype)
    best: torch.dtype | None = None
    for candidate in ranks:
        if candidate is None:
            continue
        if best is None or _category(candidate) > _category(best):
            best = candidate
    assert best is not None
    return best


def _category(dtype: torch.dtype) -> int:
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 1 if dtype != torch.bool else 0


# -- arithmetic ------------------------------------------------------------------------------------------------------
def _scaled(y: V | Number, alpha: Number) -> V | Number:
    return y if alpha == 1 else y * alpha


@pointwise("add")
def _add(x: V, y: V | Number, alpha: Number = 1) -> V:
    if not isinstance(x, V):
        x = y.lift(x)
    if x.dtype == "bool":
        return x.do("or", y) if alpha else x
    return x + _scaled(y, alpha)


@pointwise("sub")
def _sub(x: V, y: V | Number, alpha: Number = 1) -> V:
    return x - _scaled(y, alpha)


@pointwise("rsub")
def _rsub(x: V, y: V | Number, alpha: Number = 1) -> V:
    return (y if isinstance(y, V) else x.lift(y)) - _scaled(x, alpha)


@pointwise("mul")
def _mul(x: V, y: V | Number) -> V:
    if not isinstance(x, V):
        x = y.lift(x)
    return x.do("and", y) if x.dtype == "bool" else x * y


@pointwise("div")
def _div(x: V | Number, y: V | Number, rounding_mode: str | None = None) -> V:
    x, y = both(x, y)
    if rounding_mode is None:
        return x / y
    if rounding_mode == "floor":
        return quotient(x, y, "floordiv")
    return quotient(x, y, "div") if not is_float(x.dtype) else (x / y).do("trunc")


@pointwise("floor_divide", jumps=True)
def _floor_divide(x: V | Number, y: V | Number) -> V:
    return quotient(*both(x, y), "floordiv")


@pointwise("remainder", jumps=True)
def _remainder(x: V | Number, y: V | Number) -> V:
    return quotient(*both(x, y), "mod")


@pointwise("fmod", jumps=True)
def _fmod(x: V | Number, y: V | Number) -> V:
    return quotient(*both(x, y), "fmod")


def both(x: V | Number, y: V | Number) -> tuple[V, V]:
    """Two operands, of which one may be a number, as values."""
    first = x if isinstance(x, V) else y
    assert isinstance(first, V)
    return first.lift(x), first.lift(y)


@pointwise("pow", told=True)
def _pow(x: V | Number, y: V | Number, stored: str) -> V:
    if not isinstance(x, V):
        assert isinstance(y, V)
        if not is_float(y.dtype):
            raise NotLowered("integer power")
        return exp(y * math.log(x)) if x == math.e else y.lift(x).do("pow", y)
    if isinstance(y, V):
        if not is_float(x.dtype):
            raise NotLowered("integer power")
        return x.do("pow", y)
    return _power_by_number(x, y, stored)


def _power_by_number(x: V, y: Number, stored: str) -> V:
    if not is_float(x.dtype):
        return power(x, y)
    if y in (1, 2, 3, 4):
        square = x * x
        return {1: x, 2: square, 3: square * x, 4: square * square}[int(y)]
    if y in (0.5, -0.5):
        root, of_infinity = (sqrt, math.inf) if y > 0 else (rsqrt, 0.0)
        if stored != "float16":
            return root(x)
        return where(x.do("eq", -math.inf), of_infinity, root(x + 0.0))  # eager takes powers: of -0. as of 0.
    if y == -1:
        return 1.0 / x
    if y == -2:
        return 1.0 / (x * x)
    return x.do("pow", y)


@pointwise("addcmul")
def _addcmul(x: V, a: V, b: V, value: Number = 1) -> V:
    return x + _scaled(a * b, value)


@pointwise("addcdiv")
def _addcdiv(x: V, a: V, b: V, value: Number = 1) -> V:
    return x + (value * a / b if value != 1 else a / b)


@pointwise("lerp.Scalar")
def _lerp(x: V, y: V, weight: Number) -> V:
    return x + weight * (y - x) if abs(weight) < 0.5 else y - (y - x) * (1 - weight)


@pointwise("maximum")
def _maximum(x: V, y: V) -> V:
    return x.do("maximum", y)


@pointwise("minimum")
def _minimum(x: V, y: V) -> V:
    return x.do("minimum", y)


# -- functions of one value ------------------------------------------------------------------------------------------
for _name in (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "sigmoid",
):  # fmt: skip
    pointwise(_name)(lambda x, _op=_name: x.do(_op))


@pointwise("neg")
@pointwise("_neg_view")  # in loops nothing is a view that negates as it is read
def _neg(x: V) -> V:
    return -x


@pointwise("abs")
def _abs(x: V) -> V:
    return absolute(x) if x.dtype not in ("bool", "uint8") else x


@pointwise("sign", "sgn", jumps=True)
def _sign(x: V) -> V:
    return x.do("sign") if x.dtype != "bool" else x


@pointwise("reciprocal")
def _reciprocal(x: V) -> V:
    return 1.0 / x


@pointwise("square")
def _square(x: V) -> V:
    return x * x


def _rounding(op: str) -> Callable[..., V]:
    return lambda x: x.do(op) if is_float(x.dtype) else x


for _name in ("floor", "ceil", "trunc"):
    pointwise(_name, jumps=True)(_rounding(_name))
pointwise("round.default", jumps=True)(_rounding("round"))


# -- limits -----------------------------------------------------------------------------------------------------------
def _fitting(x: V, *numbers: V | Number | None) -> None:
    if not all(fits(number, x.dtype) for number in numbers):
        raise NotLowered("a number that the dtype does not hold: eager raises")


@pointwise("clamp", "clip")
def _clamp(x: V, low: V | Number | None = None, high: V | Number | None = None) -> V:
    _fitting(x, low, high)
    if low is not None:
        x = clamp_min(x, low)
    return x if high is None else clamp_max(x, high)


@pointwise("clamp_min")
def _clamp_min(x: V, low: V | Number) -> V:
    _fitting(x, low)
    return clamp_min(x, low)


@pointwise("clamp_max")
def _clamp_max(x: V, high: V | Number) -> V:
    _fitting(x, high)
    return clamp_max(x, high)


# -- comparisons, logic, selection -----------------------------------------------------------------------------------
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    pointwise(_name, cast="operands")(lambda x, y, _op=_name: x.do(_op, y))


def _truth(x: V) -> V:
    return x if x.dtype == "bool" else x.do("ne", 0)


@pointwise("logical_not", cast="none")
def _logical_not(x: V) -> V:
    return _truth(x).do("not")


@pointwise("logical_and", cast="none")
def _logical_and(x: V, y: V) -> V:
    return _truth(x).do("and", _truth(y))


@pointwise("logical_or", cast="none")
def _logical_or(x: V, y: V) -> V:
    return _truth(x).do("or", _truth(y))


@pointwise("logical_xor", cast="none")
def _logical_xor(x: V, y: V) -> V:
    return _truth(x).do("xor", _truth(y))


for _name, _op in (("bitwise_and", "and"), ("bitwise_or", "or"), ("bitwise_xor", "xor")):
    pointwise(_name)(lambda x, y, _op=_op: _bits(x).do(_op, y) if isinstance(x, V) else _bits(y).do(_op, x))


def _bits(x: V) -> V:
    if is_float(x.dtype):
        raise NotLowered("a bitwise operation on floats, which PyTorch refuses")
    return x


@pointwise("bitwise_not")
def _bitwise_not(x: V) -> V:
    return _bits(x).do("not")


for _names, _left in ((("bitwise_left_shift", "__lshift__"), True), (("bitwise_right_shift", "__rshift__"), False)):
    pointwise(*_names)(lambda x, y, _left=_left: shift(*both(x, y), left=_left))


@pointwise("isnan", cast="none", jumps=True)
def _isnan(x: V) -> V:
    return x.do("isnan") if is_float(x.dtype) else x.body.const(False, "bool")


@pointwise("isinf", cast="none", jumps=True)
def _isinf(x: V) -> V:
    return x.do("isinf") if is_float(x.dtype) else x.body.const(False, "bool")


@pointwise("where", keep=(0,))
def _where(cond: V, a: V | Number, b: V | Number) -> V:
    cond = _truth(cond)
    if not isinstance(a, V) and not isinstance(b, V):
        raise NotLowered("where of two numbers")
    _fitting(next(v for v in (a, b) if isinstance(v, V)), a, b)
    return where(cond, a, b)


@pointwise("masked_fill", keep=(1,))
def _masked_fill(x: V, mask: V, value: V | Number) -> V:
    _fitting(x, value)
    return where(mask, value, x)


# -- copies and conversions ------------------------------------------------------------------------------------------
@pointwise("clone", "copy")
def _clone(x: V, y: V | None = None, non_blocking: bool = False) -> V:
    return x if y is None else y


def _to_copy(low: Lowering, node: fx.Node, x: Any, **kwargs: Any) -> View | Splat:
    """A conversion to a half float rounds, even where the result is never stored: the user asked for it."""
    if not isinstance(node.args[0], fx.Node):
        return splat(node, x)  # of a number, as torch.vmap makes them
    dtype = dtype_name(node.meta["val"].dtype)
    if node.meta["val"].device != _device(node):
        raise NotLowered("a copy to another device")
    source = low.dtype(x)
    if compute_dtype(dtype) != dtype and source != dtype:
        return low.finish(lambda v: rounded(v, dtype), [x], node)
    cut = not is_float(dtype) and may_be_unrounded(low, x)  # numbers just below 1 are 1 in half precision
    return low.finish(lambda v: rounded(v, source) if cut else v, [x], node)


_to_copy.elementwise = True  # type: ignore[attr-defined]
add_rule("_to_copy", _to_copy)


def _device(node: fx.Node) -> torch.device:
    source = node.args[0]
    assert isinstance(source, fx.Node)
    return source.meta["val"].device


@pointwise("native_dropout_backward", keep=(1,))
def _native_dropout_backward(grad: V, mask: V, scale: Number) -> V:
    return grad * mask.cast(grad.dtype) * scale
