"""A gather apart from the arithmetic on what it got.

A read at a place that a tensor says is checked and runs one element at a time, and with it the whole loop around it.
Where there is more to compute than that, the gather goes first, into a small array, and the rest is vectorized::

    for (i1 ...) { const int64_t t1 = index[i1]; const int64_t t2 = tg_bound(t1, ...); got0[i1] = x[t2]; }
    #pragma omp simd
    for (i1 ...) { const float t3 = tg_from_bf16(got0[i1]); ... }

``index[i] * 2`` of 512 x 1024 bfloat16 numbers: 618 and 207 microseconds; of floats, which need no conversion, it would
take longer (284 and 381), so what counts is whether a function is called.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

LONGEST = 4096  # elements of the small array
_DEFINITION = re.compile(r"const \w+ (t\d+) = (.*);")
_READ = re.compile(r"\b(\w+)\[([^\[\]]*)\]")
_CALL = re.compile(r"\b(?!tg_bound\b)[a-z_]\w*\(")


def split(body: list[str], counter: str, size: int, memory: Mapping[str, str]) -> tuple[list[str], ...] | None:
    """The arrays, the statements of the gather and those of the rest; None where that does not pay or is not possible.

    ``memory``: the C types of the buffers that may be read, by name; ``counter``: the loop's.
    """
    defined = {found[1]: found[2] for line in body if (found := _DEFINITION.fullmatch(line))}
    places = {name for name, text in defined.items() if text.startswith("tg_bound(")}
    reads: dict[str, tuple[str, str]] = {}  # the read as it is written: buffer, name of the array
    for line in body:
        for found in _READ.finditer(line):
            used = places & _names(found[2])
            if used and found[1] in memory and found[0] not in reads:
                reads[found[0]] = found[1], f"got{len(reads)}"
    rest = [line for line in body if not _is_definition_of(line, places)]
    for text, (_, array) in reads.items():
        rest = [line.replace(text, f"{array}[{counter}]") for line in rest]
    if not reads or size > LONGEST or not any(map(_CALL.search, rest)) or any(places & _names(line) for line in rest):
        return None
    needed = _closure(set().union(*(_names(text) for text in reads)) & set(defined), defined)
    gather = [line for line in body if _is_definition_of(line, needed)]
    gather += [f"{array}[{counter}] = {text};" for text, (_, array) in reads.items()]
    arrays = [f"{memory[buffer]} {array}[{size}] ALIGNED;" for buffer, array in reads.values()]
    return arrays, gather, _alive(rest)


def _names(text: str) -> set[str]:
    return set(re.findall(r"\bt\d+\b", text))


def _is_definition_of(line: str, names: set[str]) -> bool:
    found = _DEFINITION.fullmatch(line)
    return found is not None and found[1] in names


def _closure(names: set[str], defined: Mapping[str, str]) -> set[str]:
    """These values and all that they are computed from."""
    while more := {n for name in names for n in _names(defined[name]) if n in defined} - names:
        names = names | more
    return names


def _alive(body: list[str]) -> list[str]:
    """Without values that nothing reads any more."""
    while True:
        dead = {
            found[1]
            for k, line in enumerate(body)
            if (found := _DEFINITION.fullmatch(line)) and not any(found[1] in _names(x) for x in body[k + 1 :])
        }
        if not dead:
            return body
        body = [line for line in body if not _is_definition_of(line, dead)]
