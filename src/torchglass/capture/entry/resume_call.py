"""How entry code calls a resume function: where that enters the user's code, and with which stack and variables."""

from __future__ import annotations

from types import CodeType
from typing import Any

from ..errors import CannotResume
from ..protocol import NULL, HandledV, Value
from ..resume_code import EntryPoint, Slot, receiver
from .emitter import Emitter


def entry_point(
    e: Emitter, code: CodeType, index: int, stack: list[Any], variables: dict[str, str], cells: dict[str, str]
) -> tuple[EntryPoint, str]:
    """Where a resume function enters ``code``, and its arguments as text.

    ``variables`` and ``cells`` give for each name the text of its value.
    """
    slots = [_slot(stack, n) for n in range(len(stack))]
    caught = []
    for n, slot in enumerate(stack):
        if isinstance(slot, HandledV):
            if slot.star:
                raise CannotResume("a graph break inside `except*`")
            error = e.expr(slot.error)
            same = (v for v, text in variables.items() if text == error and v not in code.co_cellvars)
            caught += [(n, name) for name in same]
    passed = {name: text for name, text in variables.items() if name not in {name for _, name in caught}}
    arguments = [slot_text(e, v) for v, slot in zip(stack, slots) if slot in (Slot.VALUE, Slot.HANDLED)]
    first = receiver(code)
    if first in cells:
        arguments.insert(0, f"{cells[first]}.cell_contents")
    elif first in passed:
        arguments.insert(0, passed.pop(first))
    else:
        first = ""
    entry = EntryPoint(index, tuple(slots), tuple(passed), tuple(cells), tuple(caught), first)
    return entry, ", ".join([*arguments, *cells.values(), *passed.values()])


def _slot(stack: list[Any], n: int) -> Slot:
    """How a resume function's prologue restores a stack slot."""
    value, below = stack[n], stack[n - 1] if n else None
    if value is NULL:
        return Slot.NULL
    if isinstance(below, HandledV) and below.error is value:
        return Slot.CAUGHT
    return Slot.HANDLED if isinstance(value, HandledV) else Slot.VALUE


def slot_text(e: Emitter, slot: Value | str) -> str:
    """A stack slot as argument of a resume function."""
    if isinstance(slot, HandledV):
        return f"reconstruct.caught({e.expr(slot.error)})"
    return slot if isinstance(slot, str) else e.expr(slot)
