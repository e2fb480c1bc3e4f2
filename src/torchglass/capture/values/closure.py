"""Functions that a program makes anew at each call: told apart by what they do, not by which object they are.

def f(x, scale):
    act = lambda t: t * scale      # another object at each call, the same code
    tg.graph_break()
    return act(x)                  # the resume function gets it as an argument
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from ...records.sources import Attr, InstanceDict, Source
from ..protocol import Machine
from ..values.binding import guard_lacks_attr, home_of
from .known import KnownV

WHY = "it was called or read"


class ClosureV(KnownV):
    """An existing function, guarded by code, globals, defaults and attributes; its cells are guarded where they are
    read. Whoever relies on the object itself (``as_constant``) guards its identity.
    """

    def __init__(self, m: Machine, real: FunctionType, source: Source) -> None:
        super().__init__(real, source)
        self.machine = m
        m.guard(source, "type", FunctionType, WHY)
        m.guard(Attr(source, "__code__"), "identity", real.__code__, WHY)
        m.guard(Attr(source, "__globals__"), "identity", real.__globals__, WHY)
        m.guard(InstanceDict(source), "length", len(real.__dict__), WHY)
        for name in ("__defaults__", "__kwdefaults__"):
            values = getattr(real, name)
            if values is None:
                m.guard(Attr(source, name), "constant", None, WHY)
            elif isinstance(values, tuple):
                m.guard(Attr(source, name), "type", tuple, WHY)
                m.guard(Attr(source, name), "length", len(values), WHY)
            else:
                m.guard(Attr(source, name), "dict_keys", list(values), WHY)

    def as_constant(self) -> Any:
        assert self.source is not None
        self.machine.guard(self.source, "identity", self.real, "was compared or kept")
        return self.real

    def is_constant(self) -> bool:
        return True

    def get_attr(self, m: Machine, name: str) -> Any:
        guard_lacks_attr(m, self.real, self.source, name)
        return super().get_attr(m, name)


def is_made_anew(m: Machine, real: Any, source: Source | None) -> bool:
    """Whether ``real`` may be another function of the same code at the next call."""
    return (
        type(real) is FunctionType
        and source is not None
        and source.is_local()
        and ("<locals>" in real.__code__.co_qualname or real.__code__.co_name == "<lambda>")
        and not m.is_stable(home_of(real))
    )
