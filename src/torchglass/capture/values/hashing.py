"""How symbolic values become keys of Python dictionaries inside the machine."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from ..errors import Unsupported
from ..protocol import Machine, NotConstant, Value
from .converted_branches import refuse_identity


class Keys(dict[int, Value]):
    """Objects of before the call that were keys or members, by the ids of their values."""


class IdentityKey:
    """Key of a value that hashes by identity and was made inside: equal only to itself."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and other.value is self.value


class EqualKey(IdentityKey):
    """Key of an object whose class says in Python what is equal: its ``__hash__`` and ``__eq__`` are interpreted."""

    __slots__ = ("hashed", "m")

    def __init__(self, m: Machine, value: Value, hashed: int) -> None:
        super().__init__(value)
        self.m, self.hashed = m, hashed

    def __hash__(self) -> int:
        return self.hashed

    def __eq__(self, other: object) -> bool:
        theirs = other.value if isinstance(other, IdentityKey) else self.m.wrap_result(other)
        return self.m.equal(self.value, theirs)


def says_what_is_equal(value: Value) -> bool:
    """Whether Python code decides what ``value`` is equal to as a key."""
    cls = value.python_type()
    return not hasattr(value, "node") and type(cls.__hash__) is FunctionType and not value.is_constant()


def prepare(m: Machine, value: Value) -> None:
    """Let an object that may become a key, or those in a tuple, have its ``__hash__`` interpreted; note those that were
    there before the call and are told apart by identity.
    """
    refuse_identity(m, [value])
    # of a list the items would be read in vain, and its length guarded
    items = getattr(value, "items", None) if issubclass(value.python_type(), tuple) else None
    if isinstance(items, list):
        for item in items:
            prepare(m, item)
        return
    for name in ("__hash__", "__eq__"):
        m.class_lookup(value.python_type(), name)
    if says_what_is_equal(value):
        value.asked_by = m
    elif value.source is not None and getattr(value, "real", None) is not None:
        m.state(Keys)[id(value)] = value


def rely_on(m: Machine, key: Any) -> None:
    """Guard that a key which an existing dictionary was asked for, or what is in it, is the same object."""
    if type(key) is tuple:
        for part in key:
            rely_on(m, part)
    known = m.wrapped.get(id(key))
    if known is not None and known[1].source is not None:
        m.guard(known[1].source, "identity", key, "it was looked up as a key")


def _equal_key(value: Value) -> EqualKey:
    m = value.asked_by
    if m is None:
        raise Unsupported(f"{value.a()} with its own __hash__ as key")
    hashed = m.call(m.get_attr(value, "__hash__"), [], {})
    if not isinstance(hashed.as_constant() if hashed.is_constant() else None, int):
        raise Unsupported(f"the hash of {value.a()}")
    return EqualKey(m, value, hash(hashed.as_constant()))


def hash_key(value: Value) -> Any:
    """A hashable object that is equal for two values exactly when Python would find their objects equal as keys."""
    try:
        constant = value.as_constant()
        hash(constant)
        return constant
    except NotConstant:
        pass
    except TypeError:
        raise Unsupported(f"{value.a()} as dictionary key or set item") from None
    items = getattr(value, "items", None)
    if isinstance(items, list) and value.python_type() is not list:
        if not all(isinstance(i, Value) for i in items):
            raise Unsupported("a tuple as key whose items were not read")
        return tuple(hash_key(i) for i in items)
    if value.python_type().__hash__ is None:
        raise Unsupported(f"an unhashable {value.describe()} as key")
    if says_what_is_equal(value):
        return _equal_key(value)
    real = getattr(value, "real", None)
    if real is not None:
        return real
    if value.python_type().__hash__ is not object.__hash__ and not hasattr(value, "node"):
        raise Unsupported(f"{value.a()} with its own __hash__ as key")
    return IdentityKey(value)
