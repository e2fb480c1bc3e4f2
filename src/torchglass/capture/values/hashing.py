"""How symbolic values become keys of Python dictionaries inside the machine."""

from __future__ import annotations

from typing import Any

from ..errors import Unsupported
from .base import NotConstant, Value


class IdentityKey:
    """Key of a value that hashes by identity and was made inside: equal only to itself."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and other.value is self.value


def hash_key(value: Value) -> Any:
    """A hashable object that is equal for two values exactly when Python would find their objects equal as keys."""
    try:
        constant = value.as_constant()
        hash(constant)
        return constant
    except NotConstant:
        pass
    except TypeError:
        raise Unsupported(f"a {value.describe()} as dictionary key or set item") from None
    items = getattr(value, "items", None)
    if isinstance(items, list) and value.python_type() is not list:
        if not all(isinstance(i, Value) for i in items):
            raise Unsupported("a tuple as key whose items were not read")
        return tuple(hash_key(i) for i in items)
    if value.python_type().__hash__ is None:
        raise Unsupported(f"an unhashable {value.describe()} as key")
    real = getattr(value, "real", None)
    if real is not None:
        return real
    if value.python_type().__hash__ is not object.__hash__ and not hasattr(value, "node"):
        raise Unsupported(f"a {value.describe()} with its own __hash__ as key")
    return IdentityKey(value)
