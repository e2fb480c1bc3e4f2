"""Code that starts in the middle of a loop: the rest of the first round is written out before the loop.

A resume function restores a stack and jumps into its user's bytecode.  If that place is inside a loop, the loop has no
head that control passes first.  Copying the rest of the current round gives one: before, ``jump into the body of for``;
after, ``rest of the body; for x in it: whole body``.  Which loops there are is read off the code that the jump skips,
which is the user's whole function.
"""

from __future__ import annotations

import dis
from types import CodeType

from ...bytecode.canonical import TERMINAL, canonical
from ...bytecode.decode import decode, protection
from ...bytecode.flow import handlers_around, reachable_instructions, skip, successors
from ...bytecode.ins import Ins, append

#: the position of a RAISE that stands for a jump to a handler, and the argument of a clause made for an entry
ENTERED = "entered"
#: the position of the last instruction of a prologue before a loop of one round
WRAPPED = "wrapped"
#: how many instructions may be copied that leave the function from within a loop
_LONGEST_END = 40


def peel_entered_loops(code: list[Ins], depths: dict[int, int] | None = None) -> bool:
    """Copy what remains of the round that ``code`` is entered in, once for each loop around the entry.

    With ``depths`` (how much lies on the stack at each offset) the rest of the round becomes the body of a loop of one
    round, whose ``else`` clause is the loop itself: so ``continue`` and ``break`` keep their meaning in it.  Returns
    whether anything was copied.
    """
    jump = entry_jump(code)
    if jump is None:
        return False
    loops = _loops(code, _original_start(code, jump))
    way = "eh" if jump.op == "RAISE" else "to"
    if getattr(jump, way) < 0:
        return False
    place = skip(code, getattr(jump, way))
    around = sorted((loop for loop in loops if place in loop[1] and loop[0] != place), key=lambda loop: -len(loop[1]))
    tails: dict[int, Ins] = {}
    for n, (head, members) in enumerate(around):
        again = head if depths is None else _single_round(code, jump, head, depths[code[head].offset], tails)
        start, taken = _copy(code, place, head, members, again)
        for ins in code[: jump.index + 1]:  # a generator's own yield, an exception on its way
            ins.eh = taken.get(ins.eh, ins.eh)
        place = start
        setattr(jump, way, start)
        # the loops further in now stand in the copy as well, and it is there that control is
        for k in range(n + 1, len(around)):
            inner_head, inner = around[k]
            around[k] = (taken.get(inner_head, inner_head), {taken.get(at, at) for at in inner})
    return bool(around)


_PUSHES = {"LOAD_FAST": 1, "LOAD_CONST": 1, "PUSH_NULL": 1, "PUSH_EXC_INFO": 1, "COPY": 1, "RETURN_GENERATOR": 1,
           "POP_TOP": -1, "STORE_FAST": -1}  # fmt: skip


def _single_round(code: list[Ins], jump: Ins, head: int, depth: int, tails: dict[int, Ins]) -> int:
    """Wrap the rest of the prologue in ``flag = True; while flag: flag = False; ...; else: the loop at head``.

    It begins where the prologue has restored the ``depth`` values that lie below the loop's body.  Returns the index
    of the new loop's test.
    """
    at, height = 0, 0
    for ins in code[: jump.index]:
        height += _PUSHES.get(ins.op, 0)
        if height == depth:
            at = ins.index
    names = {ins.arg for ins in code if ins.op.endswith("_FAST")}
    flag = next(name for n in range(len(code)) if (name := f"_entered_{n}" if n else "_entered") not in names)
    steps = (("LOAD_CONST", True), ("STORE_FAST", flag), ("LOAD_FAST", flag), ("BRANCH", "bool"),
             ("LOAD_CONST", False), ("STORE_FAST", flag))  # fmt: skip
    new = [append(code, op, arg, code[head]) for op, arg in steps]
    new[3].to = head
    before = tails.get(at, code[at])
    before.nxt, new[5].nxt, tails[at] = new[0].index, at + 1, new[5]
    code[at].pos = WRAPPED
    for ins in code[at + 1 : jump.index + 1]:
        ins.region = ins.region if ins.eh >= 0 else (new[0].eh, depth, False)
    return new[2].index


def stack_depths(code: CodeType) -> dict[int, int]:
    """How many values lie on the stack before the instruction at each offset that control reaches from anywhere."""
    instructions = decode(code)
    depths: dict[int, int] = {}
    # a prologue's jump leads into the middle; what it skips begins with an empty stack
    work = [(0, 0), *[(i.index + 1, 0) for i in instructions if i.opname == "JUMP_FORWARD"][:1]]
    while work:
        at, depth = work.pop()
        if at >= len(instructions) or at in depths:
            continue
        depths[at] = depth
        if (handler := protection(code, at)) is not None:
            work.append((handler.target, handler.depth + handler.lasti + 1))
        i = instructions[at]
        arg = i.arg if i.opcode >= dis.HAVE_ARGUMENT else None
        for after in i.successors:
            generator = i.opname == "RETURN_GENERATOR"
            effect = 1 if generator else dis.stack_effect(i.opcode, arg, jump=after == i.target)
            work.append((after, depth + effect))
    # of two that stand for one, the first
    return {instructions[at].offset: depths[at] for at in sorted(depths, reverse=True)}


def enter_behind_exit(code: list[Ins]) -> None:
    """Code entered behind the call that leaves a ``with`` drops the call's result: it is not restored at all.

    So the instructions that leave the ``with`` stay whole for those who come the ordinary way.
    """
    jump = entry_jump(code)
    if jump is None or jump.op != "JUMP" or code[jump.to].op != "POP_TOP" or code[jump.index - 1].op != "LOAD_FAST":
        return
    before = [ins for ins in code[max(jump.to - 7, 0) : jump.to] if ins.op != "NOP"][-4:]
    if [ins.op for ins in before] != ["LOAD_CONST"] * 3 + ["CALL"] or before[3].arg != (2, None):
        return
    code[jump.index - 1].drop()
    jump.to = code[jump.to].nxt


def adopt_handlers(code: list[Ins]) -> None:
    """A prologue that enters contexts anew protects them by handlers of its own; the code it jumps into has others.

    Where there are as many, the prologue's instructions move into the regions of the code that follows.
    """
    jump = entry_jump(code)
    if jump is None or jump.op == "RAISE":
        return
    own, others = handlers_around(code, jump.eh), handlers_around(code, code[skip(code, jump.to)].eh)
    if len(own) != len(others) or own == others:
        return
    adopted = dict(zip(own, others))
    like = {ins.eh: ins for ins in code if ins.eh in others}
    for ins in code[: jump.index + 1]:
        if ins.eh in adopted and adopted[ins.eh] in like:
            ins.region = like[adopted[ins.eh]].region


def resumes(code: CodeType) -> bool:
    """Whether ``code`` begins with a prologue that jumps over the start of a function into its middle."""
    return entry_jump(canonical(code)) is not None


def restored_names(code: list[Ins]) -> set[str]:
    """The parameters that a prologue puts back on the stack, if nothing else is ever stored to them."""
    jump = entry_jump(code)
    if jump is None:
        return set()
    names = {ins.arg for ins in code[: jump.index] if ins.op == "LOAD_FAST"}
    return names - {ins.arg for ins in code if ins.op in ("STORE_FAST", "DELETE_FAST")}


def entry_jump(code: list[Ins], start: int = 0) -> Ins | None:
    """What ends a prologue: a jump forward over code that nothing else reaches (no compiler leaves such code).

    ``entered.py`` may have made it a RAISE, whose handler is where it goes.
    """
    for ins in code[start:]:
        if ins.op == "JUMP":
            over = ins.to > ins.index + 1
            return ins if over and ins.index + 1 not in reachable_instructions(code, start) else None
        if ins.pos == ENTERED:
            return ins
        if ins.pos == WRAPPED:
            continue
        if ins.nxt != ins.index + 1 or ins.op.startswith("BRANCH") or ins.op == "FOR_ITER":
            return None
    return None


def set_aside_skipped(code: list[Ins]) -> list[tuple[Ins, str]]:
    """Hide what the prologue skips for good, so that nothing is recognised that begins there and is entered in its
    middle; returns what to put back (the loops there are of interest later).
    """
    if entry_jump(code) is None:
        return []
    alive = reachable_instructions(code)
    skipped = [(ins, ins.op) for ins in code if ins.index not in alive]
    for ins, _ in skipped:
        ins.op = "SKIPPED"
    return skipped


def _original_start(code: list[Ins], jump: Ins) -> int:
    """Where the user's function begins; a function that was resumed more than once has a prologue for each time."""
    while True:
        inner = entry_jump(code, jump.index + 1)
        if inner is None:
            return jump.index + 1
        jump = inner


def _next(code: list[Ins], at: int) -> list[int]:
    ins = code[at]
    out = [n for n in successors(ins) if 0 <= n < len(code)]
    return out if ins.eh < 0 else [*out, ins.eh]


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
        _add_ends(code, head, members, before, seen)
    return [(skip(code, head), members) for head, members in found.items()]


def _add_ends(code: list[Ins], head: int, members: set[int], before: dict[int, list[int]], seen: set[int]) -> None:
    """To a loop's ``members`` add the ways from there that leave the function, as far as they are its own."""
    exits = {skip(code, way) for way in _next(code, head)} if code[head].op == "FOR_ITER" else set()
    for start in sorted(seen - members):
        if not members.issuperset(before.get(start, ())):
            continue  # entered from elsewhere: most are, and the rest takes long
        run: list[int] = []
        at = start
        while at in seen and at not in members and len(run) < _LONGEST_END:
            run.append(at)
            ways = successors(code[at])
            if len(ways) != 1:
                break
            at = ways[0]
        if not run:
            continue
        entered = {way for place in run for way in before.get(place, ())} - set(run)
        if code[run[-1]].op in TERMINAL and entered and entered <= members and start not in exits:
            members.update(run)


def _copy(code: list[Ins], target: int, head: int, members: set[int], again: int) -> tuple[int, dict[int, int]]:
    """Copy what is reached from ``target`` within ``members`` without passing ``head``: ``(start, old to new)``.

    What goes to ``head`` goes to ``again`` in the copy.
    """
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
        new.nxt = again if old.nxt == head else taken.get(old.nxt, old.nxt)
        new.to = again if old.to == head else taken.get(old.to, old.to)
        new.eh = taken.get(old.eh, old.eh)
        copies.append(new)
    code.extend(copies)
    return taken[target], taken
