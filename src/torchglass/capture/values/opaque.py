"""Objects that change in ways no guard sees: iterators, generators, NumPy arrays, files. Only passed around here."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ...operators.traced_arrays import is_traced
from ...records.sources import Source
from ..errors import Unsupported
from ..protocol import Machine, Value


class OpaqueV(Value):
    """An existing object that only its class is known of: every use of it ends the graph."""

    def __init__(self, real: Any, source: Source | None = None) -> None:
        self.real = real
        self.source = source

    def python_type(self) -> type:
        return type(self.real)

    def iterate(self, m: Machine) -> Value:
        return self if hasattr(self.python_type(), "__next__") else super().iterate(m)

    def next(self, m: Machine) -> Value | None:
        if self.source is not None and not self.source.written():  # it was on the stack: a loop is at work
            raise Unsupported("the next round of a loop that a graph break interrupted", "keep breaks out of the loop")
        raise Unsupported(f"the next item of {self.a()}, made before the call", "pass what it goes through")


def is_opaque(real: Any) -> bool:
    """Whether a C object has a state that its identity says nothing about."""
    cls = type(real)
    if isinstance(real, (type, ModuleType)) or is_traced(real):
        return False
    drawing = cls.__module__.startswith("numpy.random")
    return hasattr(cls, "__next__") or hasattr(cls, "__setitem__") or cls.__module__ == "_io" or drawing
