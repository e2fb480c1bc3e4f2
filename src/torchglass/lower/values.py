"""Writing loop bodies: ``V`` is a value of a body under construction; arithmetic on it appends operations.

``silu`` reads as it would in a textbook::

    def silu(x: V) -> V:
        return x / (1 + exp(-x))

Numbers become constants of the other operand's dtype. Equal operations are appended once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import reduce
from operator import add
from typing import Any, TypeAlias

import torch

from ..records.loops import BOOL_OPS, Access, Compute, Const, Index, Load, Operation, Reduce, Scalar, Scan, Store
from ..records.size_floats import FUNCTIONS, Computed, Float, FloatOf
from ..records.sizes import Expr, Size
from ..records.symbolic_ints import float_of, size_of

Number: TypeAlias = "float | int | bool"
Operand: TypeAlias = "V | Number | Float | Expr"

MOST_PLACES = 2**31 - 1
"""Elements of a dimension whose places a body computes as int32: vectors of them are as wide as those of float32."""


def is_float(dtype: str) -> bool:
    return "float" in dtype


def bits(dtype: str) -> int:
    """The width of an integer dtype."""
    return int(dtype.removeprefix("u").removeprefix("int"))


def wrap_around(value: int, dtype: str) -> int:
    """A number as the integer dtype holds it: 200 is -56 in int8, as torch's arithmetic with numbers has it."""
    span = 1 << bits(dtype)
    value %= span
    return value if dtype.startswith("u") or value < span // 2 else value - span


def nearest(value: Number, dtype: str) -> Number:
    """A number as the half float holds it: 0.1 is 0.0999755859375 in float16, 70000 infinite. By way of float32, as
    eager's conversions go."""
    held = float(torch.tensor(value, dtype=torch.float32).to(getattr(torch, dtype)))
    return value if held == value else held


def fits(value: object, dtype: str) -> bool:
    """Whether torch takes a number for a dtype where it does not wrap, or overflow: clamp, fill, pad."""
    if not isinstance(value, (bool, int, float)) or dtype == "bool":
        return True
    if is_float(dtype):
        return not math.isfinite(value) or abs(value) <= torch.finfo(getattr(torch, dtype)).max
    top = (1 << bits(dtype)) - 1 if dtype.startswith("u") else (1 << (bits(dtype) - 1)) - 1
    return (-top if dtype.startswith("u") else -top - 1) <= value <= top


class Body:
    """The operations of one loop of ``rank`` dimensions as they are written; finds equal ones again."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.ops: list[Operation] = []
        self._seen: dict[Any, V] = {}

    def value(self, key: Any, dtype: str, make: Callable[[str], Operation]) -> V:
        found = self._seen.get(key)
        if found is None:
            name = f"t{len(self._seen)}"
            found = self._seen[key] = V(self, name, dtype)
            self.ops.append(make(name))
        return found

    def load(self, access: Access, dtype: str, mask: V | None = None, other: Number = 0) -> V:
        m = mask.name if mask is not None else None
        return self.value(("load", access, dtype, m, repr(other)), dtype, lambda n: Load(n, access, dtype, m, other))

    def const(self, value: Number | Float | Expr | torch.SymInt | torch.SymFloat, dtype: str) -> V:
        if isinstance(value, (torch.SymInt, Expr)):
            return self._size(size_of(value)).cast(dtype)
        if isinstance(value, torch.SymFloat):
            value = float_of(value)
        if isinstance(value, (FloatOf, Computed)):
            return self._computed(value).cast(dtype)
        if dtype == "bool":
            value = bool(value)
        elif is_float(dtype):
            value = float(value)
        elif isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{value} is no {dtype}")
        else:
            value = wrap_around(int(value), dtype)
        return self.value(("const", repr(value), dtype), dtype, lambda n: Const(n, value, dtype))

    def _size(self, size: Size) -> V:
        """A size that changes: what a counter is that does not count."""
        return self.index((0,) * self.rank, size)

    def _computed(self, number: Float) -> V:
        """A float that is computed of sizes, in float64 as Python computes it."""
        if isinstance(number, Computed):
            operands = tuple(map(self._computed, number.operands))
            return self.compute(FUNCTIONS[number.function].operation, operands, "float64")
        if isinstance(number, FloatOf):
            return self._size(number.size).cast("float64")
        return self.const(number, "float64")

    def index(self, strides: tuple[Size, ...], offset: Size = 0, dtype: str = "int64") -> V:
        return self.value(("index", strides, offset, dtype), dtype, lambda n: Index(n, strides, offset, dtype))

    def scalar(self, buffer: str, position: int, dtype: str) -> V:
        key = ("scalar", buffer, position, dtype)
        return self.value(key, dtype, lambda n: Scalar(n, buffer, position, dtype))

    def compute(self, op: str, args: tuple[V, ...], dtype: str | None = None) -> V:
        dtype = dtype or ("bool" if op in BOOL_OPS else args[-1].dtype)
        names = tuple(a.name for a in args)
        return self.value((op, names, dtype), dtype, lambda n: Compute(n, op, names, dtype))

    def reduce(self, kind: str, arg: V) -> V:
        return self.value(("reduce", kind, arg.name), arg.dtype, lambda n: Reduce(n, kind, arg.name, arg.dtype))

    def scan(self, kind: str, arg: V, strides: tuple[Size, ...]) -> V:
        return self.value(
            ("scan", kind, arg.name, strides), arg.dtype, lambda n: Scan(n, kind, arg.name, strides, arg.dtype)
        )

    def store(self, access: Access, value: V, base: str | None = None, add: bool = False) -> None:
        self.ops.append(Store(access, value.name, base, add))


def _infix(op: str) -> Callable[[V, Operand], V]:
    return lambda x, other: x.do(op, other)


def _reflected(op: str) -> Callable[[V, Number | Float], V]:
    return lambda x, other: x.body.compute(op, (x.lift(other), x))


class V:
    """A value in a body: its name and dtype."""

    __slots__ = ("body", "dtype", "name")

    def __init__(self, body: Body, name: str, dtype: str) -> None:
        self.body, self.name, self.dtype = body, name, dtype

    def lift(self, other: Operand) -> V:
        """``other`` as a value of this body, numbers in this value's dtype."""
        return other if isinstance(other, V) else self.body.const(other, self.dtype)

    def cast(self, dtype: str) -> V:
        return self if dtype == self.dtype else self.body.compute("cast", (self,), dtype)

    def do(self, op: str, *others: Operand) -> V:
        return self.body.compute(op, (self, *(self.lift(o) for o in others)))

    __add__, __radd__ = _infix("add"), _reflected("add")
    __sub__, __rsub__ = _infix("sub"), _reflected("sub")
    __mul__, __rmul__ = _infix("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _infix("div"), _reflected("div")
    __lt__, __le__, __gt__, __ge__ = _infix("lt"), _infix("le"), _infix("gt"), _infix("ge")

    def __neg__(self) -> V:
        return self.do("neg")


def where(cond: V, a: V | Number, b: V | Number) -> V:
    """``cond ? a : b``; one of ``a`` and ``b`` must be a value."""
    if not isinstance(a, V):
        assert isinstance(b, V)
        a = b.lift(a)
    return cond.body.compute("where", (cond, a, a.lift(b)))


def clamp_min(x: V, low: V | Number) -> V:
    """The larger of the two. Beside a number, ``x`` where they are equal: relu(-0.0) is -0.0, as in eager."""
    return x.do("maximum", low) if isinstance(low, V) else x.lift(low).do("maximum", x)


def clamp_max(x: V, high: V | Number) -> V:
    """The smaller of the two."""
    return x.do("minimum", high) if isinstance(high, V) else x.lift(high).do("minimum", x)


def summed(values: Iterable[V]) -> V:
    """The sum of one value or more, from left to right."""
    return reduce(add, values)


def every(conditions: Iterable[V]) -> V | None:
    """Whether all conditions hold; None: there are none."""
    return reduce(lambda a, b: b if a is None else a.do("and", b), conditions, None)


def chosen(values: Iterable[tuple[V | None, V]]) -> V:
    """The last of some values whose condition holds (None: it does), or the first."""
    return reduce(lambda a, b: b if b[0] is None else (None, where(b[0], b[1], a[1])), values)[1]


def _unary(op: str) -> Callable[[V], V]:
    return lambda x: x.do(op)


exp, log, sqrt, rsqrt, tanh, ndtr = (_unary(o) for o in ("exp", "log", "sqrt", "rsqrt", "tanh", "ndtr"))
sigmoid, sin, absolute = (_unary(o) for o in ("sigmoid", "sin", "abs"))
