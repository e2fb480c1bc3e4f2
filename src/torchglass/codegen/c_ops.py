"""How each operation of the loop IR is written in C.

``c_op("add", "float32", ["a", "b"])`` -> ``a + b``. Math on floats goes through the prelude's ``tg_exp_f32`` and kin;
what is not there is libm's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..process.tables import enters
from ..records.loops import HALF

CTYPES = {
    "float32": "float", "float64": "double", "int64": "int64_t", "int32": "int32_t", "int16": "int16_t",
    "int8": "int8_t", "uint8": "uint8_t", "bool": "bool8", "bfloat16": "bf16", "float16": "f16",
}  # fmt: skip
# Math with our own branch-free float versions in the prelude; the rest is libm's under its own name.
OWN_F32 = frozenset({"exp", "log", "tanh", "erf", "sigmoid", "expm1", "log1p", "ndtr"})
LIBM = frozenset({
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
    "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma",
})  # fmt: skip
INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip


def from_half(text: str, dtype: str) -> str:
    """What is read of memory of this dtype, to compute with."""
    return f"tg_from_{CTYPES[dtype]}({text})" if dtype in HALF else text


def to_half(text: str, dtype: str) -> str:
    """What is written into memory of this dtype."""
    return f"tg_to_{CTYPES[dtype]}({text})" if dtype in HALF else text


def is_float(dtype: str) -> bool:
    return dtype in ("float32", "float64")


def constant(value: float | int | bool, dtype: str) -> str:
    """A literal of the dtype."""
    if dtype == "bool":
        return "1" if value else "0"
    if is_float(dtype):
        suffix = "f" if dtype == "float32" else ""
        if math.isnan(value):
            return "NAN"
        if math.isinf(value):
            return "INFINITY" if value > 0 else "-INFINITY"
        text = repr(float(value))
        return text + suffix
    if value == -(2**63):
        return "INT64_MIN"
    return f"INT64_C({int(value)})" if dtype == "int64" else str(int(value))


Printer = Callable[[str, str, Sequence[str]], str]
PRINTERS: dict[str, Printer] = {}
printer = enters(PRINTERS)


def c_op(op: str, dtype: str, operand: str, args: Sequence[str]) -> str:
    """The C expression of ``op``; ``dtype`` is the result's, ``operand`` that of its (last) argument."""
    if op in INFIX:
        return f"{args[0]} {INFIX[op]} {args[1]}"
    found = PRINTERS.get(op)
    if found is not None:
        return found(dtype, operand, args)
    suffix = "f" if dtype == "float32" else ""
    if op in OWN_F32 and (dtype == "float32" or op in ("sigmoid", "ndtr")):
        return f"tg_{op}_{'f32' if dtype == 'float32' else 'f64'}({', '.join(args)})"
    if op in LIBM:
        return f"{op}{suffix}({', '.join(args)})"
    raise KeyError(f"no C for operation {op}")


def _call(name: str) -> Printer:
    return lambda dtype, operand, args: f"{name}{'f' if dtype == 'float32' else ''}({', '.join(args)})"


def calls_function(op: str, dtype: str, operand: str) -> bool:
    """Whether an operation's C calls a function, inlined or not."""
    if op == "cast":
        return dtype in HALF or operand in HALF or ("float" in operand and dtype in ("int64", "int32"))
    return op in CALLING or (is_float(dtype) and op in ("abs", "fmod"))


CALLED = ("pow", "atan2", "hypot", "nextafter")
"""Functions of the C library that are called by their names, besides LIBM and ``fmod``."""
for _op in CALLED:
    printer(_op)(_call(_op))
for _op in ("sqrt", "copysign", "floor", "ceil", "trunc"):
    printer(_op)(_call(f"__builtin_{_op}"))
printer("round")(_call("__builtin_rint"))
printer("fma")(_call("__builtin_fma"))

TEMPLATES = {
    "neg": "-{0}", "where": "{0} ? {1} : {2}", "isnan": "{0} != {0}", "bound": "tg_bound({0}, {1}, {2}, {3})",
    "isinf": "({0} == INFINITY) | ({0} == -INFINITY)", "rsqrt": "1 / __builtin_sqrt{f}({0})",
    "minimum": "({0} < {1}{nan}) ? {0} : {1}", "maximum": "({0} > {1}{nan}) ? {0} : {1}",
    "floordiv": "tg_floordiv_{kind}({0}, {1})", "mod": "tg_mod_{kind}({0}, {1})",
}  # fmt: skip
"""``f``: the suffix of float32's functions; ``nan``: whether the first is none; ``kind``: what the prelude calls it."""


def _filled(template: str) -> Printer:
    def text(dtype: str, operand: str, args: Sequence[str]) -> str:
        f, kind = "f" if dtype == "float32" else "", {"float32": "f32", "float64": "f64"}.get(dtype, "i64")
        nan = f" || {args[0]} != {args[0]}" if is_float(dtype) else ""
        return template.format(*args, f=f, kind=kind, nan=nan)

    return text


for _op, _template in TEMPLATES.items():
    printer(_op)(_filled(_template))


@printer("fmod")
def _fmod(dtype: str, operand: str, args: Sequence[str]) -> str:
    return _call("fmod")(dtype, operand, args) if is_float(dtype) else f"{args[0]} % {args[1]}"


@printer("not")
def _not(dtype: str, operand: str, args: Sequence[str]) -> str:
    return f"!{args[0]}" if dtype == "bool" else f"~{args[0]}"


@printer("abs")
def _abs(dtype: str, operand: str, args: Sequence[str]) -> str:
    if is_float(dtype):
        return f"__builtin_fabs{'f' if dtype == 'float32' else ''}({args[0]})"
    return f"({args[0]} < 0 ? -{args[0]} : {args[0]})"


# Eager's way for numbers out of range, which C leaves open: without a step between, GCC writes back to float as trunc.
FROM_FLOAT = {
    "int64": "tg_i64_of_{0}({1})", "int32": "tg_i32_of_{0}({1})", "int16": "(int16_t)(int32_t){1}",
    "int8": "(int8_t)(int32_t){1}", "uint8": "(uint8_t)(int64_t){1}",
}  # fmt: skip


@printer("cast")
def _cast(dtype: str, operand: str, args: Sequence[str]) -> str:
    value = from_half(args[0], operand)
    if dtype in HALF:
        return to_half(value, dtype)
    if dtype in FROM_FLOAT and "float" in operand:
        return FROM_FLOAT[dtype].format("f64" if operand == "float64" else "f32", value)
    return f"{value} != 0" if dtype == "bool" else f"({CTYPES[dtype]}){value}"


@printer("cast_counter")
def _cast_counter(dtype: str, operand: str, args: Sequence[str]) -> str:
    """Of a counter of 64 bits that fits into 32: two to four vectors of 64 bits for one of floats, otherwise."""
    return _cast(dtype, "int32", [f"(int32_t){args[0]}"])


def _near(half: str) -> Printer:
    """The float that is read again of what memory of this dtype holds for one."""
    return lambda dtype, operand, args: f"tg_near_{CTYPES[half]}({args[0]})"


for _half in sorted(HALF):
    printer(f"near_{_half}")(_near(_half))


@printer("sign")
def _sign(dtype: str, operand: str, args: Sequence[str]) -> str:
    a = args[0]
    if dtype in ("float32", "float64"):  # GCC vectorizes no loop with two differences of conditions
        f = "f" if dtype == "float32" else ""
        return f"({a} > 0 ? 1.0{f} : {a} < 0 ? -1.0{f} : 0.0{f})"
    return f"({CTYPES[dtype]})(({a} > 0) - ({a} < 0))"


# reduction kind -> (start value by dtype, how a value joins, the OpenMP name)
def reduction_start(kind: str, dtype: str) -> str:
    """The neutral element."""
    if kind in ("sum", "any"):
        return "0"
    if kind in ("prod", "all"):
        return "1"
    if is_float(dtype):
        return "INFINITY" if kind == "min" else "-INFINITY"
    if dtype == "bool":
        return "0" if kind == "max" else "1"
    bits = {"int64": "INT64", "int32": "INT32", "int16": "INT16", "int8": "INT8", "uint8": "UINT8"}[dtype]
    low = "0" if dtype == "uint8" else f"{bits}_MIN"
    return low if kind == "max" else f"{bits}_MAX"


OPENMP = {"sum": "+", "prod": "*", "max": "max", "min": "min", "any": "|", "all": "&"}


def carried(kind: str, dtype: str, a: str, b: str) -> str:
    """A scan's value so far and the next element as one."""
    if kind == "logaddexp":
        return f"tg_logaddexp_{'f32' if dtype == 'float32' else 'f64'}({a}, {b})"
    if kind in ("max", "min") and is_float(dtype):
        return f"({b} {'>' if kind == 'max' else '<'} {a} || {b} != {b}) ? {b} : {a}"
    return combine(kind, a, b)


def combine(kind: str, a: str, b: str) -> str:
    """Two partial results as one. NaN of ``b`` is not kept by max and min: a flag beside them does that."""
    table = {
        "sum": f"{a} + {b}", "prod": f"{a} * {b}", "any": f"{a} | {b}", "all": f"{a} & {b}",
        "max": f"{b} > {a} ? {b} : {a}", "min": f"{b} < {a} ? {b} : {a}",
    }  # fmt: skip
    return table[kind]


CALLING = frozenset(PRINTERS) & {
    "floordiv", "mod", "bound", "sqrt", "rsqrt", "copysign", "floor", "ceil", "trunc", "round", *CALLED,
} | {op for op in PRINTERS if op.startswith("near_")} | OWN_F32 | LIBM  # fmt: skip
"""Operations whose C calls a function whatever their dtype."""
