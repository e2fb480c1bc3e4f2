"""Python's recursion limit, which is higher while a capture runs: the program is told its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...records.sources import Computed
from ..protocol import Machine, Value
from ..values.constant import ConstantV
from .registry import handles

OF_CAPTURES = 20_000


@dataclass
class RecursionLimit:
    """``programs`` is what the program set."""

    programs: int = sys.getrecursionlimit()


@contextmanager
def raised() -> Iterator[RecursionLimit]:
    """Interpreting a call takes several of ours."""
    limit = RecursionLimit(sys.getrecursionlimit())
    sys.setrecursionlimit(max(limit.programs, OF_CAPTURES))
    try:
        yield limit
    finally:
        sys.setrecursionlimit(limit.programs)


@handles(sys.getrecursionlimit)
def getrecursionlimit_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    limit = m.state(RecursionLimit).programs
    m.guard(Computed(sys.getrecursionlimit, "sys.getrecursionlimit()", ()), "constant", limit, "it was asked for")
    return ConstantV(limit)
