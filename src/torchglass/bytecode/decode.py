"""Code object in, instructions out.

``decode(code)`` drops CACHE entries, folds EXTENDED_ARG and gives what 3.13 holds in one as the two that it stands for,
so that instructions are numbered 0, 1, 2, ... and jumps name the *index* of their target:

    >>> [i.opname for i in decode((lambda x: x + 1).__code__)]   # doctest: +SKIP
    ['RESUME', 'LOAD_FAST', 'LOAD_CONST', 'BINARY_OP', 'RETURN_VALUE']
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

from .exceptions import parse_table

_NO_FALL = frozenset(
    ("RETURN_VALUE", "RETURN_CONST", "RERAISE", "RAISE_VARARGS", "JUMP_FORWARD", "JUMP_BACKWARD",
     "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE")
)  # fmt: skip
_JUMPS = set(dis.hasjrel) | set(dis.hasjabs)
PAIRS = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}
"""Instructions (3.13) on two of the first 16 variables, and the two that they stand for."""
COMPARES_TRUTH = 16  # in the argument of COMPARE_OP (3.13): TO_BOOL follows


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

    @property
    def successors(self) -> list[int]:
        """Where control goes on but for handlers: at a jump's target, at the next instruction."""
        jumped = [] if self.target is None else [self.target]
        return jumped if self.opname in _NO_FALL else [*jumped, self.index + 1]


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
    raw = _raw(code)
    index_of = _index_by_offset(code, raw)
    lines = _line_by_offset(code)
    parts = (part for i in raw for part in _parts(i))
    return tuple(
        Instruction(
            index=n,
            offset=offset,
            opcode=dis.opmap[name],
            opname=name,
            arg=arg,
            argval=argval,
            line=lines.get(offset),
            target=index_of[argval] if dis.opmap[name] in _JUMPS else None,
        )
        for n, (offset, name, arg, argval) in enumerate(parts)
    )


def _raw(code: CodeType) -> list[dis.Instruction]:
    return [i for i in dis.get_instructions(code) if i.opname not in ("EXTENDED_ARG", "CACHE")]


def _parts(i: dis.Instruction) -> list[tuple[int, str, int | None, Any]]:
    """The offset, name, number and meaning of the argument of the one or two instructions that ``i`` stands for."""
    if i.opname in PAIRS:
        assert i.arg is not None
        return [(i.offset, *part) for part in zip(PAIRS[i.opname], (i.arg >> 4, i.arg & 15), i.argval)]
    if i.opname == "COMPARE_OP" and sys.version_info >= (3, 13):
        assert i.arg is not None
        text = i.argval.removeprefix("bool(").removesuffix(")")
        truth = [(i.offset, "TO_BOOL", None, None)] if i.arg & COMPARES_TRUTH else []
        return [(i.offset, i.opname, i.arg & ~COMPARES_TRUTH, text), *truth]
    return [(i.offset, i.opname, i.arg, i.argval)]


@lru_cache(maxsize=512)
def exception_entries(code: CodeType) -> tuple[ExceptionEntry, ...]:
    """The exception table of ``code`` (3.11+; empty before) in instruction indices."""
    if not getattr(code, "co_exceptiontable", b""):
        return ()
    index_of = _index_by_offset(code, _raw(code))
    return tuple(
        ExceptionEntry(index_of[start], index_of[end], index_of[target], depth, lasti)
        for start, end, target, depth, lasti in parse_table(code.co_exceptiontable)
    )


def protection(code: CodeType, index: int) -> ExceptionEntry | None:
    """The handler that protects an instruction, None when there is none."""
    return next((h for h in exception_entries(code) if h.start <= index < h.end), None)


def _index_by_offset(code: CodeType, raw: list[dis.Instruction]) -> dict[int, int]:
    """Every code offset (CACHE and EXTENDED_ARG included) to the index of the first instruction at or after it."""
    table: dict[int, int] = {}
    offset = index = 0
    for instruction in raw:
        while offset <= instruction.offset:
            table[offset] = index
            offset += 2
        index += len(_parts(instruction))
    while offset <= len(code.co_code):
        table[offset] = index
        offset += 2
    return table


def _line_by_offset(code: CodeType) -> dict[int, int]:
    lines: dict[int, int] = {}
    for start, end, line in code.co_lines():
        if line is not None:
            for offset in range(start, end, 2):
                lines[offset] = line
    return lines


def codes_within(codes: Iterable[CodeType]) -> Iterator[CodeType]:
    """Each of these and all that is defined inside them, at any depth."""
    waiting = list(codes)
    while waiting:
        code = waiting.pop()
        yield code
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
