"""Calls that only leave traces, in the order in which the program made them: the entry makes them after its graph.

    print("norm", x.norm())      norm, mul = graph_0(*fetched)
    return x * 2            ->   print('norm', norm)
                                 return mul

What such a call is given is kept as it was at that moment: see SnapshotV.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any

from ..protocol import Value
from .tensor import TensorV


@dataclass(frozen=True)
class CallerPlace:
    """The line of the program from which a function that looks at its caller is called."""

    file: str
    line: int
    function: str
    namespace: dict[str, Any]


@dataclass(frozen=True)
class DeferredCall:
    """A call that the entry makes when the graph has run; ``caller`` for functions that look where they were called."""

    function: Value
    args: tuple[Value, ...]
    kwargs: dict[str, Value] = field(default_factory=dict)
    caller: CallerPlace | None = None


@dataclass
class EffectsLog:
    """The deferred calls of one capture. ``breaks``: none may wait, each ends the graph where it is."""

    calls: list[DeferredCall] = field(default_factory=list)
    breaks: bool = False


@dataclass
class Locks:
    """Locks that the program took (True) and gave back, in order."""

    steps: list[tuple[Value, bool]] = field(default_factory=list)


class SnapshotV(Value):
    """An object as it is at this moment. While the graph writes to nothing more that is ``value`` itself, read later;
    of a tensor there is a ``copy`` for the other case. ``writes`` counts what the graph has written before.
    """

    def __init__(self, value: Value, writes: int, copy: TensorV | None = None) -> None:
        self.value = value
        self.writes = writes
        self.copy = copy

    def python_type(self) -> type:
        return self.value.python_type()


def is_stream(real: Any) -> bool:
    """Whether a file is Python's own: writing to it runs no code of the program's."""
    return isinstance(real, io.TextIOBase) and not hasattr(type(real).write, "__code__")
