"""Sizes that change from call to call, and what is computed of them: whole numbers that PyTorch's operators take too.

    x.shape[0]                    SizeV(s0)            the entry reads fetched[1], which is x.shape[0]
    x.view(x.shape[0] * 2, -1)    SizeV(2*s0)          in the graph: x.view(2*s0, -1)
    x.shape[0] > 4                a number that is computed, guarded once a branch asks for it

A size is kept in normal form (``records.sizes``), so what is equal is known to be, and it becomes a constant when its
value is asked for (``range(n)``): the environment then assumes that value, with the line.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, NamedTuple

import torch

from ...records.size_environment import DecidedByData, SizeEnvironment
from ...records.size_relations import NEGATED, Relation
from ...records.size_sources import size_source
from ...records.sizes import Size, hint, is_known, magnitude, maximum, minimum, product, symbol_name
from ...records.sources import Source
from ...records.symbolic_ints import RELATIONS, IntNode, size_of
from ..errors import NeedsData
from ..protocol import Lazy, Machine, Value
from .constant import ConstantV
from .number import TEMPLATES, LengthV, NumberV


def _itself(size: Size, *more: Size) -> Size | None:
    return None if more else size


def _shifted(size: Size, by: Size) -> Size | None:
    return size * 2**by if is_known(by) and 0 <= by < MOST_BITS else None


def _shifted_back(size: Size, by: Size) -> Size | None:
    return size // 2**by if is_known(by) and 0 <= by < MOST_BITS else None


def _masked(size: Size, mask: Size) -> Size | None:
    """The lowest bits, or all but these."""
    if not is_known(mask):
        return _masked(mask, size) if is_known(size) else None
    bits = (mask + 1 if mask >= 0 else -mask).bit_length() - 1
    if bits >= MOST_BITS or mask not in (2**bits - 1, -(2**bits)):
        return None
    return size % 2**bits if mask >= 0 else size // 2**bits * 2**bits


def _power(size: Size, exponent: Size, *modulus: Size) -> Size | None:
    few = is_known(exponent) and 0 <= exponent <= MOST_FACTORS and not modulus
    return product([size] * exponent) if few else None  # type: ignore[operator]


MOST_BITS, MOST_FACTORS = 31, 4

ARITHMETIC: dict[Any, Callable[..., Size | None]] = {
    operator.add: operator.add, operator.sub: operator.sub, operator.mul: operator.mul,
    operator.floordiv: operator.floordiv, operator.mod: operator.mod, operator.neg: operator.neg,
    operator.pos: operator.pos, abs: magnitude,
    max: lambda *sizes: reduce(maximum, sizes), min: lambda *sizes: reduce(minimum, sizes),
    operator.lshift: _shifted, operator.rshift: _shifted_back, operator.and_: _masked,
    operator.pow: _power, pow: _power,
    **dict.fromkeys((int, operator.index, round, math.floor, math.ceil, math.trunc), _itself),
}  # fmt: skip
"""Python's functions of whole numbers that give sizes of sizes, or None where they do not."""
_DIVIDE = (operator.floordiv, operator.mod)


def _rounded_half_even(above: Size, below: int) -> Size:
    if below % 2:
        return (2 * above + below) // (2 * below)
    return (above + below // 2 - 1 + above // below % 2) // below


COMPARISONS = {getattr(operator, name): relation for name, relation in RELATIONS.items()}


class SizeV(NumberV):
    """A size, ``symbolic`` as PyTorch takes it."""

    def __init__(self, m: Machine, node: IntNode) -> None:
        self.machine = m
        self.node = node
        self.environment: SizeEnvironment = node.environment
        self.symbolic = torch.SymInt(node)
        self.known = node.hint
        name = symbol_name(self.size)
        self.by_data = self.environment.is_by_data(self.size)
        self.source = self.environment.sources.get(name) if name is not None else None
        self.function = self.text = None
        self.parts = ()
        self.operations, self.repeatable = 1, True
        self.leaves = [self]

    def __repr__(self) -> str:
        return f"SizeV({self.size})"

    @property
    def size(self) -> Size:
        return self.node.size

    @property
    def value(self) -> Any:
        if self.by_data:
            raise _needs_data()
        return self.environment.specialize(self.size)

    def place(self) -> Source:
        if self.by_data:
            raise _needs_data()
        return size_source(self.size, self.environment.sources)

    def combined(self, m: Machine, function: Any, operands: tuple[Value, ...]) -> Value | None:
        found = self._combined(m, function, operands)
        if found is None and self.by_data:
            raise _needs_data()  # entries compute numbers before the graph runs, and this one is known after it
        return found

    def _combined(self, m: Machine, function: Any, operands: tuple[Value, ...]) -> Value | None:
        sizes = [_size(operand) for operand in operands]
        if None in sizes:
            return None
        if function in COMPARISONS:
            relation = Relation(sizes[0], COMPARISONS[function], sizes[1])  # type: ignore[arg-type]
            answer = self.environment.proved(relation.left, relation.relation, relation.right)
            if answer is not None:
                return ConstantV(answer)
            if self.by_data:
                return ConditionV(self.environment, relation)
            return ComparisonV(self, relation, function, operands)
        result = _arithmetic(self.environment, function, sizes)
        if result is None:
            return None
        return ConstantV(result) if isinstance(result, int) else SizeV(m, IntNode(self.environment, result))


class ComparisonV(NumberV):
    """A comparison of sizes. A branch on it assumes what it says, of which the ranges of the sizes know: what a program
    asks about a size in several ways is one guard.
    """

    def __init__(self, size: SizeV, relation: Relation, function: Any, operands: tuple[Value, ...]) -> None:
        hints = hint(relation.left), hint(relation.right)
        super().__init__(size.machine, function(*hints), None, function, TEMPLATES[function], operands)
        self.environment, self.relation = size.environment, relation

    @property
    def value(self) -> bool:
        asked = self.relation
        return self.environment.decide(asked.left, asked.relation, asked.right, "its value was used")


class ConditionV(Value):
    """A comparison with a size that data decide: a branch on it ends the graph, a check of it is the graph's."""

    cls = bool

    def __init__(self, environment: SizeEnvironment, relation: Relation) -> None:
        self.environment, self.relation = environment, relation

    def truth(self, m: Machine) -> bool:
        raise _needs_data()

    def is_checked(self, truth: bool = True) -> bool:
        """Whether the graph looks, when it reads the number, that this is ``truth``."""
        relation = self.relation.relation if truth else NEGATED[self.relation.relation]
        try:
            return self.environment.expect(self.relation.left, relation, self.relation.right)
        except DecidedByData:
            return False


def _needs_data() -> NeedsData:
    return NeedsData("a number that the data of a tensor decide", "compute with tensors, or move it out")


def refuse_by_data(values: Iterable[Value | Lazy]) -> None:
    """Raise Unsupported where one of these numbers is known only when the graph has run."""
    if any(isinstance(value, SizeV) and value.by_data for value in values):
        raise _needs_data()


def as_size(number: NumberV) -> Any:
    """A whole number that changes as operators take it for a size: an int or a SymInt. Its value, which is guarded,
    where it is none that a size may be.
    """
    environment = number.machine.state(SizeEnvironment)
    size = _number_size(environment, number) if environment.allowed else None
    return number.value if size is None else environment.integer(size)


def _number_size(environment: SizeEnvironment, number: Value) -> Size | None:
    """What a whole number comes to, as a size. What no rule tells is a size of its own, which the entry computes."""
    if isinstance(number, SizeV) or not isinstance(number, NumberV):
        return _size(number)
    if type(number.known) is not int:
        return None
    is_read = number.text is None or isinstance(number, LengthV)
    if not is_read:
        sizes = [_number_size(environment, part) for part in number.parts]
        made = _arithmetic(environment, number.function, sizes)
        made = _rounded(environment, number) if made is None else made
        if made is not None:
            return made
    if number.known == 0 and is_read:
        return number.value  # what nothing is added to is not a size of 0
    if number.known < 1 or not (_is_whole(number) and number.is_repeated()):
        return None
    return size_of(environment.symbol(number.place(), number.known))


def _arithmetic(environment: SizeEnvironment, function: Any, sizes: list[Size | None]) -> Size | None:
    """A function of whole numbers as a size; None where no rule tells it."""
    made = ARITHMETIC.get(function)
    if made is None or None in sizes:
        return None
    if function in _DIVIDE and environment.proved(sizes[1], ">", 0) is not True:  # type: ignore[arg-type]
        return None  # sizes are divided by what is positive (records.sizes)
    return made(*sizes)


# --- rounded quotients ------------------------------------------------------------------------------------------------
class Ratio(NamedTuple):
    """``above / below``, which is positive. ``exact``: a float of Python's is this very number."""

    above: Size
    below: Size
    exact: bool = True


MOST_EXACT = 1 << 10
"""Numerators and denominators of floats up to which products of them and sizes are exact: below 2**53."""


def _rounded(environment: SizeEnvironment, number: NumberV) -> Size | None:
    """A fraction as it is rounded. The float that is nearest to a quotient of whole numbers below 2**53 lies on the
    same side of whole numbers as the quotient, and of the middles between them.
    """
    ratio = _ratio(environment, number.parts[0]) if len(number.parts) == 1 else None
    if ratio is None:
        return None
    above, below = ratio.above, ratio.below
    function = number.function
    if function is math.ceil:
        return (above + below - 1) // below
    if function is round and is_known(below):
        return _rounded_half_even(above, below)
    down = function is math.floor or (function in (int, math.trunc) and environment.proved(above, ">=", 0) is True)
    return above // below if down else None


def _ratio(environment: SizeEnvironment, value: Value) -> Ratio | None:
    if type(value) is ConstantV and type(value.value) is float and math.isfinite(value.value):
        numbers = value.value.as_integer_ratio()
        return Ratio(*numbers) if max(map(abs, numbers)) <= MOST_EXACT else None
    if not isinstance(value, NumberV) or value.text is None or value.function not in RATIONAL:
        size = _number_size(environment, value)
        return None if size is None else Ratio(size, 1)
    parts = [_ratio(environment, part) for part in value.parts]
    left, right = (part if part is not None and part.exact else None for part in parts)
    if left is None or right is None:
        return None
    if value.function is operator.mul:
        return Ratio(left.above * right.above, left.below * right.below)
    if environment.proved(right.above, ">", 0) is not True:
        return None
    below = left.below * right.above
    common = math.gcd(below, right.below) if is_known(below) and is_known(right.below) else 1
    exact = is_known(below) and (below // common).bit_count() == 1
    return Ratio(left.above * (right.below // common), below // common, exact)


RATIONAL = (operator.mul, operator.truediv)

ALWAYS_WHOLE = (len, int, round, math.floor, math.ceil, math.trunc, math.isqrt, math.gcd)
WHOLE_OF_WHOLE = (
    operator.add, operator.sub, operator.mul, operator.neg, operator.pos, operator.floordiv, operator.mod,
    operator.lshift, operator.rshift, operator.and_, operator.or_, operator.xor, abs, max, min,
)  # fmt: skip


def _is_whole(value: Value) -> bool:
    """Whether what is an int now is one at each call."""
    if not isinstance(value, NumberV):
        return type(value) is ConstantV and type(value.value) is int
    if value.text is None:
        return type(value.known) is int
    if value.function in ALWAYS_WHOLE:
        return value.function is not round or len(value.parts) == 1
    return value.function in WHOLE_OF_WHOLE and all(map(_is_whole, value.parts))


def _size(value: Value) -> Size | None:
    if isinstance(value, SizeV):
        return value.size
    return value.value if type(value) is ConstantV and type(value.value) is int else None


def of_symbolic(m: Machine, value: torch.SymInt) -> Value:
    """A value for a size that an operator or a tensor gave."""
    node = value.node
    assert isinstance(node, IntNode)
    return ConstantV(node.size) if isinstance(node.size, int) else SizeV(m, node)
