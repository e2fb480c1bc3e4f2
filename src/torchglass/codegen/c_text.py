"""Pieces of C as lists of lines: loops over dimensions, blocks of them, counters.

``wrap(["y[i1] = 0;"], (4, 8), [0, 1])`` is that line in two loops, indented.
"""

from __future__ import annotations

import re

from ..records.sizes import Size

_WORD = re.compile(r"[A-Za-z_]\w*")
_DEFINED = re.compile(r"const \w+ ([rt]\d+) = ")


def decode(name: str, dims: list[tuple[int, Size]]) -> list[str]:
    """Counters of several dimensions from one that runs over all of them."""
    if not dims:
        return []
    lines = []
    rest = name
    for k, size in reversed(dims[1:]):
        lines.append(f"const int64_t i{k} = {rest} % {size};")
        rest = f"{rest} / {size}" if rest == name else f"({rest}) / {size}"
    lines.append(f"const int64_t i{dims[0][0]} = {rest};")
    return lines


def loop_over(k: int, size: Size, step: int = 1) -> str:
    return f"for (int64_t i{k} = 0; i{k} < {size}; {f'++i{k}' if step == 1 else f'i{k} += {step}'}) {{"


def wrap(body: list[str], dims: tuple[Size, ...], which: range | list[int]) -> list[str]:
    """Plain loops over the given dimensions around ``body``, the first outermost."""
    for k in reversed(which):
        body = [loop_over(k, dims[k]), *indent(body), "}"]
    return body


def copies(body: list[str], k: int, size: int) -> list[str]:
    """A body for each index of a dimension, one after the other; values that do not depend on it come once, before."""
    moving, once, each = {f"i{k}"}, [], []
    for line in body:
        found = _DEFINED.match(line)
        if found and moving.isdisjoint(_WORD.findall(line)):
            once.append(line)
            continue
        each.append(line)
        moving.add(found[1] if found else _WORD.findall(line)[0])  # a name defined, or a buffer written to
    return [*once, *(line for n in range(size) for line in ("{", *indent([f"const int64_t i{k} = {n};", *each]), "}"))]


def limit(name: str, start: str, step: int | str, size: Size) -> str:
    """Where the block that begins at ``start`` ends."""
    return f"const int64_t {name} = {start} + {step} < {size} ? {start} + {step} : {size};"


def renamed(line: str, names: dict[str, str]) -> str:
    """The line with the printer's own variables, ``r1`` and ``t2``, called otherwise."""
    return re.sub(r"\b[rt]\d+\b", lambda m: names.get(m.group(0), m.group(0)), line)


def indent(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]
