"""Sums of floats along a row in lanes: vectors of partial sums, one for each place of a block of the row.

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

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..records.sizes import Size
from ..torch_compat import has_avx512
from .c_pairs import paired
from .c_text import indent

VECTOR = 16 if has_avx512() else 8  # floats that a register holds
STEPS = 64  # numbers of a lane before they are added to a total in double
LIGHT = 8  # lines of a body that is faster than an addition after the other
HALF = frozenset({"bf16", "f16", "int16_t"})
WHOLE = frozenset({"float", "int", "int32_t"})
_VALUE = re.compile(r"const (\w+) t\d+ = ")
_ADDED = re.compile(r"(r\d+)(_b)? = \1(?:_b)? \+ (.+);")
_CALL = re.compile(r"\b(?!tg_from_bf16\b|tg_from_f16\b)[a-zA-Z_]\w*\(")


@dataclass(frozen=True)
class Lanes:
    """How many turns the inner loop has, and how many times it has the body; ``pairs``: for neighbours that are read
    together.
    """

    width: int
    copies: int
    pairs: bool = False

    @property
    def count(self) -> int:
        return self.width * self.copies


def lanes_of(body: Sequence[str], memory: Collection[str], last: int, size: Size) -> Lanes | None:
    """The lanes of a body that touches memory of these C types, for a row of ``size``; None where OpenMP does it.

    They are as many as the numbers of one vector of the narrowest type, so that the inner loop is gone.
    """
    types = {*memory, *(found[1] for line in body if (found := _VALUE.match(line)))}
    if not types <= WHOLE | HALF:
        return None
    if paired(body, last):
        lanes = Lanes(VECTOR, 2, pairs=True)
    elif HALF & types:
        lanes = Lanes(2 * VECTOR, 1)
    else:
        light = len(body) <= LIGHT and not any("] =" in line or _CALL.search(line) for line in body)
        lanes = Lanes(VECTOR, 2 if light else 1)
    return None if isinstance(size, int) and size < lanes.count else lanes


def laned(
    body: Sequence[str], sums: Sequence[str], lanes: Lanes, last: int, end: Size, start: str = "0"
) -> tuple[list[str], ...]:
    """What comes before the loop over a row's last dimension from ``start`` to ``end``, the loop, and the expressions
    of the sums.
    """
    count = lanes.count
    arrays = [f"float {name}_l[{count}] ALIGNED;" for name in sums]
    vectors = range(count // VECTOR)
    added = [f"{name}_v[{k}] += *(f32x{VECTOR}*)&{name}_l[{k * VECTOR}];" for name in sums for k in vectors]
    if lanes.pairs and (two := paired(body, last)):
        inner = [f"const int64_t i{last} = j + 2*l;", *_kept(two, ("l", f"l + {VECTOR}"))]
    else:
        turn = [_at(body, last, "j", k * lanes.width) for k in range(lanes.copies)]
        inner = turn[0] if len(turn) == 1 else [line for one in turn for line in ("{", *indent(one), "}")]
    inner = [*arrays, *_turn(lanes.width, inner), *added]
    if isinstance(end, int) and start == "0":
        first, rest = str(end // count * count), str(end % count)
        loops = [f"for (int64_t j = 0; j < {first}; j += {count}) {{", *indent(inner), "}"]
    else:
        first, rest = "j", f"{end} - j"
        loops = [f"int64_t j = {start};", f"for (; j + {count} <= {end}; j += {count}) {{", *indent(inner), "}"]
    if rest != "0":
        zeros = [line.replace(";", " = {};") for line in arrays]
        loops += ["{", *indent([*zeros, *_turn(rest, _at(body, last, first, 0)), *added]), "}"]
    before = [f"f32x{VECTOR} {name}_v[{len(vectors)}] = {{}};" for name in sums]
    return before, loops, [f"tg_sum_f32x{VECTOR}({' + '.join(f'{name}_v[{k}]' for k in vectors)})" for name in sums]


def _turn(width: int | str, body: list[str]) -> list[str]:
    return ["#pragma omp simd", f"for (int64_t l = 0; l < {width}; ++l) {{", *indent(body), "}"]


def _at(body: Sequence[str], last: int, first: str, beside: int) -> list[str]:
    """The body for the neighbour ``l`` of those from ``first`` on, which leaves what is added up in its lane."""
    lane = f"l + {beside}" if beside else "l"
    return [f"const int64_t i{last} = {first} + {lane};", *_kept(body, (lane,))]


def _kept(body: Sequence[str], lanes: Sequence[str]) -> list[str]:
    """The body with what it adds up left in arrays: of the first element, and the second, in these lanes."""
    return [_ADDED.sub(lambda m: f"{m[1]}_l[{lanes[bool(m[2])]}] = {m[3]};", line) for line in body]
