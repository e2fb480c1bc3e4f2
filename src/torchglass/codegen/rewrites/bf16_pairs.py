"""Loops over bfloat16 that take two neighbours at a time: the halves of one word of 32 bits.

``relu(x + b)`` of rows of 2048::

    #pragma omp simd
    for (int64_t i1 = 0; i1 < 2048; i1 += 2) {
        const pair t1_p = PAIR(x[2048*i0 + i1]);
        const float t1 = tg_first(t1_p), t1_b = tg_second(t1_p);
        const pair t2_p = PAIR(b[i1]);
        const float t2 = tg_first(t2_p), t2_b = tg_second(t2_p);
        const float t3 = t1 + t2, t3_b = t1_b + t2_b;
        const float t4 = 0.0f > t3 ? 0.0f : t3, t4_b = 0.0f > t3_b ? 0.0f : t3_b;
        PAIR(y[2048*i0 + i1]) = tg_pair(t4, t4_b);
    }

A float is the upper half of a word with zeros below it, so a shift and a mask make two vectors of floats from one of
words, and the way back is as short. One number at a time, vectors have to be widened, narrowed and put together, which
takes a fifth longer even where memory is the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...records.sizes import at_least, divides
from ..statements import (
    Accumulate,
    Count,
    For,
    Let,
    LetPair,
    Place,
    Read,
    ReadPair,
    Stmt,
    Write,
    WritePair,
    mentions,
)


def bf16_pairs(loop: For, lanes: int) -> For | None:
    """The loop over pairs; None where it has an odd number of elements, or fewer than two registers of ``lanes``."""
    size = loop.stop
    if isinstance(size, str) or not divides(2, size) or not at_least(size, 2 * lanes) or loop.clauses:
        return None
    body = paired(loop.body, loop.counter)
    return None if body is None else replace(loop, body=tuple(body), step=2)


def paired(body: Sequence[Stmt], counter: str) -> list[Stmt] | None:
    """The body for an element and the one after it; None where not all memory that it touches is bfloat16 that lies
    side by side. What is added to ``r2`` for the second element is added to ``r2_b``.
    """
    second: dict[str, str] = {}

    def other(name: str) -> str:
        return second.get(name, name)

    out: list[Stmt] = []
    for stmt in body:
        match stmt:
            case Read(stored="bfloat16", dtype="float32", mask=None) if _moves_by_one(stmt.place, counter):
                second[stmt.name] = f"{stmt.name}_b"
                out.append(ReadPair(stmt.name, stmt.place))
            case Write(stored="bfloat16", add=False) if _moves_by_one(stmt.place, counter):
                out.append(WritePair(stmt.place, (stmt.value, other(stmt.value))))
            case Let() if counter not in stmt.args:
                args = tuple(map(other, stmt.args))
                if args == stmt.args:
                    out.append(stmt)
                    continue
                second[stmt.name] = f"{stmt.name}_b"
                out.append(LetPair(stmt, replace(stmt, name=f"{stmt.name}_b", args=args)))
            case Accumulate(target=str() as total, kind="sum") if stmt.value.startswith("t"):
                out += [stmt, replace(stmt, target=f"{total}_b", value=other(stmt.value))]
            case Count() if counter not in mentions(stmt):
                out.append(stmt)
            case _:
                return None
    return out if second else None


def _moves_by_one(place: Place, counter: str) -> bool:
    """Whether the counter is in a place once, as it is."""
    return [stride for name, stride in place.address.terms if name == counter] == [1]
