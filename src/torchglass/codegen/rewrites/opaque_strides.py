"""Wide steps of the inner loop as variables that the compiler knows nothing of.

Where one buffer is read twice at a constant step, ``x[4096*i]`` and ``x[4096*i + 1]``, GCC loads all that lies between
and shuffles: thousands of instructions for each element, and seconds of compiling. ::

    int64_t step4096 = 4096; OPAQUE(step4096);
    ... x[step4096*i] ... x[step4096*i + 1] ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...records.loops import Loop
from ...records.sizes import Size, Symbol, is_known
from ..statements import Call, Declare, Place, Stmt, mapped


def opaque_strides(body: Sequence[Stmt], loops: Sequence[Loop], last: int, widest: int) -> list[Stmt]:
    """The code with such steps of dimension ``last`` hidden. ``widest``: elements apart that may be loaded together."""
    found = [(a.buffer, a.strides[last]) for loop in loops for a in {load.access for load in loop.loads} if last >= 0]
    wide = sorted({s for b, s in found if is_known(s) and s > widest and found.count((b, s)) > 1})
    if not wide:
        return list(body)
    names: dict[Size, Size] = {step: Symbol(f"step{step}", hint=step) for step in wide}

    def hidden(place: Place) -> Place:
        terms = ((name, names.get(s, s) if name == f"i{last}" else s) for name, s in place.address.terms)
        return replace(place, address=replace(place.address, terms=tuple(terms)))

    made: list[Stmt] = []
    for step in wide:
        made += [Declare("int64_t", f"step{step}", str(step)), Call("OPAQUE", (f"step{step}",))]
    return [*made, *(mapped(stmt, place=hidden) for stmt in body)]
