"""Code that starts in the middle of a loop: the rest of the first round is written out before the loop.

A resume function restores a stack and jumps into its user's bytecode.  If that place is inside a loop, the loop has no
head that control passes first.  Copying the rest of the current round gives one: before, ``jump into the body of for``;
after, ``rest of the body; for x in it: whole body``.  Which loops there are is read off the code that the jump skips,
which is the user's whole function.
"""

from __future__ import annotations

from types import CodeType

from ..bytecode.canonical import Ins, canonical
from .flow import skip, successors
from .minimize import reachable_instructions
from .regions import chain


def peel_entered_loops(code: list[Ins]) -> bool:
    """Copy what remains of the round that ``code`` is entered in, once for each loop around the entry.

    Returns whether anything was copied.
    """
    jump = _entry_jump(code)
    if jump is None:
        return False
    loops = _loops(code, _original_start(code, jump))
    place = skip(code, jump.to)
    around = sorted((loop for loop in loops if place in loop[1] and loop[0] != place), key=lambda loop: -len(loop[1]))
    for n, (head, members) in enumerate(around):
        start, taken = _copy(code, place, head, members)
        jump.to = place = start
        # the loops further in now stand in the copy as well, and it is there that control is
        for k in range(n + 1, len(around)):
            inner_head, inner = around[k]
            around[k] = (taken.get(inner_head, inner_head), {taken.get(at, at) for at in inner})
    return bool(around)


def adopt_handlers(code: list[Ins]) -> None:
    """A prologue that enters contexts anew protects them by handlers of its own; the code it jumps into has others.

    Where there are as many, the prologue's instructions move into the regions of the code that follows.
    """
    jump = _entry_jump(code)
    if jump is None:
        return
    own, others = chain(code, jump.eh), chain(code, code[skip(code, jump.to)].eh)
    if len(own) != len(others) or own == others:
        return
    adopted = dict(zip(own, others))
    like = {ins.eh: ins for ins in code if ins.eh in others}
    for ins in code[: jump.index + 1]:
        if ins.eh in adopted and adopted[ins.eh] in like:
            region = like[adopted[ins.eh]]
            ins.eh, ins.depth, ins.lasti = region.eh, region.depth, region.lasti


def resumes(code: CodeType) -> bool:
    """Whether ``code`` begins with a prologue that jumps over the start of a function into its middle."""
    return _entry_jump(canonical(code)) is not None


def restored_names(code: list[Ins]) -> set[str]:
    """The parameters that a prologue puts back on the stack, if nothing else is ever stored to them."""
    jump = _entry_jump(code)
    if jump is None:
        return set()
    names = {ins.arg for ins in code[: jump.index] if ins.op == "LOAD_FAST"}
    return names - {ins.arg for ins in code if ins.op in ("STORE_FAST", "DELETE_FAST")}


def _entry_jump(code: list[Ins], start: int = 0) -> Ins | None:
    """The jump that ends a prologue: forward, over code that nothing else reaches (no compiler leaves such code)."""
    for ins in code[start:]:
        if ins.op == "JUMP":
            over = ins.to > ins.index + 1
            return ins if over and ins.index + 1 not in reachable_instructions(code, start) else None
        if ins.nxt != ins.index + 1 or ins.op.startswith("BRANCH") or ins.op == "FOR_ITER":
            return None
    return None


def _original_start(code: list[Ins], jump: Ins) -> int:
    """Where the user's function begins; a function that was resumed more than once has a prologue for each time."""
    while True:
        inner = _entry_jump(code, jump.index + 1)
        if inner is None:
            return jump.index + 1
        jump = inner


def _next(code: list[Ins], at: int) -> list[int]:
    ins = code[at]
    out = [n for n in successors(ins) if 0 <= n < len(code)]
    if ins.eh >= 0:
        out.append(ins.eh)
    return out


def _loops(code: list[Ins], start: int) -> list[tuple[int, set[int]]]:
    """``(head, instructions)`` of the natural loops of the code that begins at ``start``."""
    found: dict[int, set[int]] = {}
    seen: set[int] = set()
    before: dict[int, list[int]] = {}
    active: set[int] = set()
    edges: list[tuple[int, int]] = []
    stack = [(start, iter(_next(code, start)))]
    seen.add(start)
    active.add(start)
    while stack:
        at, ways = stack[-1]
        way = next(ways, None)
        if way is None:
            stack.pop()
            active.discard(at)
            continue
        before.setdefault(way, []).append(at)
        if way in active:
            edges.append((at, way))
        elif way not in seen:
            seen.add(way)
            active.add(way)
            stack.append((way, iter(_next(code, way))))
    for source, head in edges:
        members = found.setdefault(head, {head})
        work = [source]
        while work:
            at = work.pop()
            if at not in members:
                members.add(at)
                work.extend(before.get(at, ()))
    for head, members in found.items():
        low, high = min(members), max(members)
        if low == head:  # what lies between and only leaves the function belongs to the body as well
            members |= {at for at in seen if low <= at <= high}
    return [(skip(code, head), members) for head, members in found.items()]


def _copy(code: list[Ins], target: int, head: int, members: set[int]) -> tuple[int, dict[int, int]]:
    """Copy what is reached from ``target`` within ``members`` without passing ``head``: ``(start, old to new)``."""
    taken: dict[int, int] = {}
    work = [target]
    order: list[int] = []
    while work:
        at = work.pop()
        if at in taken or at not in members or at == head:
            continue
        taken[at] = len(code) + len(order)
        order.append(at)
        work.extend(_next(code, at))
    copies = []
    for at in order:
        old = code[at]
        new = Ins(taken[at], old.offset, old.op, old.arg, None)
        new.jump_if, new.depth, new.lasti = old.jump_if, old.depth, old.lasti
        new.nxt = taken.get(old.nxt, old.nxt)
        new.to = taken.get(old.to, old.to)
        new.eh = taken.get(old.eh, old.eh)
        copies.append(new)
    code.extend(copies)
    return taken[target], taken
