"""Element-wise operators: the rule says what happens to one element, the decorator does shapes, dtypes and promotion.

``aten.silu`` on float32 (512, 64) becomes one loop: load, sigmoid, mul, store. Inputs are converted to the dtype the
computation is done in (that of the result, float32 for the half floats); comparisons convert both sides to their
common dtype. What eager rounds to half precision before it computes, and what it does not, stands in ``OPMATH``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from ...records.loops import HALF, Compute, Loop, Store, View, compute_dtype
from ...records.target import Gpu
from ..context import Lowering, Splat, dtype_name
from ..table import NotLowered, add_rule
from ..values import Number, V, absolute, clamp_max, clamp_min, exp, fits, is_float, nearest, rsqrt, sqrt, where
from .creation import splat
from .integers import power, quotient, shift

HELD_BY_HALVES = ("bool", "int8", "uint8")
"""Dtypes all of whose numbers both half floats hold."""

OPMATH: dict[str, tuple[int | str, ...]] = {
    # a number or a tensor without dimensions on the right
    "mul": (1,), "div": (1,), "div.Tensor_mode": (1,), "floor_divide": (1,),
    # numbers
    "addcmul": ("value",), "addcdiv": ("value",), "lerp.Scalar": (2,), "native_dropout_backward": (2,),
    "leaky_relu": (1,), "leaky_relu_backward": (2,), "elu": (1, 2, 3), "elu_backward": (1, 2, 3), "celu": (1,),
    "softplus": (1, 2), "softplus_backward": (2, 3), "softshrink": (1,), "threshold": (1,), "threshold_backward": (2,),
}  # fmt: skip
"""The operands that eager's kernels of half floats take in float32. They round all others, numbers and tensors of
another dtype, to the dtype in which memory holds the result, before anything is computed."""

FITTING: dict[str, tuple[int | str, ...]] = {
    "add": ("alpha",), "sub": ("alpha",), "rsub": (2, "alpha"), "pow": (1,), "masked_fill": (2,),
    "clamp": (1, 2), "clamp_min": (1,), "clamp_max": (1,), "hardtanh": (1, 2), "threshold": (2,),
    "softshrink": (1,), "hardshrink": (1,), "softshrink_backward": (2,),
}  # fmt: skip
"""The numbers that eager refuses where the dtype does not hold them; others are infinite then, or wrap."""


def pointwise(
    *names: str, cast: str = "result", keep: Sequence[int] = (), jumps: bool = False, told: Sequence[str] = ()
) -> Callable[[Callable[..., V]], Callable[..., V]]:
    """Register an element-wise rule ``fn(*values) -> V``.

    ``cast``: convert tensor arguments to the dtype of the "result", to their common dtype ("operands"), or "none".
    Arguments whose positions are in ``keep`` are never converted. ``jumps``: nearly equal numbers give different
    results, so that half-precision operands are rounded as eager's are; comparisons do so, too. ``told``: what
    the rule gets by name beside: ``stored``, the dtype that eager's kernel computes in, a half where we compute in
    float32 (see ``OPMATH``); ``gpu``, whether it is that of a GPU, which for some edges is another.
    """
    exact = jumps or cast == "operands"

    def register(fn: Callable[..., V]) -> Callable[..., V]:
        def lower(low: Lowering, node: fx.Node, *args: Any, **kwargs: Any) -> View:
            stored = _target_dtype(cast, node)
            given: dict[int | str, Any] = dict(enumerate(args))
            given |= {
                k: v for k, v in kwargs.items() if k not in ("dtype", "layout", "device", "pin_memory", "memory_format")
            }
            if stored and not all(fits(given.get(k), stored) for k in FITTING.get(names[0], ())):
                raise NotLowered("a number that the dtype does not hold: eager raises")
            wide = {k for k in OPMATH.get(names[0], ()) if _is_single(given.get(k))}
            rounds = {k for k in given if stored in HALF and k not in wide and k not in keep}
            given = {k: in_dtype(x, stored) if stored and k in rounds else x for k, x in given.items()}
            dtypes = {k: low.dtype(x) for k, x in given.items() if isinstance(x, (View, Splat))}
            rounds &= {k for k, dtype in dtypes.items() if dtype != stored and not _is_held(low, given[k])}
            inexact = {k for k, x in given.items() if exact and may_be_unrounded(low, x)}
            to = compute_dtype(stored) if stored else None
            facts = {"stored": to if wide else stored, "gpu": isinstance(low.target, Gpu)}
            more = {name: facts[name] for name in told}

            def ready(k: int | str, value: Any) -> Any:
                if not isinstance(value, V):
                    return value
                value = rounded(value, dtypes[k]) if k in inexact else value
                value = value if to is None or k in keep else value.cast(to)
                return rounded(value, stored) if stored and k in rounds else value

            def element(*values: Any) -> V:
                found = {k: ready(k, v) for k, v in zip(given, values)}
                named = {k: v for k, v in found.items() if isinstance(k, str)}
                result = fn(*(v for k, v in found.items() if not isinstance(k, str)), **named, **more)
                if not isinstance(result, V):
                    raise NotLowered("a rule that folds to a number")
                return result

            return low.finish(element, list(given.values()), node)

        lower.elementwise = True  # type: ignore[attr-defined]
        for name in names:
            add_rule(name, lower)
        return fn

    return register


def _is_single(x: Any) -> bool:
    """Whether an operand is a number or a tensor without dimensions."""
    return not x.shape if isinstance(x, (View, Splat)) else isinstance(x, (int, float))


def _is_held(low: Lowering, x: View | Splat) -> bool:
    """Whether halves hold every number of an operand, by its dtype or as what makes it converts such: of a one-hot."""
    if low.dtype(x) in HELD_BY_HALVES:
        return True
    made = isinstance(x, View) and next((n for n in reversed(low.nodes) if x.buffer in n.writes), None)
    if not isinstance(made, Loop) or made.is_scatter:  # elsewhere there is what it was before
        return False
    values = {op.result: op for op in made.body if not isinstance(op, Store)}
    stored = [values[op.arg] for op in made.body if isinstance(op, Store)]
    return all(isinstance(v, Compute) and v.op == "cast" and values[v.args[0]].dtype in HELD_BY_HALVES for v in stored)


def in_dtype(x: Any, dtype: str) -> Any:
    """A number, or a tensor of one, as a half float holds it; other operands as they are."""
    if isinstance(x, Splat):
        return replace(x, value=nearest(x.value, dtype), dtype=dtype)
    return nearest(x, dtype) if isinstance(x, (int, float)) else x


def may_be_unrounded(low: Lowering, x: Any) -> bool:
    """Whether a half-precision value may reach a reader as it was computed, before it was rounded for memory.

    Comparisons round it: the largest of some values, once stored, must be found among them again.
    """
    return isinstance(x, View) and compute_dtype(low.dtype(x)) != low.dtype(x) and low.buffers[x.buffer].role == "temp"


def rounded(value: V, dtype: str) -> V:
    return value.cast(dtype).cast(compute_dtype(dtype))


def _target_dtype(cast: str, node: fx.Node) -> str | None:
    """What the operands are converted to, as memory holds it."""
    if cast == "none":
        return None
    return dtype_name(node.meta["val"].dtype if cast == "result" else common_dtype(node.args))


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
def multiplied_and_added(x: V, y: V | Number, z: V | Number) -> V:
    """``x * y + z``, rounded once where eager's compiled operators do so: not of integers."""
    return x.do("fma", y, z) if is_float(x.dtype) else x * y + z


def _sum_of_scaled(x: V | Number, y: V | Number, alpha: Number) -> V:
    """``x + alpha * y``, one of them a value."""
    if isinstance(y, V) and alpha != 1:
        return multiplied_and_added(y, alpha, x)
    x, y = both(x, y)
    return x + (y if alpha == 1 else y * alpha)


@pointwise("add")
def _add(x: V, y: V | Number, alpha: Number = 1) -> V:
    if not isinstance(x, V):
        x = y.lift(x)
    if x.dtype == "bool":
        return x.do("or", y) if alpha else x
    return _sum_of_scaled(x, y, alpha)


@pointwise("sub")
def _sub(x: V, y: V | Number, alpha: Number = 1) -> V:
    return x - y if alpha == 1 else _sum_of_scaled(x, y, -alpha)


@pointwise("rsub")
def _rsub(x: V, y: V | Number, alpha: Number = 1) -> V:
    x, y = both(x, y)
    return _sub(y, x, alpha)


@pointwise("mul")
def _mul(x: V, y: V | Number) -> V:
    if not isinstance(x, V):
        x = y.lift(x)
    return x.do("and", y) if x.dtype == "bool" else x * y


@pointwise("div")
def _div(x: V | Number, y: V | Number) -> V:
    x, y = both(x, y)
    return x / y


@pointwise("div.Tensor_mode", "div.Scalar_mode", jumps=True, told=("stored",))
def _rounded_div(x: V | Number, y: V | Number, rounding_mode: str | None = None, *, stored: str) -> V:
    x, y = both(x, y)
    if rounding_mode is None:
        return x / y
    if rounding_mode == "floor":
        return quotient(x, y, "floordiv")
    return quotient(x, y, "div") if not is_float(x.dtype) else rounded(x / y, stored).do("trunc")


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


@pointwise("pow", told=("stored", "gpu"))
def _pow(x: V | Number, y: V | Number, *, stored: str, gpu: bool) -> V:
    if not isinstance(x, V):
        assert isinstance(y, V)
        if not is_float(y.dtype):
            raise NotLowered("integer power")
        return exp(y * math.log(x)) if x == math.e else y.lift(x).do("pow", y)
    if isinstance(y, V):
        if not is_float(x.dtype):
            raise NotLowered("integer power")
        return x.do("pow", y)
    return _power_by_number(x, y, root_of_infinity=gpu or stored != "float16")


def _power_by_number(x: V, y: Number, root_of_infinity: bool) -> V:
    if not is_float(x.dtype):
        return power(x, y)
    if y in (1, 2, 3, 4):
        square = x * x
        return {1: x, 2: square, 3: square * x, 4: square * square}[int(y)]
    if y in (0.5, -0.5):
        root, of_infinity = (sqrt, math.inf) if y > 0 else (rsqrt, 0.0)
        if root_of_infinity:
            return root(x)
        return where(x.do("eq", -math.inf), of_infinity, root(x + 0.0))  # eager takes powers: of -0. as of 0.
    if y == -1:
        return 1.0 / x
    if y == -2:
        return 1.0 / (x * x)
    return x.do("pow", y)


@pointwise("addcmul", told=("gpu",))
def _addcmul(x: V, a: V, b: V, value: Number = 1, *, gpu: bool) -> V:
    if value == 1:
        return x + a * b
    return multiplied_and_added(a * b, value, x) if gpu else multiplied_and_added(a * value, b, x)


@pointwise("addcdiv")
def _addcdiv(x: V, a: V, b: V, value: Number = 1) -> V:
    return x + (value * a / b if value != 1 else a / b)


@pointwise("lerp.Scalar")
def _lerp(x: V, y: V, weight: Number) -> V:
    d, weight = y - x, weight if x.dtype == "float64" else nearest(weight, "float32")
    return multiplied_and_added(d, weight, x) if abs(weight) < 0.5 else multiplied_and_added(d, weight - 1, y)


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
@pointwise("clamp", "clip", told=("gpu",))
def _clamp(x: V, low: V | Number | None = None, high: V | Number | None = None, *, gpu: bool) -> V:
    x = x if low is None else _clamp_min(x, low, gpu=gpu)
    return x if high is None else _clamp_max(x, high, gpu=gpu)


@pointwise("clamp_min", told=("gpu",))
def _clamp_min(x: V, low: V | Number, *, gpu: bool) -> V:
    return x if gpu and _is_nan(low) else clamp_min(x, low)


@pointwise("clamp_max", told=("gpu",))
def _clamp_max(x: V, high: V | Number, *, gpu: bool) -> V:
    return x if gpu and _is_nan(high) else clamp_max(x, high)


def _is_nan(bound: V | Number) -> bool:
    """A number that is none, which on GPUs bounds nothing in eager."""
    return isinstance(bound, float) and math.isnan(bound)


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
    if not all(fits(number, v.dtype) for v in (a, b) if isinstance(v, V) for number in (a, b)):
        raise NotLowered("a number that the dtype does not hold: eager raises")
    return where(cond, a, b)


@pointwise("masked_fill", keep=(1,))
def _masked_fill(x: V, mask: V, value: V | Number) -> V:
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
