"""Lists, tuples, sets and slices of symbolic values.

A container that existed before the call keeps its ``real`` object and ``source``; its items are wrapped (and guarded)
when they are first read, and writes change only the symbolic items: the entry code replays them once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from types import CellType
from typing import Any

import torch

from ...bytecode.objects import namesake
from ...records.sources import Attr, Computed, Fixed, Item, Source
from ..errors import Unsupported
from ..protocol import Lazy, Machine, Value
from ..values.binding import class_attr
from .constant import ConstantV, is_none
from .hashing import IdentityKey, hash_key
from .number import LengthV, operation


def _at(real: Any, index: int) -> Any:
    return list.__getitem__(real, index) if isinstance(real, list) else real[index]


class SequenceV(Value):
    """What lists and tuples share: ``items`` holds values or not yet read Lazy items."""

    cls: type
    real: Any
    items: list[Any]

    def __init__(
        self, items: list[Any], cls: type | None = None, real: Any = None, source: Source | None = None
    ) -> None:
        self.items = items
        self.cls = cls or self.default_class
        self.real = real
        self.source = source

    default_class: type = list

    @classmethod
    def existing(cls, real: Any, source: Source | None) -> SequenceV:
        """Wrap a list or tuple of the user's; items stay unread."""
        items = [Lazy(item, Item(source, n) if source else None) for n, item in enumerate(cls.held(real))]
        return cls(items, type(real), real, source)

    @classmethod
    def held(cls, real: Any) -> Iterator[Any]:
        """The items that an object of a subclass holds as one, whatever its own ``__iter__`` gives."""
        kind: Any = cls.default_class
        return kind.__iter__(real) if isinstance(real, kind) else iter(real)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.cls.__name__}, {len(self.items)} items)"

    def at(self, m: Machine, index: int) -> Value:
        """The item at ``index`` (in range), wrapped if it was not yet read."""
        item = self.items[index]
        if isinstance(item, Lazy):
            item = self.items[index] = m.forced(item)
        return item

    def all(self, m: Machine) -> list[Value]:
        return [self.at(m, n) for n in range(len(self.items))]

    def truth(self, m: Machine) -> bool:
        return bool(self.items)

    def length(self, m: Machine) -> int:
        return len(self.items)

    def contains(self, m: Machine, item: Value) -> bool:
        return any(m.equal(other, item) for other in self.all(m))

    def get_item(self, m: Machine, key: Value) -> Value:
        index = key.as_index(m, self.default_class().__getitem__)
        if isinstance(index, slice):
            self.all(m)
            chosen = m.real(list.__getitem__, self.items, index)
            if self.cls is tuple and index.step in (None, 1) and len(chosen) == len(self.items):
                return self
            # slicing a namedtuple gives a plain tuple; slicing a list, list or torch.Size keeps the type
            keep = self.cls if self.cls in (list, tuple, torch.Size) else self.default_class
            return type(self)(chosen, keep)
        if not -len(self.items) <= index < len(self.items):
            m.throw_as(self.default_class().__getitem__, 0)  # subclasses do not name themselves
        return self.at(m, index % len(self.items))


class TupleV(SequenceV):
    """A tuple, ``torch.Size`` or namedtuple (``cls`` says which)."""

    default_class = tuple

    def set_item(self, m: Machine, key: Value, value: Value) -> None:
        m.throw_as(operator.setitem, namesake(self.cls), 0, None)

    def del_item(self, m: Machine, key: Value) -> None:
        m.throw_as(operator.delitem, namesake(self.cls), 0)

    def as_constant(self) -> Any:
        values = [i.as_constant() for i in self.items]
        if self.real is not None and hasattr(self.cls, "n_fields"):
            return self.real  # `sys.version_info` is of a class that makes no other
        if hasattr(self.cls, "_make"):
            return self.cls._make(values)
        return self.cls(values)

    def get_attr(self, m: Machine, name: str) -> Value:
        fields: Any = getattr(self.cls, "_fields", None) or getattr(self.cls, "__match_args__", ())
        if name in fields and len(fields) == len(self.items):
            return self.at(m, fields.index(name))
        return class_attr(m, self, name)


KINDS: dict[type, type[ListV]] = {}
"""What stands for objects of a class that holds items in order and may grow; ``stands_for`` fills it."""


def stands_for(cls: type) -> Callable[[type[ListV]], type[ListV]]:
    """Enter a kind of lists as what stands for the objects of a class."""

    def enter(kind: type[ListV]) -> type[ListV]:
        assert cls not in KINDS, f"{cls.__name__} has a kind already"
        KINDS[cls], kind.default_class = kind, cls
        return kind

    return enter


@stands_for(list)
class ListV(SequenceV):
    """A list, or what holds items as one does and may grow (``meanings/of_types/deques.py``).

    One that was there before the call is ``unread`` until somebody asks for ``items``: only then is its length guarded.
    What was appended before that is its ``tail``, so a list that is only appended to, or of which single items are read
    (``losses[-1]``), may have any length.
    """

    machine: Machine | None = None  # of an unread list
    tail: list[Any]
    singly: dict[int, Value]  # items that were read of an unread list, by index as the program wrote it

    @classmethod
    def unread(cls, m: Machine, real: Any, source: Source) -> ListV:
        made = cls([], type(real), real, source)
        made.machine, made.tail, made.singly = m, made.items, {}
        return made

    @property
    def items(self) -> list[Any]:
        m = self.machine
        if m is not None:
            assert self.source is not None
            self.machine = None
            before: list[Any] = [Lazy(item, Item(self.source, n)) for n, item in enumerate(self.held(self.real))]
            for index, value in self.singly.items():
                before[index] = value
            m.guard(self.source, "length", len(before), "its length was relied on")
            self._items = before + self.tail
            self.keep_bounded()
        return self._items

    @items.setter
    def items(self, items: list[Any]) -> None:
        self._items = items

    def grow(self, m: Machine, values: list[Value]) -> None:
        """Append ``values``, which needs to know nothing of what is there."""
        m.mutate(self)
        if self.machine is not None:
            self.tail += values
        else:
            self._items += values
            self.keep_bounded()

    def keep_bounded(self) -> None:
        """Let go of items where the kind bounds their number."""

    def like(self, items: list[Any]) -> ListV:
        """A new one of this kind."""
        return ListV(items)

    def replace(self, m: Machine, items: list[Any]) -> None:
        """Hold these items instead."""
        m.mutate(self)
        self.items = items

    def arguments_of(self, items: str) -> str:
        """What makes such an object of ``items``, a list's text."""
        return items

    written_whole = True  # or item by item, which iterators outlive

    def overwriting(self, target: str, items: str) -> list[str]:
        """The statements that make ``target`` hold ``items`` instead."""
        return [f"{target}[:] = {items}" if self.cls is list else f"list.__setitem__({target}, slice(None), {items})"]

    def truth(self, m: Machine) -> bool:
        length = self.changing_length(m)
        return super().truth(m) if length is None else length.truth(m)

    def changing_length(self, m: Machine) -> Value | None:
        if self.machine is None or self.source not in m.changes or type(self.real) is not self.default_class:
            return None
        real: Any = self.real
        whole = LengthV(m, self, len(real))
        return operation(m, operator.add, whole, ConstantV(len(self.tail))) if self.tail else whole

    def get_item(self, m: Machine, key: Value) -> Value:
        if self.machine is not None:
            index = key.as_index(m, [].__getitem__)
            if isinstance(index, int) and -len(self.tail) - len(self.real) <= index < len(self.real):
                return self._single(m, index)
        return super().get_item(m, key)

    def _single(self, m: Machine, index: int) -> Value:
        """An item of an unread list, which says nothing of its length."""
        if -len(self.tail) <= index < 0:
            return m.forced(self.tail[index])
        assert self.source is not None
        index += len(self.tail) if index < 0 else 0
        if index not in self.singly:
            self.singly[index] = m.forced(Lazy(_at(self.real, index), Item(self.source, index)))
        return self.singly[index]

    def as_constant(self) -> Any:
        with self.once():
            return [i.as_constant() for i in self.items]

    def get_attr(self, m: Machine, name: str) -> Value:
        return class_attr(m, self, name)

    def set_item(self, m: Machine, key: Value, value: Value) -> None:
        index = key.as_index(m, [].__getitem__)
        self.all(m)
        m.mutate(self)
        if isinstance(index, slice):
            m.real(list.__setitem__, self.items, index, m.listed(value))
        else:
            m.real(list.__setitem__, self.items, index, value)

    def del_item(self, m: Machine, key: Value) -> None:
        self.all(m)
        m.mutate(self)
        m.real(list.__delitem__, self.items, key.as_index(m, [].__getitem__))


class SetV(Value):
    """A set or frozenset; ``items`` maps hash keys to values in insertion order."""

    def __init__(self, items: list[Value], cls: type = set, real: Any = None, source: Source | None = None) -> None:
        self.cls = cls
        self.items: dict[Any, Value] = {}
        self.order: set[Any] = set()  # the keys, in the order in which Python goes through them
        for item in items:
            self.put(item)
        self.real = real
        self.source = source

    def as_constant(self) -> Any:
        return self.cls(v.as_constant() for v in self.items.values())

    def get_attr(self, m: Machine, name: str) -> Value:
        return class_attr(m, self, name)

    def truth(self, m: Machine) -> bool:
        return bool(self.items)

    def length(self, m: Machine) -> int:
        return len(self.items)

    def in_order(self) -> list[Value]:
        """The members as iterating over a real set gives them; as they were added where that cannot be known."""
        if not self.known_order() or (self.real is not None and self.real == self.items.keys()):
            return list(self.items.values())
        return [self.items[key] for key in self.order]

    def put(self, item: Value) -> None:
        key = hash_key(item)
        self.items.setdefault(key, item)
        self.order.add(key)

    def known_order(self) -> bool:
        """No member is made inside and hashes by identity."""
        return not any(isinstance(key, IdentityKey) for key in self.items)

    def contains(self, m: Machine, item: Value) -> bool:
        return hash_key(item) in self.items


def combined(rule: str, cls: type, *sets: dict[Any, Value]) -> SetV:
    """What the set method ``rule`` makes of members by key: a real set says which, and in what order."""
    first, *others = (set(iter(keys)) for keys in sets)
    chosen = getattr(first, rule)(*others)
    values = {id(key): value for members in sets for key, value in members.items()}
    made = SetV([], cls)
    made.items = {key: values[id(key)] for key in chosen}
    made.order = chosen
    if not made.known_order():
        made.items = {key: made.items[key] for members in sets for key in members if key in chosen}
    return made


def _slicing(index: Any) -> Any:
    return [][index:]


class SliceV(Value):
    """A slice whose parts may be symbolic."""

    cls = slice

    def __init__(self, parts: list[Value]) -> None:
        self.parts = parts

    def as_constant(self) -> Any:
        return slice(*[p.as_constant() for p in self.parts])

    def as_index(self, m: Machine, user: Callable[[Any], Any] = operator.index) -> Any:
        none = [is_none(part) for part in self.parts]
        return slice(*(None if no else part.as_index(m, _slicing) for no, part in zip(none, self.parts)))

    def get_attr(self, m: Machine, name: str) -> Value:
        if name in ("start", "stop", "step"):
            return self.parts[("start", "stop", "step").index(name)]
        return class_attr(m, self, name)


class CellV(Value):
    """A closure cell. ``content`` is None while empty."""

    cls = CellType

    def __init__(self, content: Value | Lazy | None = None, real: Any = None, source: Source | None = None) -> None:
        self.content = content
        self.real = real
        self.source = source
        self.written = False

    def get(self, m: Machine) -> Value | None:
        if isinstance(self.content, Lazy):
            self.content = m.forced(self.content)
        if self.content is None and self.real is not None and not self.written:
            cell = self.source if self.source is not None else Fixed(self.real)
            empty = Computed(operator.eq, "{} == types.CellType()", (cell, Fixed(CellType())))
            m.guard(empty, "constant", True, "a variable had no value")
        return self.content

    def set(self, m: Machine, value: Value | None) -> None:
        m.mutate(self)
        self.written = True
        self.content = value

    def get_attr(self, m: Machine, name: str) -> Value:
        if name == "cell_contents":
            value = self.get(m)
            if value is None:
                m.throw_as(getattr, CellType(), name)
            return value
        raise Unsupported(f"attribute `{name}` of a cell")

    @classmethod
    def existing(cls, real: Any, source: Source | None) -> CellV:
        try:
            content: Lazy | None = Lazy(real.cell_contents, Attr(source, "cell_contents") if source else None)
        except ValueError:
            content = None
        return cls(content, real, source)


def tuple_of(values: list[Value]) -> TupleV:
    return TupleV(list(values))


def is_size(args: list[Value]) -> bool:
    """Whether an old constructor is called with a ``torch.Size``, not with numbers to hold."""
    return len(args) == 1 and args[0].python_type() is torch.Size
