"""Where the user's bytecode is entered after a graph break: what tells the continuations of a function apart."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Slot(Enum):
    """What stands in a stack slot at the point of entry, and so how the prologue restores it."""

    VALUE = "value"
    NULL = "null"
    HANDLED = "handled"  # what PUSH_EXC_INFO saved: the parameter is the exception being handled
    CAUGHT = "caught"  # right above HANDLED: that exception itself, which has no parameter of its own


@dataclass(frozen=True)
class EntryPoint:
    """Where code is entered: the instruction, its stack, the variables that live, the cells that others share.

    ``caught`` maps slots that are HANDLED to the variable that is that exception (``except ... as name``).
    ``receiver`` is the variable that must be the first parameter, if any.
    """

    index: int
    stack: tuple[Slot, ...]
    variables: tuple[str, ...]
    cells: tuple[str, ...] = ()
    caught: tuple[tuple[int, str], ...] = ()
    receiver: str = ""
