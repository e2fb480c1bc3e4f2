"""Places that the column alone decides, worked out once for all rows (loop-invariant code motion, into arrays).

A resize reads at places and by weights that it computes from the counters, for each row those of the same columns.
They go into small arrays ahead of the rows; places as int32, of which a vector holds twice as many::

    int32_t column0[112] ALIGNED;
    #pragma omp simd
    for (i3 ...) { const float t20 = (float)(int32_t)i3; ... column0[i3] = t26; }
    for (i2 ...)
        #pragma omp simd
        for (i3 ...) { const int64_t t26 = (int64_t)column0[i3]; ... x[56*t11 + t26] ... }

A bilinear resize of 4 x 32 x 56 x 56 numbers to twice the size took 13.5 milliseconds without, and 3 with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...records.loops import HALF
from ..statements import Address, Assign, Block, Count, Declare, For, Let, Place, Read, Stmt, defines, mentions


def column_tables(
    body: Sequence[Stmt], counter: str, size: int, narrow: frozenset[str], most: int
) -> tuple[list[Stmt], list[Stmt]]:
    """What goes ahead of the rows; and the rows, in which the loops over ``counter``, ``size`` long, read it.

    ``narrow``: buffers of fewer than 2^31 elements. ``most``: arrays.
    """
    arrays: list[Stmt] = []
    fills: list[Stmt] = []
    fixed = {counter, *_literals(body)}

    def changed(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, (For, Block)):
            return stmt
        if isinstance(stmt, Block) or stmt.counter != counter:
            return replace(stmt, body=tuple(map(changed, stmt.body)))
        if (stmt.start, stmt.stop, stmt.step) != ("0", size, 1):
            return stmt
        rooms, fill, loop = _tables(stmt, size, fixed, narrow, len(arrays))
        if not rooms or len(arrays) + len(rooms) > most:
            return stmt
        arrays.extend(rooms)
        fills.append(fill)
        return loop

    rows = list(map(changed, body))
    return [*arrays, *fills], rows


def _literals(body: Sequence[Stmt]) -> set[str]:
    """Operands that no statement makes."""
    made: set[str] = set()
    named: set[str] = set()

    def look(stmts: Sequence[Stmt]) -> None:
        for stmt in stmts:
            if isinstance(stmt, (For, Block)):
                made.update([stmt.counter] if isinstance(stmt, For) else [])
                look(stmt.body)
                continue
            made.update([name] if (name := defines(stmt)) else [])
            made.update([stmt.name] if isinstance(stmt, Declare) else [])
            named.update(stmt.args if isinstance(stmt, Let) else [])

    look(body)
    return named - made


def _tables(loop: For, size: int, fixed: set[str], narrow: frozenset[str], first: int) -> tuple[list[Stmt], For, For]:
    """The arrays, the loop that fills them and the one that reads them. No arrays where no place is among them."""
    known = set(fixed)
    for stmt in loop.body:
        if _follows(stmt, loop.counter, known) and (name := defines(stmt)):
            known.add(name)
    inside = [stmt for stmt in loop.body if defines(stmt) in known]
    rest = [stmt for stmt in loop.body if defines(stmt) not in known]
    needed = {name for stmt in rest for name in mentions(stmt)}
    kept = [stmt for stmt in inside if isinstance(stmt, Let) and stmt.name in needed]
    through: dict[str, set[str]] = {}
    for stmt in rest:
        if isinstance(stmt, Read):
            for name, _ in stmt.place.address.terms:
                through.setdefault(name, set()).add(stmt.place.array)
    if not any(stmt.name in through for stmt in kept):
        return [], loop, loop
    rooms: list[Stmt] = []
    filled: list[Stmt] = []
    read: list[Stmt] = [stmt for stmt in inside if isinstance(stmt, Count) and stmt.name in needed]
    for k, stmt in enumerate(kept, first):
        place = Place(f"column{k}", Address(((loop.counter, 1),)))
        is_narrow = stmt.dtype == "int64" and through.get(stmt.name, {""}) <= narrow and _only_places(stmt.name, rest)
        rooms.append(Declare("int32_t" if is_narrow else stmt.ctype, place.array, count=size))
        filled.append(Assign(place, stmt.name))
        read.append(Read(stmt.name, stmt.ctype, place, "int32" if is_narrow else stmt.dtype, stmt.dtype))
    fill = For(loop.counter, "0", size, (*inside, *filled), kind="simd")
    return rooms, fill, replace(loop, body=(*read, *rest))


def _follows(stmt: Stmt, counter: str, known: set[str]) -> bool:
    """Whether a statement computes from the counter and known values alone."""
    if isinstance(stmt, Count):
        return all(name == counter for name, _ in stmt.address.terms)
    if not isinstance(stmt, Let) or not stmt.ctype or stmt.op == "bound" or stmt.dtype in HALF:
        return False
    return known.issuperset(stmt.args)


def _only_places(name: str, body: Sequence[Stmt]) -> bool:
    """Whether a value says where to read and nothing else."""
    nowhere = Place("", Address())
    others = (replace(stmt, place=nowhere) if isinstance(stmt, Read) else stmt for stmt in body)
    return not any(name in mentions(stmt) for stmt in others)
