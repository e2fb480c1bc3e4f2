"""Numbers that change from call to call: not constants of the graph but inputs of it; and texts made of them.

    f(x, 0.1)      ->  x * 0.1                        # the first value is a constant
    f(x, 0.2)      ->  graph_0(x, reconstruct.scalar(t, ...))  # then it is handed in, and other values are no recompile
    print(f"{n}")  ->  print(str(n))                  # a text of the number, too, is made anew at each call

A number is a ``ConstantV`` whose value is guarded as soon as somebody reads it (``value``); arithmetic with other
numbers and with tensors does not read it. Entry code does the arithmetic in Python before it calls the graph.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from types import BuiltinFunctionType, MethodDescriptorType, NoneType, WrapperDescriptorType
from typing import Any

from ...bytecode.operators import BINARY, COMPARE, UNARY
from ...records.literals import literal
from ...records.sources import Computed, Constant, Item, Local, Source
from ..errors import Unsupported
from ..protocol import Machine, Value
from .constant import NUMPY_BOOLS, NUMPY_FLOATS, ConstantV
from .methods import BuiltinMethodV

# A float on which the program branched with so many values is no constant of entries any more: the branch breaks.
MOST_VALUES = 8

_ROWS = (*COMPARE.values(), UNARY["UNARY_NEGATIVE"], UNARY["UNARY_POSITIVE"], BINARY["+"], BINARY["-"], BINARY["*"])
_FALLIBLE_ROWS = tuple(BINARY[symbol] for symbol in ("/", "**", "%", "//", "<<", ">>", "&", "|", "^"))
TEMPLATES: dict[Callable[..., Any], str] = {
    abs: "abs({})", **{row.function: row.template for row in (*_ROWS, *_FALLIBLE_ROWS)},
}  # fmt: skip
_FUNCTIONS: tuple[Any, ...] = (
    math.sqrt, math.exp, math.log, math.log2, math.log10, math.log1p, math.expm1, math.sin, math.cos, math.tan,
    math.tanh, math.atan, math.pow, math.floor, math.ceil, math.trunc, math.isqrt, math.gcd, math.fabs, pow, min,
    max, float, int, round, str, repr, ascii, format,
)  # fmt: skip
FUNCTIONS = frozenset(map(id, _FUNCTIONS))


NUMBERS: tuple[type, ...] = (float, int, *NUMPY_FLOATS)
RESULTS: tuple[type, ...] = (*NUMBERS, bool, *NUMPY_BOOLS, str)
CONSTANTS: tuple[type, ...] = (float, int, bool, str, type(None))  # what numbers and texts are computed with

# The largest computation that a guard repeats; beyond it the numbers that it begins with are guarded.
MOST_OPERATIONS = 24

NEVER_FAIL = frozenset({*(row.function for row in _ROWS), abs, min, max, str, repr, ascii})
"""What raises for no numbers and keeps its type: entry code computes the rest even where nobody needs it."""


class NumberV(ConstantV):
    """A float, an int, what a comparison of numbers gave, or a text made of such. ``leaves`` are the numbers and texts
    from outside that it depends on; ``text`` is the expression that makes it of ``parts`` by ``function``, None for one
    from outside.
    """

    by_data = False  # whether it is known only when the graph has run

    def __init__(
        self,
        m: Machine,
        real: Any,
        source: Source | None,
        function: Callable[..., Any] | None = None,
        text: str | None = None,
        parts: tuple[Value, ...] = (),
    ) -> None:
        self.machine = m
        self.known = real
        self.source = source
        self.function = function
        self.text = text
        self.parts = parts
        self.operations: int = 1 + sum(part.operations for part in parts if isinstance(part, NumberV))
        # guards call builtin functions alone
        self.repeatable: bool = isinstance(function, (BuiltinFunctionType, type, NoneType)) and all(
            part.repeatable for part in parts if isinstance(part, NumberV)
        )
        self.leaves: list[NumberV] = [self]
        if source is not None:
            m.guard(source, "type", type(real), "the number was computed with")
        else:
            self.leaves = list({id(leaf): leaf for part in parts for leaf in _leaves(part)}.values())

    def __repr__(self) -> str:
        return f"NumberV({self.known!r})"

    @property
    def value(self) -> Any:
        """The number as a constant: a branch on `step % 4 == 0` relies on that being false and not on ``step``."""
        for number in [self] if self.is_repeated() else self.leaves:
            self.machine.guard(number.place(), "constant", number.known, "its value was used")
        return self.known

    def is_repeated(self) -> bool:
        """Whether guards compute it anew."""
        return self.repeatable and self.operations <= MOST_OPERATIONS

    def place(self) -> Source:
        """The source, or the expression of the sources that it was computed from."""
        if self.source is not None:
            return self.source
        assert self.function is not None and self.text is not None
        parts = (part.place() if isinstance(part, NumberV) else _constant(part.as_constant()) for part in self.parts)
        return Computed(self.function, self.text, tuple(parts))

    def as_constant(self) -> Any:
        return self.value

    def is_constant(self) -> bool:
        return True

    def python_type(self) -> type:
        return type(self.known)

    def get_attr(self, m: Machine, name: str) -> Value:
        method = getattr(str, name, None) if isinstance(self.known, str) else None
        bound = isinstance(method, (MethodDescriptorType, WrapperDescriptorType))
        return BuiltinMethodV(method, self) if bound else super().get_attr(m, name)

    def truth(self, m: Machine) -> bool:
        if self.branches_too_often():
            raise Unsupported(
                "a branch on a number that changes from call to call",
                "compute with torch.where, or pass what depends on it",
            )
        if isinstance(self.known, (bool, str, *NUMPY_BOOLS)):
            return super().truth(m)
        compared = operation(m, operator.ne, self, ConstantV(0))  # as `if n` asks, of NaN too
        return super().truth(m) if compared is None else compared.truth(m)

    def combined(self, m: Machine, function: Any, operands: tuple[Value, ...]) -> Value | None:
        """What ``function`` gives for operands of which this is one, where that is known better than by computing it at
        each call; None otherwise.
        """
        return None

    def branches_too_often(self) -> bool:
        """Whether an entry for each value that the number was compared with has proved to be too many."""
        m = self.machine
        floats = [leaf.source for leaf in self.leaves if isinstance(leaf.known, float) and leaf.source is not None]
        return not m.fullgraph and any(m.changes.get(source, 0) >= MOST_VALUES for source in floats)


class LengthV(NumberV):
    """The length of a list or dictionary that was there before the call and is another at each."""

    def __init__(self, m: Machine, of: Value, length: int) -> None:
        assert of.source is not None
        self.of: Source = of.source
        super().__init__(m, length, None, len, "len({})", (of,))
        self.leaves = [self]

    def place(self) -> Source:
        return Computed(len, "len({})", (self.of,))


def _constant(value: float | str | None) -> Constant:
    text = literal(value)
    assert text is not None
    return Constant(text, value)


def _leaves(value: Value) -> list[NumberV]:
    return value.leaves if isinstance(value, NumberV) else []


def outside(m: Machine, real: Any, source: Source | None) -> NumberV | None:
    """A number or text from outside whose value has changed before, or surely will; None for what stays a constant."""
    if type(real) in (*NUMBERS, str) and source is not None and changes(m, source):
        return NumberV(m, real, source)
    return None


def changes(m: Machine, source: Source) -> bool:
    """Whether what stands at ``source`` has been another number or text before, or surely will be."""
    return source in m.changes or is_varying(m, source)


def is_varying(m: Machine, source: Source) -> bool:
    """Whether ``source`` is, or is an item of, what an operation gave that the graph ended for."""
    while isinstance(source, Item):
        source = source.of
    return isinstance(source, Local) and source.name in m.varying


@dataclass
class ComputedNumbers:
    by_parts: dict[Hashable, NumberV] = field(default_factory=dict)
    fallible: list[NumberV] = field(default_factory=list)  # whose computation may raise for other values


def computed(m: Machine, function: Callable[..., Any], text: str, parts: tuple[Value, ...]) -> NumberV | None:
    """``function`` of numbers and texts, computed anew at each call; None when a part or the result is neither."""
    reals = [part.known if isinstance(part, NumberV) else getattr(part, "value", None) for part in parts]
    if not all(isinstance(part, NumberV) or _is_plain(part) for part in parts):
        return None
    for part in parts:
        if isinstance(part, NumberV) and part.by_data:
            part.place()  # which refuses: entries compute numbers before the graph runs
    key = (function, text, *map(_identity, parts))
    known = m.state(ComputedNumbers)
    if key in known.by_parts:
        return known.by_parts[key]
    try:
        result = function(*reals)
    except Exception:
        return None  # with the values guarded, the program raises it
    if type(result) not in RESULTS:
        return None
    number = NumberV(m, result, None, function, text, parts)
    if function not in NEVER_FAIL:
        known.fallible.append(number)
    known.by_parts[key] = number
    return number


def _identity(part: Value) -> Hashable:
    """What two equal operands have in common: a source, the same computation, or a constant's type and digits."""
    if isinstance(part, NumberV):
        return part.source if part.source is not None else id(part)
    assert isinstance(part, ConstantV)
    return type(part.value), repr(part.value)


def _is_plain(value: Value) -> bool:
    return isinstance(value, ConstantV) and type(value.value) in CONSTANTS


def _combined(m: Machine, function: Any, operands: tuple[Value, ...]) -> Value | None:
    numbers = (operand for operand in operands if isinstance(operand, NumberV))
    return next((found for number in numbers if (found := number.combined(m, function, operands)) is not None), None)


def operation(m: Machine, function: Callable[..., Any], *operands: Value) -> Value | None:
    """``left <operator> right``, ``-value`` or ``abs(value)`` of which one is such a number."""
    found = _combined(m, function, operands)
    if found is not None:
        return found
    return computed(m, function, TEMPLATES[function], operands) if function in TEMPLATES else None


def called(m: Machine, function: Any, args: list[Value]) -> Value | None:
    """``math.sqrt(n)`` and the like."""
    if not any(isinstance(a, NumberV) for a in args):
        return None
    found = _combined(m, function, tuple(args))
    if found is not None:
        return found
    if function in (min, max) and len(args) < 2:
        return None
    holes = ", ".join(["{}"] * len(args))
    module = "math." if getattr(math, function.__name__, None) is function else ""
    return computed(m, function, f"{module}{function.__name__}({holes})", tuple(args))
