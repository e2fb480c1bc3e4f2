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

import re
from collections.abc import Sequence

from .c_text import renamed

_READ = re.compile(r"const float (t\d+) = tg_from_bf16\((\w+)\[([^\[\]]*)\]\);")
_WRITE = re.compile(r"(\w+)\[([^\[\]]*)\] = tg_to_bf16\(([^\[\]]*)\);")
_VALUE = re.compile(r"(const \w+ )(t\d+) = ([^\[\]]*);")
_ADDED = re.compile(r"(r\d+) = \1 \+ t\d+;")


def paired(body: Sequence[str], last: int) -> list[str] | None:
    """The body for the elements ``i{last}`` and the one after it; None where not all memory that it touches is bfloat16
    that lies side by side. What is added to ``r2`` for the second element is added to ``r2_b``.
    """
    second: dict[str, str] = {}
    lines: list[str] = []
    for line in body:
        if found := _READ.fullmatch(line):
            name, buffer, place = found.groups()
            if not _moves_by_one(place, last):
                return None
            second[name] = f"{name}_b"
            lines += [f"const pair {name}_p = PAIR({buffer}[{place}]);"]
            lines += [f"const float {name} = tg_first({name}_p), {name}_b = tg_second({name}_p);"]
        elif found := _WRITE.fullmatch(line):
            buffer, place, value = found.groups()
            if not _moves_by_one(place, last):
                return None
            lines.append(f"PAIR({buffer}[{place}]) = tg_pair({value}, {renamed(value, second)});")
        elif re.search(rf"\bi{last}\b", line):
            return None
        elif found := _VALUE.fullmatch(line):
            kind, name, value = found.groups()
            other = renamed(value, second)
            if other == value:
                lines.append(line)
                continue
            second[name] = f"{name}_b"
            lines.append(f"{kind}{name} = {value}, {name}_b = {other};")
        elif found := _ADDED.fullmatch(line):
            lines += [line, renamed(line, {**second, found[1]: f"{found[1]}_b"})]
        else:
            return None
    return lines if second else None


def _moves_by_one(place: str, last: int) -> bool:
    """Whether the index of the last dimension is in a place once, as it is."""
    index = rf"\bi{last}\b"
    return len(re.findall(index, place)) == 1 and re.search(rf"(^|\+ ){index}( [+-]|$)", place) is not None
