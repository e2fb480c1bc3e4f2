"""Methods of dictionaries: dict, OrderedDict, defaultdict, mappingproxy."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from types import MappingProxyType

from ....bytecode.objects import namesake
from ...values.constant import NONE, ConstantV
from ...values.containers import TupleV
from ...values.dicts import DictV, DictViewV
from ...values.hashing import hash_key
from ..registry import method

TRUE = ConstantV(True)


@method(dict, MappingProxyType, name="get")
def dict_get(m, self, key, default=NONE):
    value = self.lookup(m, hash_key(key))
    return default if value is None else value


@method(dict, OrderedDict, name="pop")
def dict_pop(m, self, key, default=None):
    hashed = hash_key(key)
    value = self.lookup(m, hashed)
    if value is None:
        if default is None:
            m.throw(KeyError, key)
        return default
    self.remove(m, hashed)
    return value


@method(dict, OrderedDict)
def setdefault(m, self, key, default=NONE):
    value = self.lookup(m, hash_key(key))
    if value is None:
        self.set_item(m, key, default)
        value = default
    return value


def _pairs(m, cls, values):
    """The pairs of an iterable one by one: those before one that raises are in the dictionary."""
    iterator, number = m.iterate(values), 0
    while (item := iterator.next(m)) is not None:
        yield _pair(m, cls, number, m.forced(item))
        number += 1


def _pair(m, cls, number, item):
    kind = item.python_type()
    iterable = hasattr(kind, "__iter__") or hasattr(kind, "__getitem__")
    pair = m.listed(item) if iterable else []
    if len(pair) != 2:
        like = OrderedDict if issubclass(cls, OrderedDict) else dict
        m.throw_as(like, [*[(None, None)] * number, (None,) * len(pair) if iterable else namesake(kind)])
    return pair


@method(dict, OrderedDict, name="update")
def dict_update(m, self, other=None, /, **kwargs):
    if other is not None:
        is_mapping = isinstance(other, DictV) or "keys" in dir(other.python_type())
        pairs = other.mapping_pairs(m) if is_mapping else _pairs(m, self.cls, other)
        for key, value in pairs:
            self.set_item(m, key, value)
    for name, value in kwargs.items():
        self.set_item(m, ConstantV(name), value)
    return NONE


@method(dict, OrderedDict, MappingProxyType, name="keys")
def dict_keys(m, self):
    return DictViewV(self, "keys")


@method(dict, OrderedDict, MappingProxyType, name="values")
def dict_values(m, self):
    return DictViewV(self, "values")


@method(dict, OrderedDict, MappingProxyType, name="items")
def dict_items(m, self):
    return DictViewV(self, "items")


@method(dict, OrderedDict, name="clear")
def dict_clear(m, self):
    self.clear(m)
    return NONE


@method(dict, OrderedDict, defaultdict, MappingProxyType, name="copy")
def dict_copy(m, self):
    result = DictV.of(self.pairs(m))
    result.cls = dict if self.cls is MappingProxyType else self.cls
    result.default_factory = self.default_factory
    return result


@method(dict, OrderedDict)
def popitem(m, self, last=TRUE):
    keys = self.all_keys(m)
    if not keys:
        m.throw_as((OrderedDict if issubclass(self.cls, OrderedDict) else dict)().popitem)
    key = keys[-1 if m.truth(last) else 0]
    value = self.get_item(m, key)
    self.remove(m, hash_key(key))
    return TupleV([key, value])


@method(OrderedDict)
def move_to_end(m, self, key, last=TRUE):
    self.fill(m)
    m.mutate(self)
    hashed = hash_key(key)
    if hashed not in self.items:
        m.throw(KeyError, key)
    value = self.lookup(m, hashed)
    self.remove(m, hashed)
    self.items = {**self.items, hashed: value} if m.truth(last) else {hashed: value, **self.items}
    return NONE


@method(dict, OrderedDict, name="__init__")
def dict_init(m, self, other=None, /, **kwargs):
    return dict_update(m, self, other, **kwargs)


@method(defaultdict, name="__init__")
def defaultdict_init(m, self, default_factory=NONE, other=None, /, **kwargs):
    self.default_factory = default_factory
    return dict_update(m, self, other, **kwargs)


@method(dict, OrderedDict, name="__setitem__")
def dict_setitem(m, self, key, value):
    self.set_item(m, key, value)
    return NONE


@method(dict, OrderedDict, name="__delitem__")
def dict_delitem(m, self, key):
    self.del_item(m, key)
    return NONE


method(dict, name="__getitem__")(lambda m, self, key: self.get_item(m, key))
method(dict, name="__contains__")(lambda m, self, key: ConstantV(self.contains(m, key)))
