"""Fields of records that are kept as compressed bytes and made anew for each reader.

What a compile leaves for people is texts and rows, megabytes for each entry, and most of it is never read: packed it
takes a twentieth. Text, numbers, containers and the records of this package are packed; all else (a dtype, an operator,
a tensor) stays the object it is. Readers get a copy of their own: to change a field, assign to it.

>>> row = Packed(({"text": "abc" * 1000}, 1.5))
>>> row.size < 100, row.value == ({"text": "abc" * 1000}, 1.5)
(True, True)
"""

from __future__ import annotations

import io
import pickle
import zlib
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from .origin import UNKNOWN

T = TypeVar("T")

_RECORDS = __name__.rpartition(".")[0] + "."


class _Pickler(pickle.Pickler):
    """Notes in ``kept`` what is not packed; a number in its place says which."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.kept: list[Any] = []

    def reducer_override(self, value: Any) -> Any:
        """Asked for all but text, numbers and containers, once for each object."""
        kind = type(value)
        if value is kept:
            return NotImplemented
        if kind is type or not kind.__module__.startswith(_RECORDS) or value is UNKNOWN:
            self.kept.append(value)
            return kept, (len(self.kept) - 1,)
        return NotImplemented


def kept(place: int) -> Any:
    """Stands in the bytes for what an unpickler has at that place."""
    raise LookupError(place)


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, values: tuple[Any, ...]) -> None:
        super().__init__(io.BytesIO(data))
        self.values = values

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) != (kept.__module__, kept.__name__):
            raise pickle.UnpicklingError(f"{module}.{name} is not packed by name")
        return self.values.__getitem__


class Packed:
    """One value, as bytes."""

    __slots__ = ("_bytes", "_kept")

    def __init__(self, value: Any) -> None:
        file = io.BytesIO()
        pickler = _Pickler(file)
        pickler.dump(value)
        self._bytes = zlib.compress(file.getbuffer(), 1)
        self._kept = tuple(pickler.kept)

    @property
    def value(self) -> Any:
        """The value again, another object each time."""
        return _Unpickler(zlib.decompress(self._bytes), self._kept).load()

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return len(self._bytes)


class Later:
    """In the place of a value that lies elsewhere, and is made anew for each reader."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    @property
    def value(self) -> Any:
        return self.make()


class PackedField(Generic[T]):
    """A dataclass's packed field: ``text: PackedField[str] = PackedField("")``. An empty value stays as it is."""

    def __init__(self, default: T) -> None:
        self.default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, record: None, owner: type) -> T: ...
    @overload
    def __get__(self, record: object, owner: type) -> T: ...
    def __get__(self, record: object | None, owner: type) -> T:
        held = self.default if record is None else record.__dict__[self.name]
        return held.value if isinstance(held, (Packed, Later)) else held

    def __set__(self, record: object, value: T) -> None:
        record.__dict__[self.name] = Packed(value) if value and not isinstance(value, Later) else value
