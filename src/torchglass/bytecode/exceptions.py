"""Exception handlers per instruction: from the exception table (3.11+) or from the block stack (3.10).

Input: a code object and its canonical instructions; output: their ``eh``, ``depth`` and ``lasti`` filled in.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import CodeType
from typing import Any

from .ins import Ins

_SETUP = frozenset({"SETUP_FINALLY", "SETUP_WITH", "SETUP_ASYNC_WITH"})


def handler_table(code: CodeType, out: list[Ins], index_at: dict[int, int]) -> None:
    """Fill ``eh``, ``depth`` and ``lasti`` of each instruction in ``out``; -1 means unprotected."""
    if hasattr(code, "co_exceptiontable"):
        _from_table(code, out, index_at)
    else:
        _from_blocks(out)


def parse_table(table: bytes) -> list[tuple[int, int, int, int, bool]]:
    """The rows ``(start, end, target, depth, lasti)`` of a 3.11+ exception table, offsets in bytes."""
    rows = []
    position = 0
    size = len(table)

    def varint() -> int:
        nonlocal position
        byte = table[position]
        position += 1
        value = byte & 63
        while byte & 64:
            byte = table[position]
            position += 1
            value = (value << 6) | (byte & 63)
        return value

    while position < size:
        start = varint() * 2
        length = varint() * 2
        target = varint() * 2
        packed = varint()
        rows.append((start, start + length, target, packed >> 1, bool(packed & 1)))
    return rows


def build_table(rows: Iterable[tuple[int, int, int, int, bool]]) -> bytes:
    """An exception table (3.11+) of rows as ``parse_table`` gives them.

    Source: CPython, Objects/exception_handling_notes.txt.
    """
    table = bytearray()
    for start, end, target, depth, lasti in rows:
        first = len(table)
        for number in (start // 2, (end - start) // 2, target // 2, depth << 1 | lasti):
            sixes = [number & 63]
            while number := number >> 6:
                sixes.append(number & 63 | 64)
            table += bytes(reversed(sixes))
        table[first] |= 128
    return bytes(table)


def _from_table(code: CodeType, out: list[Ins], index_at: dict[int, int]) -> None:
    table = code.co_exceptiontable
    if not table:
        return
    rows = parse_table(table)
    n = 0
    for start, end, target, depth, lasti in rows:
        handler = index_at[target]
        while n < len(out) and out[n].offset < start:
            n += 1
        while n < len(out) and out[n].offset < end:
            ins = out[n]
            ins.eh, ins.depth, ins.lasti = handler, depth, lasti
            n += 1


def _from_blocks(out: list[Ins]) -> None:
    """3.10: follow SETUP_*, POP_BLOCK and POP_EXCEPT along every path; the top block's handler protects."""
    stacks: dict[int, tuple[Any, ...]] = {}
    work: list[tuple[int, tuple[Any, ...]]] = [(0, ())]
    while work:
        at, stack = work.pop()
        while 0 <= at < len(out) and at not in stacks:
            stacks[at] = stack
            ins = out[at]
            op = ins.op
            if op in _SETUP:
                work.append((ins.to, stack + (-1,)))
                stack = stack + (ins.to,)
            elif op in ("POP_BLOCK", "POP_EXCEPT"):
                stack = stack[:-1]
            elif ins.to >= 0:
                work.append((ins.to, stack))
            at = ins.nxt
    for at, stack in stacks.items():
        ins = out[at]
        for handler in reversed(stack):
            if handler >= 0:
                ins.eh = handler
                break
