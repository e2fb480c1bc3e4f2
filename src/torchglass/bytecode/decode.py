"""Code object in, instructions out.

``decode(code)`` drops CACHE entries and folds EXTENDED_ARG, so that instructions are numbered 0, 1, 2, ... and jumps
name the *index* of their target:

    >>> [i.opname for i in decode((lambda x: x + 1).__code__)]   # doctest: +SKIP
    ['RESUME', 'LOAD_FAST', 'LOAD_CONST', 'BINARY_OP', 'RETURN_VALUE']
"""

from __future__ import annotations

import dis
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

_JUMPS = set(dis.hasjrel) | set(dis.hasjabs)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. ``target`` is the index of a jump's target (None for others), ``line`` the source line."""

    index: int
    offset: int
    opcode: int
    opname: str
    arg: int | None
    argval: Any
    line: int | None
    target: int | None


@dataclass(frozen=True, slots=True)
class ExceptionEntry:
    """Instructions ``start <= index < end`` are protected; the handler at ``target`` keeps ``depth`` values."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool


@lru_cache(maxsize=4096)
def decode(code: CodeType) -> tuple[Instruction, ...]:
    """The instructions of ``code`` in order, without CACHE and EXTENDED_ARG."""
    raw = [i for i in dis.get_instructions(code) if i.opname not in ("EXTENDED_ARG", "CACHE")]
    index_of = _index_by_offset(code, raw)
    lines = _line_by_offset(code)
    return tuple(
        Instruction(
            index=n,
            offset=i.offset,
            opcode=i.opcode,
            opname=i.opname,
            arg=i.arg,
            argval=i.argval,
            line=lines.get(i.offset),
            target=index_of[i.argval] if i.opcode in _JUMPS else None,
        )
        for n, i in enumerate(raw)
    )


def exception_entries(code: CodeType) -> tuple[ExceptionEntry, ...]:
    """The exception table of ``code`` (3.11+; empty before) in instruction indices."""
    if not hasattr(code, "co_exceptiontable"):
        return ()
    raw = [i for i in dis.get_instructions(code) if i.opname not in ("EXTENDED_ARG", "CACHE")]
    index_of = _index_by_offset(code, raw)
    parse = dis._parse_exception_table  # type: ignore[attr-defined]
    return tuple(
        ExceptionEntry(index_of[e.start], index_of[e.end], index_of[e.target], e.depth, e.lasti) for e in parse(code)
    )


def _index_by_offset(code: CodeType, raw: list[dis.Instruction]) -> dict[int, int]:
    """Every code offset (CACHE and EXTENDED_ARG included) to the index of the first instruction at or after it."""
    table: dict[int, int] = {}
    offset = 0
    for n, instruction in enumerate(raw):
        while offset <= instruction.offset:
            table[offset] = n
            offset += 2
    while offset <= len(code.co_code):
        table[offset] = len(raw)
        offset += 2
    return table


def _line_by_offset(code: CodeType) -> dict[int, int]:
    lines: dict[int, int] = {}
    for start, end, line in code.co_lines():
        if line is not None:
            for offset in range(start, end, 2):
                lines[offset] = line
    return lines
