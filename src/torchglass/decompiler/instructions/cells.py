"""Code that is given the cell of a variable: the same with that variable free, which is how source shares one.

A resume function whose variable ``x`` is shared with functions made before it takes the parameter ``cell_of_x`` and
stores it where the code keeps its cell.  No source says that.  Before: ``def f(cell_of_x, a)`` with STORE_FAST into
the cell's slot; after: ``def f(a)`` with the free variable ``x``.  What comes back is for reading, not for running.
"""

from __future__ import annotations

import dis
import itertools
from types import CodeType

from ...bytecode.canonical import VERSION, raw_instructions
from ...bytecode.decode import PAIRS


def with_free_cells(code: CodeType) -> tuple[CodeType, tuple[str, ...]]:
    """``(code, variables)``: the variables whose cells were parameters and are free now; none leaves it as it is."""
    if VERSION < (3, 11) or not code.co_cellvars:
        return code, ()
    slots = _slots(code.co_varnames, code.co_cellvars, code.co_freevars)
    given = _given_cells(code, slots)
    if not given:
        return code, ()
    shared = tuple(slots[slot] for _, _, slot in given)
    parameters = {slots[parameter] for _, parameter, _ in given}
    names = tuple(n for n in code.co_varnames if n not in parameters and n not in shared)
    cells = tuple(c for c in code.co_cellvars if c not in shared)
    free = (*code.co_freevars, *shared)
    new = {name: n for n, name in enumerate(_slots(names, cells, free))}
    text = bytearray(code.co_code)
    for offset, _, _ in given:
        text[offset : offset + 4] = bytes((dis.opmap["NOP"], 0)) * 2
    for offset, start, op, arg in raw_instructions(code):
        if dis.opname[op] in PAIRS:
            first, second = new[slots[arg >> 4]], new[slots[arg & 15]]
            if max(first, second) > 15:
                return code, ()  # no room for it in the argument
            text[offset + 1] = first << 4 | second
        elif (op in dis.haslocal or op in dis.hasfree) and text[offset] != dis.opmap["NOP"]:
            index = new[slots[arg]]
            if index > 255 or start != offset:
                return code, ()  # its argument would take another size
            text[offset + 1] = index
    made = code.replace(
        co_code=bytes(text),
        co_varnames=names,
        co_nlocals=len(names),
        co_cellvars=cells,
        co_freevars=free,
        co_argcount=sum(n in names for n in code.co_varnames[: code.co_argcount]),  # a shared one may be one too
    )
    return made, shared


def _slots(names: tuple[str, ...], cells: tuple[str, ...], free: tuple[str, ...]) -> list[str]:
    return [*names, *(c for c in cells if c not in names), *free]


def _given_cells(code: CodeType, slots: list[str]) -> list[tuple[int, int, int]]:
    """``(offset, parameter, slot)`` of each cell that a prologue stores: LOAD_FAST parameter, STORE_FAST slot."""
    found = []
    instructions = raw_instructions(code)
    for (offset, _, load, parameter), (_, _, store, slot) in itertools.pairwise(instructions):
        if dis.opname[load].startswith("JUMP"):
            break
        stores = (dis.opname[load], dis.opname[store]) == ("LOAD_FAST", "STORE_FAST")
        if stores and parameter < code.co_argcount and slots[slot] in code.co_cellvars:
            found.append((offset, parameter, slot))
    return found
