"""A gather apart from the arithmetic on what it got (loop distribution).

A read at a place that a tensor says is checked and runs one element at a time, and with it the whole loop around it.
Where there is more to compute than that, the gather goes first, into a small array, and the rest is vectorized::

    for (i1 ...) { const int64_t t1 = index[i1]; const int64_t t2 = tg_bound(t1, ...); got0[i1] = x[t2]; }
    #pragma omp simd
    for (i1 ...) { const float t3 = tg_from_bf16(got0[i1]); ... }

``index[i] * 2`` of 512 x 1024 bfloat16 numbers: 618 and 207 microseconds; of floats, which need no conversion, it would
take longer (284 and 381), so what counts is whether a function is called.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..statements import Address, Declare, For, Let, Move, Place, Read, Stmt, defines, mentions, moved
from .calls import calls


def separate_gathers(loop: For, size: int, memory: Mapping[str, str], longest: int) -> tuple[list[Stmt], For] | None:
    """The arrays and the gathering loop, and the loop of the rest; None where that does not pay or is not possible.

    ``memory``: the C types of the buffers that may be read, by name; ``longest``: elements of the small array.
    """
    checked = {stmt.name for stmt in loop.body if isinstance(stmt, Let) and stmt.op == "bound"}
    arrays: dict[Place, str] = {}
    for stmt in loop.body:
        if isinstance(stmt, Read) and stmt.place.array in memory and _is_through(stmt.place, checked):
            arrays.setdefault(stmt.place, f"got{len(arrays)}")
    if not arrays or size > longest:
        return None
    here = Address(((loop.counter, 1),))
    rest = [stmt for stmt in loop.body if defines(stmt) not in checked]
    rest = moved(rest, {place: Place(array, here) for place, array in arrays.items()})
    if not any(map(calls, rest)) or any(checked & mentions(stmt) for stmt in rest):
        return None
    needed = _closure({name for place in arrays for name, _ in place.address.terms}, loop.body)
    gather: list[Stmt] = [stmt for stmt in loop.body if defines(stmt) in needed]
    gather += [Move(Place(array, here), place) for place, array in arrays.items()]
    rooms: list[Stmt] = [Declare(memory[place.array], array, count=size) for place, array in arrays.items()]
    return [*rooms, For(loop.counter, "0", size, tuple(gather))], _with(loop, _alive(rest))


def _with(loop: For, body: list[Stmt]) -> For:
    return For(loop.counter, loop.start, loop.stop, tuple(body), loop.step, loop.kind, loop.clauses)


def _is_through(place: Place, values: set[str]) -> bool:
    return any(name in values for name, _ in place.address.terms)


def _closure(names: set[str], body: tuple[Stmt, ...]) -> set[str]:
    """What of a body makes these values, and all that they are computed from."""
    needed: set[str] = set()
    for stmt in reversed(body):
        made = defines(stmt)
        if made in names and made is not None:
            needed.add(made)
            names = names | mentions(stmt)
    return needed


def _alive(body: list[Stmt]) -> list[Stmt]:
    """Without values that nothing reads any more."""
    kept: list[Stmt] = []
    read: set[str] = set()
    for stmt in reversed(body):
        made = defines(stmt)
        if made is None or made in read:
            kept.append(stmt)
            read |= mentions(stmt)
    return kept[::-1]
