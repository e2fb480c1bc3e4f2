"""Merges the copies CPython makes of one piece of source: the tests of inverted loops, inlined exits.

Two instructions are one when they have the same source position, the same meaning and the same future.  Only copies
are merged, never two like-looking statements of the user, as long as the code has a line table.
"""

from __future__ import annotations

from ...bytecode.flow import SAFE, label, reachable_instructions, skip, successors
from ...bytecode.ins import Ins

_RETURNING = frozenset({"NOP", "SWAP", "ROT", "POP_TOP", "POP_EXCEPT", "WITH_END", "POP_BLOCK"})


def merge_copies(code: list[Ins], reachable: list[int], positions: bool = True) -> None:
    """Redirect every jump to a copy, in place, to the first of its kind; without ``positions`` likeness suffices."""
    groups: dict[object, list[int]] = {}
    for at in reachable:
        ins = code[at]
        if ins.op not in ("NOP", "JUMP") and (ins.pos is not None or not positions) and _mergeable(code, at):
            groups.setdefault((ins.pos if positions else None, _kind(code, ins)), []).append(at)
    leader: dict[int, int] = {}
    for members in groups.values():
        if len(members) < 2:
            continue
        for n, second in enumerate(members):
            if second in leader:
                continue
            for first in members[:n]:
                if first in leader:
                    continue
                pairs = alike(code, first, second, positions, leader, True)
                if pairs is not None:
                    for a, b in pairs:
                        if b not in leader and a != b:
                            leader[b] = a
                    break
    if leader:
        redirect(code, leader)


def _kind(code: list[Ins], ins: Ins) -> object:
    """What an instruction does and what comes right after it: instructions with one future have this in common."""
    labels = [label(ins)]
    for _ in range(6):
        after = successors(ins)
        at = skip(code, after[0]) if len(after) == 1 else -1
        if not 0 <= at < len(code):
            break
        ins = code[at]
        labels.append(label(ins))
    return tuple(labels)


def returning(code: list[Ins], at: int) -> list[Ins] | None:
    """The rest of a ``return`` whose value is on the stack already: it belongs to where the value was computed."""
    tail: list[Ins] = []
    for _ in range(1000):
        ins = code[at]
        if ins.op == "RETURN_VALUE":
            return tail + [ins]
        if ins.op == "JUMP":
            at = ins.to
            continue
        if ins.op not in _RETURNING:
            return None
        if ins.op != "NOP":
            tail.append(ins)
        at = ins.nxt
    return None


def _mergeable(code: list[Ins], at: int) -> bool:
    """The ends of two returns may look alike and yet return two values; only those of one statement are copies.

    A RETURN_VALUE that stands where its statement says was copied by the compiler; one that took its position from
    the instruction before it ends the leaving of a with or finally, which all returns in it share.
    """
    ins = code[at]
    if ins.op not in _RETURNING | {"RETURN_VALUE"} or returning(code, at) is None:
        return True
    if ins.op != "RETURN_VALUE" or at == 0:
        return False
    before = code[at - 1]
    if isinstance(ins.pos, int):  # 3.10 knows lines only
        return before.op not in ("WITH_END", "LOAD_CONST")
    return before.op != "WITH_END" and before.pos != ins.pos


def redirect(code: list[Ins], leader: dict[int, int]) -> None:
    def final(at: int) -> int:
        for _ in range(64):
            at = skip(code, at) if at >= 0 else at
            if at not in leader:
                break
            at = leader[at]
        return at

    for ins in code:
        if ins.nxt >= 0 and leader.get(skip(code, ins.nxt)) is not None:
            ins.nxt = final(ins.nxt)
        if ins.to >= 0 and leader.get(skip(code, ins.to)) is not None:
            ins.to = final(ins.to)


def alike(
    code: list[Ins], first: int, second: int, positions: bool, leader: dict[int, int] | None = None, merge: bool = False
) -> list[tuple[int, int]] | None:
    """The pairs of instructions proven to have one future when ``first`` and ``second`` have; None if they don't."""
    seen: dict[int, int] = {}
    work = [(first, second)]
    pairs = []
    while work:
        a, b = work.pop()
        a, b = skip(code, a), skip(code, b)
        if leader:
            a, b = leader.get(a, a), leader.get(b, b)
        if a == b:
            continue
        if seen.get(b) == a:
            continue
        if b in seen:
            return None
        if a >= len(code) or b >= len(code):
            return None
        x, y = code[a], code[b]
        if x.op != y.op or label(x) != label(y):
            return None
        if (positions and x.pos != y.pos) or (merge and x.op == "RERAISE"):
            return None
        if x.eh != y.eh and (merge or x.op not in SAFE):
            return None
        seen[b] = a
        pairs.append((a, b))
        work.extend(zip(successors(x), successors(y)))
    return pairs


def merge_plain_returns(code: list[Ins]) -> None:
    """All unprotected ``return None`` become the last one; the structure copies it where it must be written out."""
    leader: dict[int, int] = {}
    last = -1
    sources: dict[int, int] = {}
    kept: set[int] = set()
    for at in reachable_instructions(code):
        for target in successors(code[at]):
            place = skip(code, target)
            if code[at].op not in ("NOP", "JUMP"):
                sources[place] = sources.get(place, 0) + 1
            if code[at].op == "BRANCH_KEEP":
                kept.add(place)
    for ins in reversed(code):
        if ins.op != "LOAD_CONST" or ins.arg is not None or ins.eh >= 0:
            continue
        after = code[skip(code, ins.nxt)]
        if after.op != "RETURN_VALUE" or after.eh >= 0 or sources.get(after.index, 0) > 1 or ins.index in kept:
            continue
        if last < 0:
            last = ins.index
        else:
            leader[ins.index] = last
    if leader:
        redirect(code, leader)
        for ins in code:
            # a straight line into a merged return: step over it explicitly
            if ins.nxt in leader:
                ins.nxt = leader[ins.nxt]
