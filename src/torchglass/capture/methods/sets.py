"""Methods of sets and frozensets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..values.constant import NONE, ConstantV
from ..values.containers import SetV
from ..values.hashing import hash_key
from .table import method

if TYPE_CHECKING:
    pass


def _keys(m, values):
    """The members by hash key; a frozenset that is a constant has no ``items``."""
    return {hash_key(v): v for v in map(m.settled_key, m.listed(values))}


@method(set)
def add(m, self, value):
    m.mutate(self)
    self.items.setdefault(hash_key(value), value)
    return NONE


@method(set)
def discard(m, self, value):
    m.mutate(self)
    self.items.pop(hash_key(value), None)
    return NONE


@method(set, name="remove")
def set_remove(m, self, value):
    if hash_key(value) not in self.items:
        m.throw(KeyError, value)
    return discard(m, self, value)


@method(set, name="update")
def set_update(m, self, *others):
    m.mutate(self)
    for other in others:
        for key, value in _keys(m, other).items():
            self.items.setdefault(key, value)
    return NONE


@method(set, name="clear")
def set_clear(m, self):
    m.mutate(self)
    self.items.clear()
    return NONE


@method(set, frozenset, name="copy")
def set_copy(m, self):
    if self.python_type() is frozenset:
        return self
    return SetV(list(_keys(m, self).values()), self.python_type())


@method(set, name="pop")
def set_pop(m, self):
    if not self.items:
        m.throw(KeyError, "pop from an empty set")
    # which one goes is the set's own affair: ask a real set, when its members are constants
    chosen = m.real(set(m.settle(self).as_constant()).pop)
    m.mutate(self)
    return self.items.pop(chosen)


def _set_update(combine):
    def update(m, self, *others):
        result = combine(m, self, *others)
        m.mutate(self)
        self.items = result.items
        return NONE

    return update


def _set_rule(keep):
    def combine(m, self, *others):
        items = _keys(m, self)
        for other in others:
            theirs = _keys(m, other)
            items = {k: v for k, v in {**items, **theirs}.items() if keep(k in items, k in theirs)}
        return SetV(list(items.values()), self.python_type())

    return combine


for _name, _keep in {
    "union": lambda a, b: True,
    "intersection": lambda a, b: a and b,
    "difference": lambda a, b: a and not b,
    "symmetric_difference": lambda a, b: a != b,
}.items():
    _combine = method(set, frozenset, name=_name)(_set_rule(_keep))
    if _name != "union":
        method(set, name=f"{_name}_update")(_set_update(_combine))


@method(set, frozenset)
def issubset(m, self, other):
    return ConstantV(_keys(m, self).keys() <= _keys(m, other).keys())


@method(set, frozenset)
def issuperset(m, self, other):
    return ConstantV(_keys(m, self).keys() >= _keys(m, other).keys())


@method(set, frozenset)
def isdisjoint(m, self, other):
    return ConstantV(not (_keys(m, self).keys() & _keys(m, other).keys()))
