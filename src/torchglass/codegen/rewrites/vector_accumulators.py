"""Sums of floats along a row in vectors of accumulators, one lane for each place of a block of the row.

The sum of 2048 numbers, with AVX-512::

    f32x16 r2_v[2] = {};
    for (int64_t j = 0; j < 2048; j += 32) {
        float r2_l[32] ALIGNED;
        #pragma omp simd
        for (int64_t l = 0; l < 16; ++l) {
            { const int64_t i1 = j + l; const float t1 = x[2048*i0 + i1]; r2_l[l] = t1; }
            { const int64_t i1 = j + l + 16; const float t1 = x[2048*i0 + i1]; r2_l[l + 16] = t1; }
        }
        r2_v[0] += *(f32x16*)&r2_l[0];
        r2_v[1] += *(f32x16*)&r2_l[16];
    }
    r2 += tg_sum_f32x16(r2_v[0] + r2_v[1]);

All of it stays in registers: an addition need not wait for the one just before it, and at the end halves are added to
halves. An OpenMP reduction has one register, whose numbers are added up one after the other: as long as 64 more of the
row. It is what other types and other operators are left to.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ...records.sizes import Size, is_known
from ..statements import (
    Accumulate,
    Assign,
    Block,
    Body,
    Count,
    Declare,
    For,
    Let,
    Move,
    Place,
    Read,
    Stmt,
    Write,
    constant,
    in_c,
)
from .bf16_pairs import paired
from .calls import calls

HALF = frozenset({"bf16", "f16", "int16_t"})
WHOLE = frozenset({"float", "int", "int32_t"})


@dataclass(frozen=True)
class Lanes:
    """How many turns the inner loop has, how many times it has the body, and the floats of a register (``vector``);
    ``pairs``: for neighbours that are read together.
    """

    vector: int
    width: int
    copies: int
    pairs: bool = False

    @property
    def count(self) -> int:
        return self.width * self.copies


def lanes_of(body: Body, memory: Collection[str], counter: str, size: Size, vector: int, light: int) -> Lanes | None:
    """The lanes of a body that touches memory of these C types, for a row of ``size``; None where OpenMP does it.

    They are as many as the numbers of one vector of the narrowest type, so that the inner loop is gone. ``light``:
    statements of a body that is faster than an addition after the other, and so comes twice.
    """
    types = {*memory, *(stmt.ctype for stmt in body if isinstance(stmt, Let | Count | Read))}
    if not types <= WHOLE | HALF:
        return None
    if paired(body, counter):
        lanes = Lanes(vector, vector, 2, pairs=True)
    elif HALF & types:
        lanes = Lanes(vector, 2 * vector, 1)
    else:
        twice = len(body) <= light and not any(_writes(stmt) or calls(stmt, unpacking=False) for stmt in body)
        lanes = Lanes(vector, vector, 2 if twice else 1)
    return None if is_known(size) and size < lanes.count else lanes


def _writes(stmt: Stmt) -> bool:
    """Whether it changes memory."""
    return isinstance(stmt, Write | Move) or (isinstance(stmt, Assign | Accumulate) and isinstance(stmt.target, Place))


def in_lanes(
    body: Body, sums: Sequence[str], lanes: Lanes, counter: str, end: Size | str, start: str = "0"
) -> tuple[list[Stmt], list[Stmt], list[str]]:
    """What comes before the loop over a row's last dimension from ``start`` to ``end``, the loop, and the expressions
    of the sums.
    """
    count, vector = lanes.count, lanes.vector
    arrays: list[Stmt] = [Declare("float", f"{name}_l", count=count) for name in sums]
    vectors = range(count // vector)
    added: list[Stmt] = [
        Assign(f"{name}_v[{k}]", f"*(f32x{vector}*)&{name}_l[{k * vector}]", "+=") for name in sums for k in vectors
    ]
    if lanes.pairs and (two := paired(body, counter)):
        inner = [constant(counter, "j + 2*l"), *_left_in_lanes(two, ("l", f"l + {vector}"), sums)]
    else:
        turns = [_turn_at(body, counter, "j", k * lanes.width, sums) for k in range(lanes.copies)]
        inner = turns[0] if len(turns) == 1 else [Block(tuple(turn)) for turn in turns]
    whole = (*arrays, _turns(lanes.width, inner), *added)
    if not isinstance(end, str) and is_known(end) and start == "0":
        first, rest = str(end // count * count), str(end % count)
        loops: list[Stmt] = [For("j", "0", first, whole, step=count)]
    else:
        first, rest = "j", f"{in_c(end)} - j"
        loops = [Declare("int64_t", "j", start), For("j", "", end, whole, step=count, whole=True)]
    if rest != "0":
        zeros = [Declare("float", f"{name}_l", "{}", count) for name in sums]
        loops.append(Block((*zeros, _turns(rest, _turn_at(body, counter, first, 0, sums)), *added)))
    if first == "j":  # of a row's two such loops each has its own
        loops = [Block(tuple(loops))]
    before: list[Stmt] = [Declare(f"f32x{vector}", f"{name}_v", "{}", len(vectors), aligned=False) for name in sums]
    return before, loops, [f"tg_sum_f32x{vector}({' + '.join(f'{name}_v[{k}]' for k in vectors)})" for name in sums]


def _turns(width: int | str, body: Sequence[Stmt]) -> For:
    return For("l", "0", width, tuple(body), kind="simd")


def _turn_at(body: Body, counter: str, first: str, beside: int, sums: Sequence[str]) -> list[Stmt]:
    """The body for the neighbour ``l`` of those from ``first`` on, which leaves what is added up in its lane."""
    lane = f"l + {beside}" if beside else "l"
    return [constant(counter, f"{first} + {lane}"), *_left_in_lanes(body, (lane,), sums)]


def _left_in_lanes(body: Body, lanes: Sequence[str], sums: Sequence[str]) -> list[Stmt]:
    """The body with what it adds up left in arrays: of the first element, and the second, in these lanes."""
    arrays = {f"{name}{suffix}": f"{name}_l[{lane}]" for name in sums for suffix, lane in zip(("", "_b"), lanes)}

    def left(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Accumulate) and isinstance(stmt.target, str) and stmt.target in arrays:
            return Assign(arrays[stmt.target], stmt.value)
        return stmt

    return [left(stmt) for stmt in body]
