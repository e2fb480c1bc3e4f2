"""Deques: lists with a greatest length, which notice when they change while somebody goes through them."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterator
from typing import Any, NoReturn

from ...bytecode.objects import namesake
from ...records.sources import Attr, Source
from ..protocol import MISSING, Machine, Value
from .constant import ConstantV
from .containers import ListV
from .iterators import ReversedV, SequenceIterV, iterates
from .number import called

MUTATED = "deque mutated during iteration"


class DequeV(ListV):
    """A deque; ``state`` counts the changes that an iterator does not survive."""

    default_class = deque
    maxlen: int | None = None
    state = 0

    @classmethod
    def existing(cls, real: Any, source: Source | None) -> Any:
        made: Any = super().existing(real, source)
        made.maxlen = real.maxlen
        return made

    @classmethod
    def unread(cls, m: Machine, real: Any, source: Source) -> Any:
        m.guard(Attr(source, "maxlen"), "constant", real.maxlen, "its length is bounded")
        made: Any = super().unread(m, real, source)
        made.maxlen = real.maxlen
        return made

    @classmethod
    def of(cls, items: list[Any], maxlen: int | None) -> DequeV:
        made = cls(items)
        made.maxlen = maxlen
        made.keep_bounded()
        return made

    def like(self, items: list[Any]) -> DequeV:
        return self.of(items, self.maxlen)

    def keep_bounded(self) -> None:
        if self.maxlen is not None:
            del self._items[: max(len(self._items) - self.maxlen, 0)]

    def changing_length(self, m: Machine) -> Value | None:
        length = super().changing_length(m)
        if length is None or self.maxlen is None:
            return length
        return called(m, min, [length, ConstantV(self.maxlen)])

    def change(self, m: Machine) -> None:
        """What every method that adds, takes or moves items does first."""
        if self.real is not None:
            self.all(m)
        m.mutate(self)
        self.state += 1

    def grow(self, m: Machine, values: list[Value]) -> None:
        super().grow(m, values)
        self.state += 1

    def replace(self, m: Machine, items: list[Any]) -> None:
        self.change(m)
        self.items = items
        self.keep_bounded()

    def arguments_of(self, items: str) -> str:
        return items if self.maxlen is None else f"{items}, {self.maxlen}"

    @property
    def written_whole(self) -> bool:  # type: ignore[override]
        return self.state > 0

    def overwriting(self, target: str, items: str) -> list[str]:
        return [f"{target}.clear()", f"{target}.extend({items})"]

    def compared(self, m: Machine, error: type[Exception] = RuntimeError) -> Iterator[Value]:
        """The items, for somebody who compares them, which may run code of the program's."""
        state = self.state
        for item in self.all(m):
            yield item
            if self.state != state:
                m.throw(error, MUTATED)

    def contains(self, m: Machine, item: Value) -> bool:
        return any(m.equal(other, item) for other in self.compared(m))

    def _check_index(self, m: Machine, key: Value) -> None:
        if m.class_lookup(key.python_type(), "__index__") is MISSING:
            m.throw_as(operator.getitem, deque(), namesake(key.python_type()))

    def get_item(self, m: Machine, key: Value) -> Value:
        self._check_index(m, key)
        if self.maxlen is not None:
            self.length(m)  # which item it is depends on how many there are
        return super().get_item(m, key)

    def _position(self, m: Machine, key: Value) -> int:
        self._check_index(m, key)
        index: int = key.as_index(m)
        if not -len(self.items) <= index < len(self.items):
            m.throw_as(operator.getitem, deque(), 0)
        return index

    def set_item(self, m: Machine, key: Value, value: Value) -> None:
        index = self._position(m, key)
        self.all(m)
        m.mutate(self)
        self.items[index] = value

    def del_item(self, m: Machine, key: Value) -> None:
        index = self._position(m, key)
        self.change(m)
        del self.items[index]

    def as_constant(self) -> Any:
        return deque(super().as_constant(), self.maxlen)

    def get_attr(self, m: Machine, name: str) -> Value:
        return m.wrap_result(self.maxlen) if name == "maxlen" else super().get_attr(m, name)


def _refuse(m: Machine) -> NoReturn:
    m.throw(RuntimeError, MUTATED)


class DequeIterV(SequenceIterV):
    """An iterator over a deque, which must not change meanwhile."""

    def __init__(self, of: DequeV) -> None:
        super().__init__(of)
        self.of = of
        self.state = of.state

    def python_type(self) -> type:
        return type(iter(deque()))

    def next(self, m: Machine) -> Value | None:
        return _refuse(m) if self.of.state != self.state else super().next(m)


@iterates(DequeV)
def _deque(m: Machine, value: DequeV) -> Value:
    return DequeIterV(value)


class DequeReversedV(ReversedV):
    """The same from its end."""

    of: DequeV

    def __init__(self, of: DequeV) -> None:
        super().__init__(of)
        self.state = of.state

    def python_type(self) -> type:
        return type(reversed(deque()))

    def next(self, m: Machine) -> Value | None:
        return _refuse(m) if self.of.state != self.state else super().next(m)
