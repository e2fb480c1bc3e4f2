"""Reductions along a row in several chains: an addition waits for the one before it, those of four chains do not.

The sum of 2048 numbers in a register of 16 is a chain of 128 additions of four cycles each. In quarters of the row it
is four chains at once, each as long as one block of the row was::

    float r2_b_1 = 0; ...
    #pragma omp simd reduction(+:r2_b,r2_b_1,r2_b_2,r2_b_3)
    for (int64_t j = 0; j < 512; ++j) {
        { const int64_t i1 = j; ... r2_b = r2_b + t1; }
        { const int64_t i1 = j + 512; ... r2_b_1 = r2_b_1 + t1; }
        ...
    }
    r2_b = (r2_b + r2_b_1) + (r2_b_2 + r2_b_3);

Only where a row fits the nearest cache and one number of it is read for each sum: several streams of several buffers
are more than the processor fetches ahead, and where arithmetic takes as long as an addition anyway, nothing waits. The
same holds for extrema of halves, two registers of which are made of one that is read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from ..records.loops import Size
from .c_text import indent

CHAINS = 4, 2
ROWS = 1025, 4096  # elements: a shorter row is through before it has waited long, a longer one is not in cache
LIGHT = 8  # lines of a body that is faster than its chain
_CALL = re.compile(r"\b(?!tg_from_bf16\b|tg_from_f16\b)[a-zA-Z_]\w*\(")
_NAME = re.compile(r"\b[rt]\w*\b")
_COMBINED = {
    "+": "{0} + {1}", "*": "{0} * {1}", "|": "{0} | {1}", "&": "{0} & {1}",
    "max": "({1} > {0} ? {1} : {0})", "min": "({1} < {0} ? {1} : {0})",
}  # fmt: skip


def chains_of(body: Sequence[str], operators: Collection[str], size: Size, each: int) -> int:
    """Into how many chains a reduction over a row is divided, each of a multiple of ``each`` elements; 1: none."""
    if not isinstance(size, int) or not ROWS[0] <= size <= ROWS[1] or len(body) > LIGHT:
        return 1
    if sum(line.count("[") for line in body) != 1 or any("] =" in line or _CALL.search(line) for line in body):
        return 1
    if any("tg_from" in line for line in body) and not {"max", "min"}.isdisjoint(operators):
        return 1
    return next((n for n in CHAINS if size % (n * each) == 0), 1)


def chained(
    body: list[str], sums: Sequence[tuple[str, str, str]], last: int, start: str, each: int, count: int
) -> list[str]:
    """The loop over ``count`` chains of ``each`` elements from ``start`` on. ``sums``: the OpenMP operator, variable
    and declaration with its neutral element of what is added up.
    """
    names = [[var, *(f"{var}_{k}" for k in range(1, count))] for _, var, _ in sums]
    declared = [_renamed(line, {v: n}) for (_, v, line), vs in zip(sums, names) for n in vs[1:]]
    clauses = "".join(f" reduction({op}:{','.join(vs)})" for (op, _, _), vs in zip(sums, names))
    copies: list[str] = []
    for k in range(count):
        index = f"const int64_t i{last} = j{f' + {k * each}' if k else ''};"
        lines = [_renamed(line, {vs[0]: vs[k] for vs in names}) for line in body]
        copies += ["{", *indent([index, *lines]), "}"]
    loop = f"for (int64_t j = {start}; j < {start} + {each}; ++j) {{"
    joined = [f"{vs[0]} = {_joined(op, vs)};" for (op, _, _), vs in zip(sums, names)]
    return [*declared, f"#pragma omp simd{clauses}", loop, *indent(copies), "}", *joined]


def _renamed(line: str, names: dict[str, str]) -> str:
    return _NAME.sub(lambda m: names.get(m[0], m[0]), line)


def _joined(op: str, names: Sequence[str]) -> str:
    """Pairs, then pairs of those."""
    if len(names) == 1:
        return names[0]
    half = len(names) // 2
    sides = [_joined(op, names[:half]), _joined(op, names[half:])]
    return _COMBINED[op].format(*(side if len(names) == 2 else f"({side})" for side in sides))
