"""Floating-point numbers that are computed of sizes, as Python computes them.

>>> s = Symbol("s0", hint=8)
>>> computed("sub", FloatOf(s), 1.0), computed("mul", FloatOf(s * 2 + 1), 0.5)
(float(s0 - 1), float(2*s0 + 1) * 0.5)
>>> value(computed("truediv", 3.0, FloatOf(s * 2)), {"s0": 4})
0.375

What is a whole number in all calls stays the float of a ``Size``, of which relations can be assumed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from . import sizes
from .sizes import Size


def _infix(function: str) -> Callable[[Any, Float | int], Float]:
    return lambda x, other: computed(function, x, other)


def _reflected(function: str) -> Callable[[Any, Float | int], Float]:
    return lambda x, other: computed(function, other, x)


class _Arithmetic:
    """Of floats of which one is computed of sizes."""

    __add__, __sub__ = _infix("add"), _infix("sub")
    __mul__, __rmul__ = _infix("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _infix("truediv"), _reflected("truediv")

    def __neg__(self) -> Float:
        return computed("neg", self)


@dataclass(frozen=True)
class FloatOf(_Arithmetic):
    """A size as a float."""

    size: Size

    def __repr__(self) -> str:
        return f"float({self.size})"


@dataclass(frozen=True)
class Computed(_Arithmetic):
    """A row of ``FUNCTIONS`` of numbers."""

    function: str
    operands: tuple[Float, ...]

    def __repr__(self) -> str:
        operands = (f"({one})" if isinstance(one, Computed) else str(one) for one in self.operands)
        return FUNCTIONS[self.function].text.format(*operands)


Float: TypeAlias = "float | FloatOf | Computed"


@dataclass(frozen=True)
class Function:
    """A function of floats: its value, its text in Python, and the operation of a loop that computes it."""

    value: Callable[..., float]
    text: str
    operation: str


FUNCTIONS = {
    "add": Function(operator.add, "{} + {}", "add"),
    "sub": Function(operator.sub, "{} - {}", "sub"),
    "mul": Function(operator.mul, "{} * {}", "mul"),
    "truediv": Function(operator.truediv, "{} / {}", "div"),
    "pow": Function(operator.pow, "{} ** {}", "pow"),
    "neg": Function(operator.neg, "-{}", "neg"),
}
_WHOLE = ("add", "sub", "mul", "neg")  # whole numbers of whole numbers


def computed(function: str, *numbers: Any) -> Float:
    """A function of floats, or of whole numbers as such."""
    operands: list[Float] = [float(one) if sizes.is_known(one) else one for one in numbers]
    whole = [whole_number(one) for one in operands]
    if function in _WHOLE and None not in whole:
        return as_float(FUNCTIONS[function].value(*whole))  # type: ignore[arg-type]
    if all(isinstance(one, float) for one in operands):
        return FUNCTIONS[function].value(*operands)
    return Computed(function, tuple(operands))


def maximum(number: Float, least: int) -> Float:
    """The larger of two whole numbers."""
    size = whole_number(number)
    assert size is not None
    return as_float(sizes.maximum(size, least))


def as_float(size: Size) -> Float:
    """A size as a float."""
    return float(size) if sizes.is_known(size) else FloatOf(size)


def whole_number(number: Float) -> Size | None:
    """The size that a float is, if it is one in all calls."""
    if isinstance(number, FloatOf):
        return number.size
    return int(number) if isinstance(number, float) and number.is_integer() else None


def sizes_in(number: Float) -> Iterator[Size]:
    """The sizes of which a float is computed."""
    if isinstance(number, FloatOf):
        yield number.size
    elif isinstance(number, Computed):
        for one in number.operands:
            yield from sizes_in(one)


def value(number: Float, at: Mapping[str, int]) -> float:
    """The number where the symbols have these values."""
    return _evaluated(number, lambda size: sizes.value(size, at))


def hint(number: Float) -> float:
    """The number that it was when the program was compiled."""
    return _evaluated(number, sizes.hint)


def _evaluated(number: Float, size_value: Callable[[Size], int]) -> float:
    if isinstance(number, FloatOf):
        return float(size_value(number.size))
    if isinstance(number, Computed):
        return FUNCTIONS[number.function].value(*(_evaluated(one, size_value) for one in number.operands))
    return number
