"""The base of symbolic values: what the frame machine puts on its stack instead of real objects.

A value answers the Python protocols (attribute, item, call, truth, iteration). The default of each is to break the
graph, so a kind that implements little is safe.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ...bytecode.objects import namesake
from ...records.sources import Source
from ..errors import Unsupported

if TYPE_CHECKING:
    from ..interp.machine import Machine


def home_of(function: Any) -> str | None:
    """The module that a function stands in. Its ``__module__`` is another one where ``functools.wraps`` copied it."""
    if type(function) is FunctionType:
        return function.__globals__.get("__name__")
    return getattr(function, "__module__", None)


class NotConstant(Exception):
    """A value has no constant Python object behind it."""


class Value:
    """One symbolic value. ``source`` says how to reach it from the call, None when it was made inside."""

    source: Source | None = None
    walked = False
    asked_by: Any = None  # the machine that asks for its hash, where its class says in Python what is equal

    def python_type(self) -> type:
        """The class ``type()`` would give."""
        raise NotImplementedError

    def as_constant(self) -> Any:
        """A real Python object equal to this value; raises NotConstant when tensors or unknown objects are inside."""
        raise NotConstant(self)

    def is_constant(self) -> bool:
        try:
            self.as_constant()
        except NotConstant:
            return False
        return True

    @contextmanager
    def once(self) -> Iterator[None]:
        """Walk into what is inside; raises NotConstant where that is this value again."""
        if self.walked:
            raise NotConstant(self)
        self.walked = True
        try:
            yield
        finally:
            self.walked = False

    def describe(self) -> str:
        """A short phrase for messages: what this is, and where it came from."""
        name = self.source.written() if self.source is not None else ""
        return self.python_type().__name__ + (f" `{name}`" if name else "")

    def a(self) -> str:
        """The same with its article."""
        text = self.describe()
        return f"an {text}" if text[0] in "aeioAEIO" else f"a {text}"

    # --- protocols -------------------------------------------------------------------------------------------------
    def get_attr(self, m: Machine, name: str) -> Value:
        raise Unsupported(f"reading attribute `{name}` of {self.a()}")

    def set_attr(self, m: Machine, name: str, value: Value) -> None:
        cls = self.python_type()
        if cls.__module__ in ("builtins", "collections") and not cls.__dictoffset__ and not hasattr(cls, name):
            m.throw_as(setattr, namesake(cls), name, None, of=self)
        raise Unsupported(f"writing attribute `{name}` of {self.a()}")

    def del_attr(self, m: Machine, name: str) -> None:
        raise Unsupported(f"deleting attribute `{name}` of {self.a()}")

    def call(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        raise Unsupported(f"calling {self.a()}")

    def truth(self, m: Machine) -> bool:
        raise Unsupported(f"the truth of {self.a()}")

    def iterate(self, m: Machine) -> Value:
        """An iterator over this value: something with ``next``."""
        raise Unsupported(f"iterating over {self.a()}")

    def next(self, m: Machine) -> Value | None:
        """The next item of an iterator, None at its end."""
        raise Unsupported(f"the next item of {self.a()}, whose state is not known here")

    def length(self, m: Machine) -> int:
        raise Unsupported(f"len() of {self.a()}")

    def changing_length(self, m: Machine) -> Value | None:
        """The length as a number that changes from call to call; None for one that is a constant."""
        return None

    def get_item(self, m: Machine, key: Value) -> Value:
        raise Unsupported(f"an item of {self.a()}")

    def set_item(self, m: Machine, key: Value, value: Value) -> None:
        raise Unsupported(f"writing an item of {self.a()}")

    def del_item(self, m: Machine, key: Value) -> None:
        raise Unsupported(f"deleting an item of {self.a()}")

    def contains(self, m: Machine, item: Value) -> bool:
        raise Unsupported(f"`in` on {self.a()}")


class Null(Value):
    """The NULL that CPython's call sequence pushes below a callable."""

    def python_type(self) -> type:
        return type(None)


NULL = Null()


def to_call(function: Any) -> list[Any]:
    """A function on the stack as a call looks for it, with NULL for the object that a method is bound to."""
    return [NULL, function] if sys.version_info < (3, 13) else [function, NULL]


class HandledV(Value):
    """What PUSH_EXC_INFO leaves below a handler's stack: ``error`` is being handled until POP_EXCEPT takes this off."""

    def __init__(self, error: Value) -> None:
        self.error = error
        self.star = False  # whether `except*` has split it

    def python_type(self) -> type:
        return type(None)


class Lazy:
    """A not yet wrapped item of an existing container: ``force`` wraps it, and only then is it guarded."""

    __slots__ = ("real", "source")

    def __init__(self, real: Any, source: Source | None) -> None:
        self.real = real
        self.source = source

    def as_constant(self) -> Any:
        """The object, where no guard is needed to rely on it; else NotConstant: ``Machine.settle`` reads it first."""
        if self.source is not None:
            raise NotConstant(self)
        return self.real
