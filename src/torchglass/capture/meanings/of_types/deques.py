"""Methods of deques."""

from __future__ import annotations

from collections import deque

from ...values.constant import NONE, ConstantV
from ...values.containers import TupleV
from ...values.deques import DequeV
from ..proxies import Proxy
from ..registry import handles, method
from .lists import ONE, ZERO, grow


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
            m.throw(IndexError, "deque mutated during iteration")
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
    cut = -steps.as_index(m) % len(self.items) if self.items else 0
    self.items[:] = self.items[cut:] + self.items[:cut]
    return NONE


@method(deque, name="copy")
def deque_copy(m, self):
    return self.like(list(self.all(m)))
