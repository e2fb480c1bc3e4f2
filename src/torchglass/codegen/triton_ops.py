"""How each operation of the loop IR is written in Triton: one table, filled and checked by ``@prints``.

``triton_op("add", "float32", "float32", ["a", "b"])`` -> ``a + b``; ``"exp"`` -> ``libdevice.exp(a)``. Floating math is
libdevice's and division is rounded to nearest: what eager's CUDA kernels use, and not Triton's approximate defaults
(``tl.exp``, ``/``). Rules may call the helpers of ``HELPERS``; a file holds those that its kernels call.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from string import Formatter

from ..records.index_errors import OF_CPUS_ALONE
from ..records.loops import HALF, OPS
from ..records.triton_support import TYPES
from .prelude import words_of
from .triton_philox import HELPERS as PHILOX

Rule = Callable[..., str]

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
LIBDEVICE = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
    "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "rsqrt", "floor", "ceil", "trunc",
)  # fmt: skip

CONSTANT: dict[str, frozenset[int]] = {"philox": frozenset({2, 5}), "bound": frozenset({1, 2, 3})}
"""Arguments, by position, that where they are literal decide what is compiled of an operation."""


class CannotPrint(ValueError):
    """A kernel that has no Triton text; the message names kernel, loop and operation."""


def is_float(dtype: str) -> bool:
    return "float" in dtype


def literal(value: float | int | bool, dtype: str) -> str:
    """A Python number of the dtype's kind."""
    if dtype == "bool":
        return "1" if value else "0"
    if not is_float(dtype):
        return str(int(value))
    if math.isfinite(value):
        return repr(float(value))
    return 'float("nan")' if math.isnan(value) else 'float("inf")' if value > 0 else 'float("-inf")'


# -- the table -------------------------------------------------------------------------------------------------------
TABLE: dict[str, Rule] = {}


def prints(*ops: str) -> Callable[[Rule], Rule]:
    """Register ``rule(dtype, operand, *args) -> text`` for operations of the IR.

    ``dtype`` is the result's, ``operand`` the last argument's. KeyError for an operation that the IR does not have or
    that has a rule; TypeError for a rule with another number of arguments than the operation.
    """

    def register(rule: Rule) -> Rule:
        for op in ops:
            _enter(op, rule, len(inspect.signature(rule).parameters) - 2)
        return rule

    return register


def fills(op: str, template: str, others: str = "") -> None:
    """Register a text with places for the arguments of an operation; ``others``: of numbers that are no floats."""

    def rule(dtype: str, operand: str, *args: str) -> str:
        return (template if is_float(dtype) or not others else others).format(*args)

    _enter(op, rule, len({place for _, place, _, _ in Formatter().parse(template) if place}))


def _enter(op: str, rule: Rule, count: int) -> None:
    if op not in OPS:
        raise KeyError(f"the loop IR has no operation {op}")
    if op in TABLE:
        raise KeyError(f"{op} has a Triton rule already")
    if count != OPS[op]:
        raise TypeError(f"{op} takes {OPS[op]} arguments, its rule {count}")
    TABLE[op] = rule


def triton_op(op: str, dtype: str, operand: str, args: Sequence[str]) -> str:
    """The Triton expression of one operation on names or literals; CannotPrint if the table has none."""
    rule = TABLE.get(op)
    if rule is None:
        raise CannotPrint(f"no Triton text for the operation {op}")
    return rule(dtype, operand, *args)


for _op, _sign in INFIX.items():
    fills(_op, f"{{0}} {_sign} {{1}}")
for _op in LIBDEVICE:
    fills(_op, f"libdevice.{_op}({{0}})")
for _op in ("pow", "atan2", "copysign", "hypot", "nextafter"):
    fills(_op, f"libdevice.{_op}({{0}}, {{1}})")
fills("round", "libdevice.rint({0})")
fills("not", "~{0}")
fills("abs", "tl.abs({0})")
fills("where", "tl.where({0}, {1}, {2})")
fills("fma", "tl.fma({0}, {1}, {2})")
fills("floordiv", "tg_floordiv_float({0}, {1})", others="tg_floordiv_int({0}, {1})")
fills("mod", "tg_mod_float({0}, {1})", others="tg_mod_int({0}, {1})")
fills("fmod", "libdevice.fmod({0}, {1})", others="{0} % {1}")
fills("minimum", "tg_minimum({0}, {1})", others="tl.where({0} < {1}, {0}, {1})")
fills("maximum", "tg_maximum({0}, {1})", others="tl.where({0} > {1}, {0}, {1})")


@prints("div")
def _div(dtype: str, operand: str, a: str, b: str) -> str:
    """C's division; Triton's ``/`` is approximate for float32 and its ``//`` truncates."""
    return f"tl.div_rn({a}, {b})" if dtype == "float32" else f"{a} / {b}" if is_float(dtype) else f"{a} // {b}"


@prints("bound")
def _bound(dtype: str, operand: str, index: str, size: str, error: str, dim: str) -> str:
    """The index, after a look at it; of a whole number that is 0 only that."""
    if error in map(str, OF_CPUS_ALONE):
        return f"tl.where(({index} >= 0) & ({index} < {size}), {index}, 0)"
    return f"tg_index({index}, {size})"


@prints("sqrt")
def _sqrt(dtype: str, operand: str, a: str) -> str:
    return f"tl.sqrt_rn({a})" if dtype == "float32" else f"libdevice.sqrt({a})"


@prints("neg")
def _neg(dtype: str, operand: str, a: str) -> str:
    return f"-{a}" if dtype != "uint8" else f"0 - {a}"


@prints("sigmoid")
def _sigmoid(dtype: str, operand: str, a: str) -> str:
    return f"tl.div_rn(1.0, 1.0 + libdevice.exp(-{a}))" if dtype == "float32" else f"1.0 / (1.0 + libdevice.exp(-{a}))"


@prints("ndtr")
def _ndtr(dtype: str, operand: str, a: str) -> str:
    """As eager's GELU has it on a GPU. ``normcdf``, which is exact far below zero, took 1.6 times as long as eager."""
    half = "0.5" if dtype == "float32" else f"tl.full([1], 0.5, {TYPES[dtype]})"
    return f"{half} * (1.0 + libdevice.erf({a} * 0.7071067811865476))"


@prints("sign")
def _sign_of(dtype: str, operand: str, a: str) -> str:
    return f"({a} > 0).to({TYPES[dtype]}) - ({a} < 0).to({TYPES[dtype]})"


@prints("cast")
def _cast(dtype: str, operand: str, a: str) -> str:
    if dtype == "bool":
        return f"{a} != 0"
    if dtype in HALF and operand == "float64":  # as eager does, which rounds twice
        a = f"{a}.to(tl.float32)"
    return f"{a}.to({TYPES[dtype]})"


@prints("philox")
def _philox(
    dtype: str, operand: str, place: str, by_rows: str, threads: str, seed: str, offset: str, shift: str
) -> str:
    return f"tg_philox({place}, {by_rows}, {threads}, {seed}, {offset}, {shift})"


@prints("isnan")
def _isnan(dtype: str, operand: str, a: str) -> str:
    return f"{a} != {a}"


@prints("isinf")
def _isinf(dtype: str, operand: str, a: str) -> str:
    return f'tl.abs({a}) == float("inf")'


# -- reductions and scans --------------------------------------------------------------------------------------------
def neutral(kind: str, dtype: str) -> str:
    """The value that changes no result of the reduction or scan."""
    if kind in ("sum", "any"):
        return literal(0, dtype)
    if kind in ("prod", "all"):
        return literal(1, dtype)
    if is_float(dtype):
        return literal(math.inf if kind == "min" else -math.inf, dtype)
    if dtype == "bool":
        return "0" if kind == "max" else "1"
    bits = int(dtype.removeprefix("u").removeprefix("int"))
    low, high = (0, 2**bits - 1) if dtype == "uint8" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return str(low if kind == "max" else high)


COMBINE = {"sum": "tg_add", "prod": "tg_multiply", "any": "tg_or", "all": "tg_and", "logaddexp": "tg_logaddexp"}


def combine(kind: str, dtype: str) -> str:
    """The helper that joins two partial results; those of floats keep NaN."""
    if kind in COMBINE:
        return COMBINE[kind]
    if dtype == "bool":
        return "tg_or" if kind == "max" else "tg_and"
    return {"max": "tg_maximum", "min": "tg_minimum"}[kind]


def reduced(kind: str, dtype: str, value: str, dim: int = 1) -> str:
    """The reduction of a block along a dimension (1: along rows), which stays with size 1.

    Logical values are reduced as int32: Triton has no reductions of single bits.
    """
    if kind == "sum":
        wide = f"tl.sum({value}, {dim}, keep_dims=True)"
        return wide if dtype in ("float32", "float64", "int64", "int32") else f"{wide}.to({TYPES[dtype]})"
    how = combine(kind, dtype)
    if dtype == "bool":
        return f"tl.reduce({value}.to(tl.int32), {dim}, {how}, keep_dims=True) != 0"
    return f"tl.reduce({value}, {dim}, {how}, keep_dims=True)"


def scanned(kind: str, dtype: str, value: str) -> str:
    """The scan of a block along rows; a tree of partial results, as eager's CUDA kernels have it."""
    how = combine(kind, dtype)
    if dtype == "bool":
        return f"(tl.associative_scan({value}.to(tl.int32), 1, {how}) != 0)"
    return f"tl.associative_scan({value}, 1, {how})"


# -- helpers ---------------------------------------------------------------------------------------------------------
HELPERS = {
    **PHILOX,
    # Pure, since nobody misses what nobody reads, and equal looks are one then. Triton's own device_assert costs ten
    # registers and a barrier, and a loop with one is not pipelined, or not compiled.
    "tg_index": (
        "def tg_index(index, size):  # out of range the kernel ends with an error, as eager's do\n"
        '    check: tl.constexpr = "{ .reg .pred wrong; setp.ge.u64 wrong, $1, $2; @wrong trap; mov.b64 $0, $1; }"\n'
        "    both = [index, tl.cast(size, tl.int64)]\n"
        '    return tl.inline_asm_elementwise(check, "=l,l,l", both, tl.int64, is_pure=True, pack=1)'
    ),
    # Not pure: what is made of its result is made then, not kept in twice the registers from before.
    "tg_keep": (
        "def tg_keep(half):  # the same numbers, which the compiler takes for others\n"
        '    move: tl.constexpr = "mov.b32 $0, $1;"\n'
        '    return tl.inline_asm_elementwise(move, "=r,r", [half], half.dtype, is_pure=False, pack=2)'
    ),
    "tg_add": "def tg_add(a, b):\n    return a + b",
    "tg_multiply": "def tg_multiply(a, b):\n    return a * b",
    "tg_or": "def tg_or(a, b):\n    return a | b",
    "tg_and": "def tg_and(a, b):\n    return a & b",
    "tg_maximum": "def tg_maximum(a, b):  # NaN wins\n    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)",
    "tg_minimum": "def tg_minimum(a, b):  # NaN wins\n    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)",
    "tg_logaddexp": (
        "def tg_logaddexp(a, b):  # NaN wins; of two equal infinities no difference is taken\n"
        "    most = tl.where((a > b) | (a != a), a, b)\n"
        "    least = tl.where((a < b) | (a != a), a, b)\n"
        "    joined = most + libdevice.log1p(libdevice.exp(least - most))\n"
        '    return tl.where((least == most) & (tl.abs(most) == float("inf")), most, joined)'
    ),
    "tg_floordiv_int": (
        "def tg_floordiv_int(a, b):  # // truncates\n"
        "    return a // b - ((a % b != 0) & ((a < 0) != (b < 0))).to((a // b).dtype)"
    ),
    "tg_mod_int": (
        "def tg_mod_int(a, b):  # % has the sign of a\n"
        "    r = a % b\n"
        "    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)"
    ),
    "tg_mod_float": (
        "def tg_mod_float(a, b):\n"
        "    r = libdevice.fmod(a, b)\n"
        "    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)"
    ),
    "tg_floordiv_float": (
        "def tg_floordiv_float(a, b):\n"
        "    r = libdevice.fmod(a, b)\n"
        "    q = (a - r) / b\n"
        "    q = tl.where((r != 0) & ((b < 0) != (r < 0)), q - 1, q)\n"
        "    f = libdevice.floor(q)\n"
        "    f = tl.where(q - f > 0.5, f + 1, f)\n"
        "    f = tl.where(q == 0, libdevice.copysign(0 * f, a / b), f)\n"
        "    return tl.where(b == 0, a / b, f)"
    ),
}


def helpers(texts: Iterable[str]) -> list[str]:
    """The helper functions that the texts call, and that those call, in the table's order."""
    called: set[str] = set()
    new = {name for text in texts for name in words_of(text) if name in HELPERS}
    while new:
        called |= new
        new = {name for one in new for name in words_of(HELPERS[one]) if name in HELPERS} - called
    return [f"@triton.jit\n{source}" for name, source in HELPERS.items() if name in called]
