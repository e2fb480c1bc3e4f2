"""Iterators: over sequences, and the suspended frames of generators."""

from __future__ import annotations

import enum
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from types import GeneratorType
from typing import Any, NoReturn

from ..errors import Unsupported, UserError, forget_frames
from ..protocol import Frame, Machine, Value
from ..values.binding import class_attr
from ..values.exceptions import chain, raise_over
from .constant import NONE, ConstantV
from .containers import SequenceV, SetV, tuple_of
from .dicts import DictV, DictViewV
from .known import KnownV

LIST_ITERATOR: type = type(iter([]))


class IteratorV(Value):
    """Base: an iterator is its own iterator."""

    def iterate(self, m: Machine) -> Value:
        return self

    def truth(self, m: Machine) -> bool:
        return True

    def get_attr(self, m: Machine, name: str) -> Value:
        return class_attr(m, self, name)

    def stop(self, m: Machine) -> NoReturn:
        """Raise what says that it has ended."""
        m.throw(StopIteration)

    def contains(self, m: Machine, item: Value) -> bool:
        while (value := self.next(m)) is not None:
            if m.equal(value, item):
                return True
        return False


class SequenceIterV(IteratorV):
    """An iterator over a list of values, or over a symbolic sequence that may grow meanwhile; in eager a ``cls``."""

    def __init__(self, items: list[Value] | SequenceV, cls: type = LIST_ITERATOR) -> None:
        self.items = items
        self.index = 0
        self.cls = cls

    def next(self, m: Machine) -> Value | None:
        if isinstance(self.items, SequenceV):
            if self.index >= len(self.items.items):
                # an iterator that has ended does not go on when its list grows
                self.items = []
                return None
            value = self.items.at(m, self.index)
        else:
            if self.index >= len(self.items):
                return None
            value = self.items[self.index]
        self.index += 1
        return value

    def outlived(self) -> str:
        """What it is, if it can only raise since what it goes through was changed; ''."""
        return ""

    def rest(self, m: Machine) -> list[Value]:
        """The items not yet taken (for entry code that rebuilds the iterator)."""
        items = self.items.all(m) if isinstance(self.items, SequenceV) else self.items
        return items[self.index :]


class RangeIterV(IteratorV):
    """An iterator over a range, which may be long: a loop may leave it early."""

    def __init__(self, numbers: range) -> None:
        self.rest = numbers

    def python_type(self) -> type:
        return type(iter(self.rest))

    def next(self, m: Machine) -> Value | None:
        if not self.rest:
            return None
        value, self.rest = self.rest[0], self.rest[1:]
        return ConstantV(value)


class ReversedV(IteratorV):
    """``reversed(sequence)``: goes down from where the sequence ended when it was made."""

    def __init__(self, of: SequenceV) -> None:
        self.of = of
        self.index = len(of.items) - 1

    def python_type(self) -> type:
        return type(reversed([])) if self.of.cls is list else reversed

    def next(self, m: Machine) -> Value | None:
        if not 0 <= self.index < len(self.of.items):
            self.index = -1
            return None
        self.index -= 1
        return self.of.at(m, self.index + 1)


GOES_DOWN: dict[type, type[ReversedV]] = {}
"""What ``reversed`` gives of a kind of sequences, where that is no plain ``ReversedV``."""


class SetIterV(SequenceIterV):
    """An iterator over a set, which must not change its size meanwhile."""

    def __init__(self, of: SetV) -> None:
        super().__init__(of.in_order(), type(iter(set())))
        self.of = of
        self.size = len(of.items)

    def outlived(self) -> str:
        return "an iterator over a set that was changed" if self.size != len(self.of.items) else ""

    def next(self, m: Machine) -> Value | None:
        if len(self.of.items) != self.size:
            m.throw(RuntimeError, "Set changed size during iteration")
        return super().next(m)


class EnumerateV(IteratorV):
    """``enumerate``: the iterator below and the next number."""

    cls = enumerate

    def __init__(self, inner: Value, number: int) -> None:
        self.inner = inner
        self.number = number

    def next(self, m: Machine) -> Value | None:
        value = self.inner.next(m)
        if value is None:
            return None
        self.number += 1
        return tuple_of([ConstantV(self.number - 1), m.forced(value)])


class DictIterV(SequenceIterV):
    """An iterator over a view of a dictionary, whose values may be replaced meanwhile, but not its keys."""

    def __init__(self, view: DictViewV, m: Machine) -> None:
        view.of.fill(m)
        of: type = OrderedDict if issubclass(view.of.cls, OrderedDict) else dict
        super().__init__([], type(iter(getattr(of(), view.kind)())))
        self.view = view
        self.waiting = dict.fromkeys(view.of.items)  # keys to come: what is added to the dictionary comes last
        self.left = len(self.waiting)  # as many it gives
        self.taken = 0
        self.changed = self.ended = False
        view.of.iterators.append(self)

    def next(self, m: Machine) -> Value | None:
        if self.ended:
            return None
        of = self.view.of
        if self.changed and issubclass(of.cls, OrderedDict):
            m.throw(RuntimeError, "OrderedDict mutated during iteration")
        if len(of.items) != self.taken + self.left:
            m.throw(RuntimeError, "dictionary changed size during iteration")
        if not self.waiting:
            self.ended = True
            of.iterators.remove(self)
            return None
        if not self.left:
            m.throw(RuntimeError, "dictionary keys changed during iteration")
        key = next(iter(self.waiting))
        del self.waiting[key]
        self.taken, self.left = self.taken + 1, self.left - 1
        return self.view.entry(m, key)

    def added(self, key: Any) -> None:
        self.changed = True
        self.waiting[key] = None

    def removed(self, key: Any) -> None:
        self.changed = True
        self.waiting.pop(key, None)

    def rest(self, m: Machine) -> list[Value]:
        return [] if self.ended else [self.view.entry(m, key) for key in self.waiting]


class ZipV(IteratorV):
    """``zip(*iterators)``, lazily."""

    cls = zip

    def __init__(self, iterators: list[Value], strict: bool = False) -> None:
        self.iterators = iterators
        self.strict = strict

    def next(self, m: Machine) -> Value | None:
        row: list[Value] = []
        for n, iterator in enumerate(self.iterators):
            value = iterator.next(m)
            if value is None:
                if self.strict:
                    self._compare_ends(m, n)
                return None
            row.append(value)
        return tuple_of(row) if row else None

    def _compare_ends(self, m: Machine, ended: int) -> None:
        """The iterator at ``ended`` has no more: nor may those before it have given an item, nor those behind it do."""
        longer = next((n for n, i in enumerate(self.iterators[1:], 1) if not ended and i.next(m) is not None), None)
        at = ended or longer
        if at:
            m.throw_as(list, zip(*[range(bool(ended))] * at, range(not ended), strict=True))


class MapV(IteratorV):
    """``map(function, *iterables)``."""

    cls = map

    def __init__(self, function: Value, rows: ZipV) -> None:
        self.function = function
        self.rows = rows

    def next(self, m: Machine) -> Value | None:
        row = self.rows.next(m)
        return None if row is None else _unless_over(lambda: m.call(self.function, m.listed(row), {}))


class FilterV(IteratorV):
    """``filter(predicate, iterable)``; the predicate may be None."""

    cls = filter

    def __init__(self, predicate: Value, inner: Value) -> None:
        self.predicate = predicate
        self.inner = inner

    def next(self, m: Machine) -> Value | None:
        return _unless_over(lambda: self._found(m))

    def _found(self, m: Machine) -> Value | None:
        constant = self.predicate.as_constant() if self.predicate.is_constant() else self.predicate
        plain = constant is None or constant is bool
        while (value := self.inner.next(m)) is not None:
            value = m.forced(value)
            if m.truth(value if plain else m.call(self.predicate, [value], {})):
                return value
        return None


def _unless_over(step: Callable[[], Value | None]) -> Value | None:
    """What a function gives that an iterator in C calls: StopIteration ends the iterator."""
    try:
        return step()
    except UserError as error:
        if issubclass(error.value.python_type(), StopIteration):
            return None
        raise


@dataclass
class WaitingGenerators:
    """Generators that wait in a ``try`` or a ``with``, by their frames."""

    watched: dict[Frame, weakref.ref[GeneratorV]] = field(default_factory=dict)

    def alive(self) -> list[GeneratorV]:
        return [generator for reference in self.watched.values() if (generator := reference()) is not None]


class GeneratorV(IteratorV):
    """A generator made inside: its frame, suspended at a yield."""

    cls = GeneratorType

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.done = False
        self.returned: Value | None = None
        self.names = {"__name__": frame.code.co_name, "__qualname__": frame.code.co_qualname}

    def get_attr(self, m: Machine, name: str) -> Value:
        return m.wrap_result(self.names[name]) if name in self.names else super().get_attr(m, name)

    def set_attr(self, m: Machine, name: str, value: Value) -> None:
        if name not in self.names:
            super().set_attr(m, name, value)
        elif not issubclass(value.python_type(), str):
            m.throw_as(setattr, (_ for _ in ()), name, None)
        else:
            self.names[name] = m.settle(value).as_constant()

    def next(self, m: Machine) -> Value | None:
        return self.send(m, NONE)

    def send(self, m: Machine, value: Value) -> Value | None:
        """Resume with ``value``; None when the generator returned (its result is ``returned``)."""
        self._refuse_reentry(m)
        if self.done:
            self.returned = None
            return None
        return self._step(m, value)

    def result(self) -> Value:
        """What it returned, once: a generator that is asked again has nothing more to give."""
        value, self.returned = self.returned, None
        return NONE if value is None else value

    def stop(self, m: Machine) -> NoReturn:
        """Raise the StopIteration of its end."""
        value = self.result()
        m.throw(StopIteration, *([] if value.is_constant() and value.as_constant() is None else [value]))

    def _refuse_reentry(self, m: Machine) -> None:
        if self.frame in m.frames:
            if self.frame.module_is_ours():
                raise Unsupported("an iterator that is asked for an item while it makes one")
            m.throw(ValueError, "generator already executing")

    def _step(self, m: Machine, value: Value | None) -> Value | None:
        """Go on where it is suspended; ``value`` is None when an exception was thrown into it."""
        try:
            if value is not None and self.frame.finished is not None and self.frame.finished[0] == "yield":
                self.frame.push(value)
            kind, result = self.frame.run(m)
        except UserError as error:
            self.done = True
            if not issubclass(error.value.python_type(), StopIteration):
                raise
            if self.frame.module_is_ours():
                return None
            raise_over(m, RuntimeError("generator raised StopIteration"), error.value)
        except BaseException:
            self.done = True
            raise
        if kind == "return":
            self.done = True
            self.returned = result
            return None
        if self.frame.is_protected():
            self._watch(m)
        return result

    def _watch(self, m: Machine) -> None:
        """Tell the machine when nothing of the program refers to it any more. The program's references are those that
        values and frames hold to this object, so that it dies here when it would die in Python.
        """
        frame, waiting = self.frame, m.state(WaitingGenerators)
        if frame not in waiting.watched:
            dropped = m.dropped
            waiting.watched[frame] = weakref.ref(self, lambda _: dropped.append(frame))

    def throw(self, m: Machine, error: UserError) -> Value | None:
        """Raise ``error`` where the generator is suspended; None when it returned."""
        self._refuse_reentry(m)
        if self.done or self.frame.finished is None or self.frame.finished[0] != "yield":
            self.done = True
            raise error
        if self._delegates() and isinstance(self.frame.stack[-1], GeneratorV):
            try:
                return self._throw_into(m, self.frame.stack[-1], error)
            except UserError as raised:
                forget_frames(raised)
                error = raised
        index = self.frame.instruction().index
        m.frames.append(self.frame)  # what it handles is the context of what is thrown into it
        try:
            if self.frame.handled() is not None:
                chain(m, error.value, anew=True)
            caught = self.frame.unwind(m, error, index)
        finally:
            m.frames.pop()
        if not caught:
            self.done = True
            raise error
        self.frame.finished = None
        return self._step(m, None)

    def _delegates(self) -> bool:
        """Whether it waits in a ``yield from``."""
        after = self.frame.instructions[self.frame.pc : self.frame.pc + 2]
        return [i.opname for i in after] == ["RESUME", "JUMP_BACKWARD_NO_INTERRUPT"]

    def _throw_into(self, m: Machine, inner: GeneratorV, error: UserError) -> Value | None:
        """Let the generator that this one waits for have the exception; what it raises goes on here."""
        if issubclass(error.value.python_type(), GeneratorExit):
            m.call(m.get_attr(inner, "close"), [], {})
            raise error
        result = inner.throw(m, error)
        if result is not None:
            return result
        frame = self.frame
        back = frame.instructions[frame.pc + 1].target
        assert back is not None
        if sys.version_info < (3, 12):
            frame.pop()
        frame.push(inner.result())
        frame.jump(frame.instructions[back])  # behind the SEND that stands there
        frame.finished = None
        return self._step(m, None)


def close_dropped(m: Machine) -> None:
    """Close the generators that wait in a ``try`` or a ``with`` and that nothing refers to any more."""
    waiting = m.state(WaitingGenerators)
    while m.dropped:
        frame = m.dropped.pop()
        del waiting.watched[frame]
        if frame.finished is None or frame.finished[0] != "yield":
            continue
        try:
            m.call(m.get_attr(GeneratorV(frame), "close"), [], {})
        except UserError:
            raise Unsupported("a generator that is dropped and raises when it is closed") from None


# --- what goes through which values -----------------------------------------------------------------------------------
Iterates = Callable[[Machine, Any], Value]


class _Iterates(dict[type, Iterates]):
    """By class; one without a row has that of its nearest base, or of a base its method ``iterate``."""

    def __missing__(self, cls: type) -> Iterates:
        base = next(base for base in cls.__mro__ if base in self or "iterate" in vars(base))
        own: Any = vars(base).get("iterate")
        found = self[cls] = self[base] if base in self else lambda m, value: own(value, m)
        return found


ITERATES = _Iterates()


def iterates(*classes: type) -> Callable[[Iterates], Iterates]:
    """Register how to go through values of these classes."""

    def register(function: Iterates) -> Iterates:
        ITERATES.update(dict.fromkeys(classes, function))
        return function

    return register


@iterates(ConstantV)
def _constant(m: Machine, value: ConstantV) -> Value:
    if type(value.value) is range:
        return RangeIterV(value.value)
    made = m.real(iter, value.value)  # its TypeError is the user's
    return SequenceIterV([m.wrap_result(v) for v in m.real(list, value.value)], type(made))


@iterates(SequenceV)
def _sequence(m: Machine, value: SequenceV) -> Value:
    return SequenceIterV(value, type(iter(() if issubclass(value.cls, tuple) else [])))


@iterates(SetV)
def _set(m: Machine, value: SetV) -> Value:
    return SetIterV(value)


@iterates(DictV)
def _dict(m: Machine, value: DictV) -> Value:
    return DictIterV(DictViewV(value, "keys"), m)


@iterates(DictViewV)
def _view(m: Machine, value: DictViewV) -> Value:
    return DictIterV(value, m)


@iterates(KnownV)
def _known(m: Machine, value: KnownV) -> Value:
    found = value.by_metaclass(m, "__iter__")
    if found is not None:
        return found
    if isinstance(value.real, type) and issubclass(value.real, enum.Enum):
        return SequenceIterV([ConstantV(v) for v in value.real])
    raise Unsupported(f"iterating over the {value.describe()}")
