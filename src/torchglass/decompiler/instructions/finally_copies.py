"""``finally`` bodies are compiled once per way out; here all copies but the handler's are taken away.

Input: simplified instructions and the kind of every handler.  Output: the same instructions with every exit of a
``try … finally`` redirected past its copy of the body.  Before: ``try: f() finally: g()`` is f, g, return and, as
handler, g, RERAISE.  After: f, return, with the handler as the only g.
"""

from __future__ import annotations

from ...bytecode.flow import handlers_around, label, reachable_instructions, skip, successors
from ...bytecode.ins import Ins
from .minimize import alike
from .simplify import with_after


def strip_finally_copies(code: list[Ins], kinds: dict[int, str]) -> set[int]:
    """Redirect the exits of every ``finally`` region past their copy; returns the handlers where that failed."""
    failed: set[int] = set()
    handlers = [h for h, kind in kinds.items() if kind == "finally"]
    if not handlers:
        return failed
    chains = {h: handlers_around(code, h) for h in kinds}
    handlers.sort(key=lambda h: -len(chains[h]))
    end = Ins(len(code), -1, "UNREACHABLE", None, None)
    end.nxt = -1
    code.append(end)
    while handlers:
        failed = {h for h in handlers if not _strip(code, h, chains, end.index)}
        if len(failed) == len(handlers):
            return failed
        handlers = [h for h in handlers if h in failed]
    return failed


def _strip(code: list[Ins], handler: int, chains: dict[int, list[int]], end: int) -> bool:
    inside = {ins.index for ins in code if ins.eh >= 0 and handler in chains[ins.eh]}
    alive = set(reachable_instructions(code))
    changes: list[tuple[Ins, str, int]] = []
    for at in sorted(inside & alive):
        if not _exit_changes(code, code[at], inside, handler, end, changes):
            return False
    for ins, field, after in changes:
        setattr(ins, field, after)
    return True


def _exit_changes(
    code: list[Ins], ins: Ins, inside: set[int], handler: int, end: int, changes: list[tuple[Ins, str, int]]
) -> bool:
    for field in ("nxt", "to"):
        target = getattr(ins, field)
        if (target < 0 or ins.op.startswith("SETUP_")) and not (field == "nxt" and target >= 0):
            continue
        if target in inside:
            continue
        target = skip(code, target)
        if target in inside or target == end:
            continue
        after = past_copy(code, handler, target, end)
        if after is None:
            return False
        changes.append((ins, field, after))
    return True


def past_copy(code: list[Ins], handler: int, copy: int, end: int) -> int | None:
    """Where the flow continues after the copy of ``handler``'s body that starts at ``copy``; None if it is no copy."""
    seen: dict[int, int] = {}
    ends: list[int] = []
    work = [(_body_start(code, handler), copy)]
    while work:
        a, b = work.pop()
        a, b = _skip_unwinding(code, a), skip(code, b)
        if seen.get(a) == b:
            continue
        if a >= len(code) or b >= len(code):
            return None
        x, y = code[a], code[b]
        if x.op == "RERAISE":
            ends.append(b)
            continue
        if a in seen:  # the handler's ways meet here, those of the copy were copied on
            if alike(code, seen[a], b, False) is None:
                return None
            continue
        seen[a] = b
        if x.op != y.op or label(x) != label(y):
            return None
        work.extend(zip(successors(x), successors(y)))
    if not ends:
        return end
    first = ends[0]
    for other in ends[1:]:
        if other != first and alike(code, first, other, False) is None:
            return None
    return first


def _body_start(code: list[Ins], handler: int) -> int:
    at = skip(code, handler)
    return code[at].nxt if code[at].op == "PUSH_EXC_INFO" else at


def _skip_unwinding(code: list[Ins], at: int) -> int:
    """Leaving a finally body by return or break first restores the exception state; the copies have none to restore."""
    at = skip(code, at)
    if code[at].op in ("POP_TOP", "SWAP"):
        here = at
        for _ in range(1000):
            ins = code[here]
            if ins.op == "POP_EXCEPT":
                return skip(code, ins.nxt)
            if ins.op not in ("POP_TOP", "SWAP", "ROT", "NOP"):
                break
            here = skip(code, ins.nxt)
    return at


def unify_with_exits(code: list[Ins], kinds: dict[int, str]) -> None:
    """The normal end of a with block and its swallowed exception continue at one place, even where that was copied."""
    places = {h: with_after(code, h) for h, kind in kinds.items() if kind == "with"}
    for ins in code:
        if ins.op != "WITH_END" or ins.eh < 0:
            continue
        after = places.get(ins.eh)
        if after is None or ins.nxt < 0:
            continue
        a, b = skip(code, ins.nxt), skip(code, after)
        if a != b and alike(code, b, a, False) is not None:
            ins.nxt = b
