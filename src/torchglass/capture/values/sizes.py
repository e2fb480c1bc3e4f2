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
from typing import Any

import torch

from ...records.size_environment import DecidedByData, SizeEnvironment
from ...records.size_relations import Relation
from ...records.size_sources import size_source
from ...records.sizes import Size, maximum, minimum, symbol_name
from ...records.sources import Source
from ...records.symbolic_ints import RELATIONS, IntNode, size_of
from ..errors import NeedsData
from ..protocol import Lazy, Machine, Value
from .constant import ConstantV
from .number import LengthV, NumberV

ARITHMETIC: dict[Any, Callable[..., Size]] = {
    operator.add: operator.add, operator.sub: operator.sub, operator.mul: operator.mul,
    operator.floordiv: operator.floordiv, operator.mod: operator.mod, operator.neg: operator.neg,
    operator.pos: operator.pos, int: lambda size: size, operator.index: lambda size: size,
    max: lambda *sizes: reduce(maximum, sizes), min: lambda *sizes: reduce(minimum, sizes),
}  # fmt: skip
"""Python's functions of whole numbers that give sizes of sizes."""

ROUNDED: dict[Any, Callable[..., Size]] = {
    math.ceil: lambda a, b: (a + b - 1) // b, math.floor: operator.floordiv, int: operator.floordiv,
}  # fmt: skip
"""What rounds a quotient, as a function of what was divided: exact for all sizes, which are below 2**53."""
_DIVIDE = (*ROUNDED.values(), operator.mod)

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
            if answer is None:
                return ConditionV(self.environment, relation) if self.by_data else None
            return ConstantV(answer)
        made = ARITHMETIC.get(function)
        if made is None or (function in (operator.floordiv, operator.mod) and not self._is_positive(sizes[1])):
            return None
        result = made(*sizes)
        return ConstantV(result) if isinstance(result, int) else SizeV(m, IntNode(self.environment, result))

    def _is_positive(self, divisor: Any) -> bool:
        """Whether a divisor is what sizes are divided by (records.sizes)."""
        return self.environment.proved(divisor, ">", 0) is True


class ConditionV(Value):
    """A comparison with a size that data decide: a branch on it ends the graph, a check of it is the graph's."""

    def __init__(self, environment: SizeEnvironment, relation: Relation) -> None:
        self.environment, self.relation = environment, relation

    def python_type(self) -> type:
        return bool

    def truth(self, m: Machine) -> bool:
        raise _needs_data()

    def is_checked(self) -> bool:
        """Whether the graph looks, when it reads the number, that this holds."""
        try:
            return self.environment.expect(self.relation.left, self.relation.relation, self.relation.right)
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
    if isinstance(number, SizeV) or not isinstance(number, NumberV):
        return _size(number)
    if type(number.known) is not int:
        return None
    if number.text is None or isinstance(number, LengthV):
        if number.known < 1:
            return number.value if number.known == 0 else None  # what nothing is added to is not a size of 0
        return size_of(environment.symbol(number.place(), number.known))
    made, parts = ARITHMETIC.get(number.function), number.parts
    if number.function in ROUNDED and _is_quotient(parts[0]):
        made, parts = ROUNDED[number.function], parts[0].parts  # type: ignore[attr-defined]
    sizes = [_number_size(environment, part) for part in parts]
    if made is None or None in sizes:
        return None
    if made in _DIVIDE and not (environment.proved(sizes[0], ">=", 0) and environment.proved(sizes[1], ">", 0)):  # type: ignore[arg-type]
        return None
    return made(*sizes)


def _is_quotient(value: Value) -> bool:
    return isinstance(value, NumberV) and value.function is operator.truediv


def _size(value: Value) -> Size | None:
    if isinstance(value, SizeV):
        return value.size
    return value.value if type(value) is ConstantV and type(value.value) is int else None


def of_symbolic(m: Machine, value: torch.SymInt) -> Value:
    """A value for a size that an operator or a tensor gave."""
    node = value.node
    assert isinstance(node, IntNode)
    return ConstantV(node.size) if isinstance(node.size, int) else SizeV(m, node)
