"""Methods of sets and frozensets."""

from __future__ import annotations

from ...values.constant import NONE, ConstantV
from ...values.containers import SetV, combined
from ...values.hashing import hash_key
from ..registry import method


def _keys(m, values):
    """The members by hash key; a frozenset that is a constant has no ``items``."""
    return {hash_key(v): v for v in map(m.settled_key, m.listed(values))}


@method(set)
def add(m, self, value):
    m.mutate(self)
    self.put(value)
    return NONE


@method(set)
def discard(m, self, value):
    m.mutate(self)
    key = hash_key(value)
    self.items.pop(key, None)
    self.order.discard(key)
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
        for value in _keys(m, other).values():
            self.put(value)
    return NONE


@method(set, name="__init__")
def set_init(m, self, values=None):
    set_clear(m, self)
    if values is not None:
        set_update(m, self, values)
    return NONE


@method(set, name="clear")
def set_clear(m, self):
    m.mutate(self)
    self.items.clear()
    self.order.clear()
    return NONE


@method(set, frozenset, name="copy")
def set_copy(m, self):
    if isinstance(self, ConstantV) or (self.python_type() is frozenset and type(self.real) in (frozenset, type(None))):
        return self
    return SetV(list(_keys(m, self).values()), self.python_type())


@method(set, name="pop")
def set_pop(m, self):
    if not self.items:
        m.throw_as(set().pop)
    m.settle(self).as_constant()  # which one goes is known of constants alone
    chosen = hash_key(self.in_order()[0])
    m.mutate(self)
    self.order.discard(chosen)
    return self.items.pop(chosen)


def _set_update(combine):
    def update(m, self, *others):
        result = combine(m, self, *others)
        m.mutate(self)
        self.items, self.order = result.items, result.order
        return NONE

    return update


def _set_rule(name):
    def combine(m, self, *others):
        return combined(name, self.python_type(), *(_keys(m, each) for each in (self, *others)))

    return combine


for _name in ("union", "intersection", "difference", "symmetric_difference"):
    _combine = method(set, frozenset, name=_name)(_set_rule(_name))
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
