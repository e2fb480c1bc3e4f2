"""Where control goes between instructions, and which canonical ones are one and the same.

``skip`` and ``following`` look along a straight line, ``successors`` at one instruction, ``reachable_instructions`` at
all; ``reached`` walks whatever graph it is given.  Indices are those of the list, -1 is nowhere.  Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from .ins import Ins

T = TypeVar("T")

#: instructions that cannot raise: whether a handler covers them does not matter
SAFE = frozenset(
    {"NOP", "POP_TOP", "JUMP", "SWAP", "ROT", "COPY", "LOAD_CONST", "STORE_FAST", "RETURN_VALUE", "PUSH_NULL",
     "WITH_END", "POP_EXCEPT", "POP_BLOCK", "STORE_DEREF", "PUSH_EXC_INFO", "STORE_GLOBAL", "SETUP_FINALLY",
     "LOAD_CLOSURE", "UNREACHABLE"}
)  # fmt: skip


def branch_ways(ins: Ins) -> tuple[int, int]:
    """``(where to when the test is true, when false)``."""
    return (ins.to, ins.nxt) if ins.jump_if else (ins.nxt, ins.to)


def successors(ins: Ins) -> tuple[int, ...]:
    """The normal successors, in an order that does not depend on how the jump was encoded."""
    if ins.to < 0:  # most instructions
        return (ins.nxt,) if ins.nxt >= 0 else ()
    if ins.op.startswith("BRANCH"):
        return branch_ways(ins)
    if ins.op == "JUMP":
        return (ins.to,)
    return (ins.nxt,) if ins.op.startswith("SETUP_") else (ins.nxt, ins.to)


def reached(starts: Iterable[T], after: Callable[[T], Iterable[T]]) -> set[T]:
    """All that is reached from ``starts``, those included, by going on to what follows each."""
    seen: set[T] = set()
    work = list(starts)
    while work:
        at = work.pop()
        if at not in seen:
            seen.add(at)
            work += after(at)
    return seen


def skip(code: list[Ins], at: int, until: int = -1) -> int:
    """The first instruction from ``at`` on that is neither NOP nor JUMP, or is ``until`` (a loop of those ends it)."""
    seen = 0
    while 0 <= at < len(code) and seen < 1000:
        ins = code[at]
        op = ins.op
        if (op != "NOP" and op != "JUMP") or at == until:  # two tests are faster than one of membership
            break
        at = ins.nxt if op == "NOP" else ins.to
        seen += 1
    return at


def following(code: list[Ins], at: int, count: int) -> list[Ins]:
    """The next ``count`` instructions from ``at`` on, straight ahead, NOPs and jumps skipped."""
    out: list[Ins] = []
    while len(out) < count and 0 <= (at := skip(code, at)) < len(code):
        ins = code[at]
        out.append(ins)
        if ins.op.startswith("BRANCH"):
            break
        at = ins.nxt
    return out


def reachable_instructions(code: list[Ins], start: int = 0) -> list[int]:
    """The indices that normal flow or a handler reaches, in order."""
    seen: set[int] = set()
    work, size = [start], len(code)
    while work:
        at = work.pop()
        while 0 <= at < size and at not in seen:
            seen.add(at)
            ins = code[at]
            at = ins.nxt
            if ins.eh >= 0:
                work.append(ins.eh)
            if ins.to >= 0:  # a jump's target, or what SETUP_FINALLY makes the handler
                work.append(ins.to)
                if ins.op == "JUMP":
                    break
    return sorted(seen)


def handlers_around(code: list[Ins], handler: int) -> list[int]:
    """``handler`` and the handlers around it, innermost first."""
    out: list[int] = []
    while handler >= 0 and handler not in out:
        out.append(handler)
        handler = code[handler].eh
    return out


def label(ins: Ins) -> Any:
    """What makes two instructions the same, jump polarity aside (constants with their types)."""
    return (ins.op, constant_key(ins.arg) if ins.op == "LOAD_CONST" else ins.arg)


def constant_key(value: Any) -> Any:
    """Equal for constants that no program can tell apart: ``1``, ``True`` and ``1.0`` differ, as do signed zeros."""
    kind = type(value)
    if kind in (tuple, frozenset):
        return (kind, kind(map(constant_key, value)))
    if kind in (float, complex):
        return (kind, repr(value))
    if kind in (int, str, bytes, bool) or value is None or value is Ellipsis:
        return (kind, value)
    return (kind, id(value))
