"""Dictionaries: exact dicts, OrderedDict, defaultdict, and the instance dictionaries of objects.

A dictionary that existed before the call is an overlay: reads go to the real one key by key (guarding just that key),
writes stay in ``items``; only what needs all keys (len, iteration, equality) guards the key list.
"""

from __future__ import annotations

import operator
from collections import OrderedDict, defaultdict
from types import MappingProxyType
from typing import Any, Protocol

from ...records.sources import DictKey, InstanceDict, Item, Source, key_text
from ..errors import Unsupported
from ..protocol import MISSING, Lazy, Machine, NotConstant, Value
from ..values.binding import class_attr
from ..values.overlays import Overlays
from .constant import NONE, ConstantV, is_constant_object
from .containers import tuple_of
from .hashing import EqualKey, IdentityKey, hash_key, rely_on, says_what_is_equal
from .number import LengthV
from .overlays import set_overlay


class _Deleted:
    """Marks a key of the real dictionary that was deleted symbolically."""


DELETED = _Deleted()


def _held(cls: Any, real: Any) -> dict[Any, Any]:
    """What an object of a subclass of ``cls`` holds as one, whatever its own methods answer."""
    return {key: dict.__getitem__(real, key) for key in cls.__iter__(real)}


class Watching(Protocol):
    """An iterator over a dictionary, which must know of keys that come and go."""

    def added(self, key: Any) -> None: ...
    def removed(self, key: Any) -> None: ...


class DictV(Value):
    """A dictionary. ``items`` maps hash keys to values; ``keys`` keeps the key values that are not plain constants.
    ``attrs`` are the attributes that an OrderedDict made inside was given (``state_dict()`` has ``_metadata``).
    """

    def __init__(self, cls: type = dict, real: Any = None, source: Source | None = None) -> None:
        self.cls = cls
        self.real = real
        self.held: Any = real if real is None or type(real) is cls else _held(cls, real)
        self.source = source
        self.items: dict[Any, Any] = {}
        self.key_values: dict[Any, Value] = {}
        self.complete = real is None
        self.default_factory: Value = NONE
        self.iterators: list[Watching] = []  # over it, that have not ended
        self.attrs: dict[str, Value] = {}

    def __repr__(self) -> str:
        return f"DictV({self.cls.__name__}, {list(self.items)[:8]})"

    @classmethod
    def of(cls, pairs: list[tuple[Value, Value]]) -> DictV:
        result = cls()
        for key, value in pairs:
            result.put(key, value)
        return result

    def as_constant(self) -> Any:
        if not self.complete:
            raise NotConstant(self)
        result = {}
        with self.once():
            for k, v in self.items.items():
                if isinstance(k, IdentityKey):
                    raise NotConstant(self)
                result[k] = v.as_constant()
        if self.cls is defaultdict:
            return defaultdict(self.default_factory.as_constant(), result)
        return result if self.cls is dict else self.cls(result)

    # --- raw access (no mutation record) --------------------------------------------------------------------------
    def lookup(self, m: Machine, key: Any) -> Value | None:
        """The value at a hash key, None when it is missing (guarded either way)."""
        if type(key) is not str and self.real is not None:
            rely_on(m, key)
        if isinstance(key, EqualKey):
            self.fill(m)  # the real keys are to be asked symbolically
        if key in self.items:
            value = self.items[key]
            if isinstance(value, Lazy):
                value = self.items[key] = m.forced(value)
            return None if value is DELETED else value
        if self.complete:
            return None
        if key in self.held:
            value = m.wrap(self.held[key], Item(self.source, key) if self.source else None)
            self.items[key] = value
            return value
        if self.source is not None:
            m.guard(self.source, "dict_lacks", key, f"looked for {key_text(key)} and did not find it")
        return None

    def put(self, key: Value, value: Value) -> None:
        hashed = hash_key(key)
        if hashed in self.items and self.items[hashed] is DELETED:
            del self.items[hashed]
        if self.iterators and hashed not in self.items:
            for iterator in self.iterators:
                iterator.added(hashed)
        self.items[hashed] = value
        if not isinstance(key, ConstantV):
            self.key_values.setdefault(hashed, key)

    def fill(self, m: Machine) -> None:
        """Know all keys, in order."""
        if self.complete:
            return
        if self.source is not None:
            m.guard(self.source, "dict_keys", list(self.held), "depended on all keys")
        written, self.items = self.items, {}
        for n, (key, value) in enumerate(self.held.items()):
            hashed, source = key, Item(self.source, key) if self.source else None
            if not is_constant_object(key):
                known = m.wrap(key, DictKey(self.source, n) if self.source else None)
                if type(key) is tuple:
                    known = m.settled_key(known)
                if says_what_is_equal(known):
                    hashed = hash_key(m.settled_key(known))
                self.key_values[hashed] = known
            if written.get(hashed) is not DELETED:
                self.items[hashed] = written[hashed] if hashed in written else Lazy(value, source)
        for key, value in written.items():
            if value is not DELETED:
                self.items.setdefault(key, value)
        self.complete = True

    def key_value(self, key: Any) -> Value:
        return self.key_values.get(key) or ConstantV(key)

    # --- what Python does with a dictionary ------------------------------------------------------------------------
    def all_keys(self, m: Machine) -> list[Value]:
        self.fill(m)
        return [self.key_value(k) for k in self.items]

    def pairs(self, m: Machine) -> list[tuple[Value, Value]]:
        self.fill(m)
        result = []
        for key in list(self.items):
            value = self.lookup(m, key)
            assert value is not None
            result.append((self.key_value(key), value))
        return result

    def mapping_pairs(self, m: Machine) -> list[tuple[Value, Value]]:
        return self.pairs(m)

    def remove(self, m: Machine, key: Any) -> None:
        # a key that comes back later stands at the end: the order of all must be known
        self.fill(m)
        m.mutate(self)
        del self.items[key]
        for iterator in self.iterators:
            iterator.removed(key)

    def clear(self, m: Machine) -> None:
        m.mutate(self)
        self.fill(m)
        for iterator in self.iterators:
            for key in self.items:
                iterator.removed(key)
        self.items.clear()

    def get_attr(self, m: Machine, name: str) -> Value:
        if name == "default_factory" and self.cls is defaultdict:
            return self.default_factory
        if self.cls is OrderedDict and (name == "__dict__" or m.class_lookup(self.cls, name) is MISSING):
            found = self.attribute(m, name)
            if found is not None:
                return found
        return class_attr(m, self, name)

    def attribute(self, m: Machine, name: str) -> Value | None:
        """What was written to an attribute of this OrderedDict, here or before the call."""
        if name == "__dict__":
            raise Unsupported("`__dict__` of an OrderedDict", "read the attributes by name")
        if self.real is None:
            return self.attrs.get(name)
        written = m.state(Overlays).attribute(self.real, name)
        if written is not None or self.source is None:
            return written
        place = InstanceDict(self.source)
        if name in self.real.__dict__:
            return m.wrap(self.real.__dict__[name], Item(place, name))
        m.guard(place, "dict_lacks", name, f"looked for attribute `{name}` and did not find it")
        return None

    def all_attributes(self, m: Machine) -> dict[str, Value]:
        """The attributes of an OrderedDict by name; what was there before the call is guarded."""
        if self.real is None or self.cls is not OrderedDict:
            return self.attrs
        if self.source is not None:
            m.guard(InstanceDict(self.source), "dict_keys", list(self.real.__dict__), "all attributes were read")
        names = dict.fromkeys([*self.real.__dict__, *m.state(Overlays).names(self.real)])
        found = {name: self.attribute(m, name) for name in names}
        return {name: value for name, value in found.items() if value is not None}

    def set_attr(self, m: Machine, name: str, value: Value) -> None:
        if name == "default_factory" and self.cls is defaultdict and self.real is None:
            self.default_factory = value
        elif self.cls is not OrderedDict or m.class_lookup(self.cls, name) is not MISSING:
            super().set_attr(m, name, value)
        elif self.real is None:
            self.attrs[name] = value
        else:
            set_overlay(m, self, name, value)

    def truth(self, m: Machine) -> bool:
        length = self.changing_length(m)
        return self.length(m) > 0 if length is None else length.truth(m)

    def changing_length(self, m: Machine) -> Value | None:
        as_found = not self.complete and id(self) not in m.mutated
        if not as_found or self.source not in m.changes or type(self.real) not in (dict, OrderedDict, defaultdict):
            return None
        return LengthV(m, self, len(self.real))

    def length(self, m: Machine) -> int:
        self.fill(m)
        return len(self.items)

    def contains(self, m: Machine, item: Value) -> bool:
        key = hash_key(item)
        if isinstance(key, EqualKey):
            self.fill(m)
        if not self.complete and key not in self.items and self.source is not None and key in self.held:
            rely_on(m, key)
            m.guard(self.source, "dict_has", key, f"asked whether {key_text(key)} is in it")
            return True
        return self.lookup(m, key) is not None

    def get_item(self, m: Machine, key: Value) -> Value:
        value = self.lookup(m, hash_key(key))
        if value is None and self.cls is defaultdict and not isinstance(self.default_factory, ConstantV):
            value = m.call(self.default_factory, [], {})
            self.set_item(m, key, value)
        if value is None:
            m.throw(KeyError, key)
        assert value is not None
        return value

    def set_item(self, m: Machine, key: Value, value: Value) -> None:
        if self.cls is MappingProxyType:
            m.throw_as(operator.setitem, MappingProxyType({}), None, None)
        m.mutate(self)
        self.put(key, value)

    def del_item(self, m: Machine, key: Value) -> None:
        if self.cls is MappingProxyType:
            m.throw_as(operator.delitem, MappingProxyType({}), None)
        hashed = hash_key(key)
        if self.lookup(m, hashed) is None:
            m.throw(KeyError, key)
        self.remove(m, hashed)


class DictViewV(Value):
    """``d.keys()``, ``d.values()`` or ``d.items()``."""

    TYPES = {"keys": type({}.keys()), "values": type({}.values()), "items": type({}.items())}

    def __init__(self, of: DictV, kind: str) -> None:
        self.of = of
        self.kind = kind

    def python_type(self) -> type:
        return self.TYPES[self.kind]

    def listed(self, m: Machine) -> list[Value]:
        self.of.fill(m)
        return [self.entry(m, key) for key in list(self.of.items)]

    def entry(self, m: Machine, key: Any) -> Value:
        """What iteration gives at the hash key ``key``."""
        if self.kind == "keys":
            return self.of.key_value(key)
        value = self.of.lookup(m, key)
        assert value is not None
        return value if self.kind == "values" else tuple_of([self.of.key_value(key), value])

    def length(self, m: Machine) -> int:
        return self.of.length(m)

    def truth(self, m: Machine) -> bool:
        return self.of.truth(m)

    def contains(self, m: Machine, item: Value) -> bool:
        if self.kind == "keys":
            return self.of.contains(m, item)
        return any(m.equal(other, item) for other in self.listed(m))

    def get_attr(self, m: Machine, name: str) -> Value:
        return class_attr(m, self, name)
