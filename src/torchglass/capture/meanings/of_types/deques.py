"""Deques: lists with a greatest length, which notice when they change while somebody goes through them.

All that capture knows of them stands here, as of any further kind of container: what stands for one, its iterators, its
methods, and what a deep copy begins with.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterator
from typing import Any, NoReturn

from ....bytecode.objects import namesake
from ....records.sources import Attr, Source
from ...polyfills import copies
from ...protocol import MISSING, Machine, Value
from ...values.constant import NONE, ConstantV
from ...values.containers import ListV, TupleV, stands_for
from ...values.iterators import GOES_DOWN, ReversedV, SequenceIterV, iterates
from ...values.number import called
from ..proxies import Proxy
from ..registry import handles, method
from .lists import ONE, ZERO, grow, list_iadd

MUTATED = "deque mutated during iteration"


@stands_for(deque)
class DequeV(ListV):
    """A deque; ``state`` counts the changes that an iterator does not survive."""

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
        super().__init__(of, type(iter(deque())))
        self.of = of
        self.state = of.state

    def outlived(self) -> str:
        return "an iterator over a deque that was changed" if self.of.state != self.state else ""

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


GOES_DOWN[DequeV] = DequeReversedV
copies.EMPTY[deque] = lambda value, part: deque(maxlen=value.maxlen)


# -- its constructor and methods ------------------------------------------------------------------------------------
@handles(deque)
def make_deque(m, args, kwargs):
    options = {name: value.as_constant() for name, value in kwargs.items() if name != "iterable"}
    empty = m.real(deque, (), *[a.as_constant() for a in args[1:]], **options)  # raises what Python raises
    values = args[0] if args else kwargs.get("iterable", TupleV([]))
    return DequeV.of(list(m.listed(values)), empty.maxlen)


@method(deque)
def append(m, self, value):
    self.grow(m, [value])
    return NONE


@method(deque)
def appendleft(m, self, value):
    self.change(m)
    self.items.insert(0, value)
    if self.maxlen is not None:
        del self.items[self.maxlen :]
    return NONE


@method(deque)
def extend(m, self, values):
    grow(m, self, values)
    return NONE


@method(deque)
def extendleft(m, self, values):
    for value in m.listed(values):
        appendleft(m, self, value)
    return NONE


@method(deque)
def insert(m, self, index, value):
    if self.maxlen is not None and len(self.items) >= self.maxlen:
        m.throw_as(deque(maxlen=0).insert, 0, None)
    self.change(m)
    self.items.insert(index.as_index(m), value)
    return NONE


@method(deque, name="pop")
def deque_pop(m, self):
    return _taken(m, self, -1)


@method(deque)
def popleft(m, self):
    return _taken(m, self, 0)


def _taken(m, self, index):
    if not self.items:
        m.throw_as(deque().pop)
    self.change(m)
    return self.items.pop(index)


@method(deque, name="remove")
def deque_remove(m, self, value):
    for n, item in enumerate(self.all(m)):
        state = self.state
        found = m.equal(item, value)
        if self.state != state:
            m.throw(IndexError, MUTATED)
        if found:
            self.change(m)
            del self.items[n]
            return NONE
    m.throw_as(deque().remove, Proxy(m, value))


@method(deque, name="clear")
def deque_clear(m, self):
    self.replace(m, [])
    return NONE


@method(deque, name="index")
def deque_index(m, self, value, start=ZERO, stop=NONE):
    window = range(*slice(start.as_index(m), stop.as_constant()).indices(len(self.items)))
    for n, item in enumerate(self.compared(m)):
        if n in window and m.equal(item, value):
            return ConstantV(n)
    m.throw_as(deque().index, Proxy(m, value))


@method(deque, name="count")
def deque_count(m, self, value):
    return ConstantV(sum(m.equal(item, value) for item in self.compared(m)))


@method(deque, name="reverse")
def deque_reverse(m, self):
    m.mutate(self)
    self.all(m)
    self.items.reverse()
    return NONE


@method(deque)
def rotate(m, self, steps=ONE):
    self.change(m)
    cut = -steps.as_index(m) % max(len(self.items), 1)
    self.items[:] = self.items[cut:] + self.items[:cut]
    return NONE


@method(deque, name="copy")
def deque_copy(m, self):
    return self.like(list(self.all(m)))


method(deque, name="__iadd__")(list_iadd)
