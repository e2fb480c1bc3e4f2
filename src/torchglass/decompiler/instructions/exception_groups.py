"""``except*``: its handler is rewritten to the shape of a plain ``except`` chain before anything else reads it.

CPython keeps the list of what each clause raised and ends in PREP_RERAISE_STAR.  Here the test becomes CHECK_EXC_MATCH,
the end of a clause POP_EXCEPT, and what no clause took RERAISE.
"""

from __future__ import annotations

from ...bytecode.flow import following, skip
from ...bytecode.ins import Ins, append


def rewrite_group_handlers(code: list[Ins]) -> None:
    """Rewrite every ``except*`` handler of ``code`` in place."""
    tests = [ins for ins in code if ins.op == "CHECK_EG_MATCH"]
    if not tests:
        return
    for ins in code:
        if ins.op == "PUSH_EXC_INFO":
            _drop_preparation(code, ins)
    for test in tests:
        _rewrite_clause(code, test)


def _drop_preparation(code: list[Ins], push: Ins) -> None:
    steps = following(code, push.nxt, 3)
    ops = [(s.op, s.arg) for s in steps]
    if ops == [("COPY", 1), ("BUILD_LIST", 0), ("SWAP", 2)]:
        count = 3
    elif ops[:2] == [("BUILD_LIST", 0), ("COPY", 2)]:
        count = 2
    else:
        return
    for step in steps[:count]:
        step.drop()


def _rewrite_clause(code: list[Ins], test: Ins) -> None:
    copy, branch = following(code, test.nxt, 2)
    if copy.op != "COPY" or branch.op != "BRANCH" or branch.arg != "none" or not branch.jump_if:
        return
    test.op = "CHECK_EXC_MATCH"
    copy.drop()
    branch.arg, branch.jump_if = "bool", False
    miss = code[skip(code, branch.to)]
    if miss.op != "POP_TOP":
        return
    miss.drop()
    onward = skip(code, miss.nxt)
    done = append(code, "POP_EXCEPT", None, test)
    done.pos = test.pos
    done.nxt = _end(code, onward)
    ends = {onward}
    if _is_final(code, onward):
        raising = append(code, "RERAISE", None, test)
        raising.pos, raising.nxt = test.pos, -1
        miss.nxt = raising.index
        ends |= {i.index for i in code if _is_final(code, i.index)}
    _redirect(code, ends, done.index, miss.index)
    _drop_name_cleanup(code, done.index)


def _is_final(code: list[Ins], at: int) -> bool:
    ins = code[at]
    return ins.op == "LIST_APPEND" and ins.arg == 1 and code[skip(code, ins.nxt)].op == "PREP_RERAISE_STAR"


def _end(code: list[Ins], at: int) -> int:
    """Where the statement ends: behind PREP_RERAISE_STAR, when nothing is left to raise."""
    for _ in range(20000):
        if at < 0 or at >= len(code):
            return -1
        ins = code[at]
        if ins.op == "PREP_RERAISE_STAR":
            _copy, branch = following(code, ins.nxt, 2)
            nothing = branch.nxt if not branch.jump_if else branch.to
            steps = following(code, nothing, 2)
            return steps[1].nxt
        at += 1
    return -1


def _redirect(code: list[Ins], places: set[int], to: int, miss: int) -> None:
    for ins in code:
        if ins.index in (miss, to) or ins.op == "CHECK_EXC_MATCH":
            continue
        if ins.to >= 0 and skip(code, ins.to, miss) in places:
            ins.to = to
        if ins.nxt >= 0 and ins.op != "NOP" and skip(code, ins.nxt, miss) in places:
            ins.nxt = to


def _drop_name_cleanup(code: list[Ins], done: int) -> None:
    for ins in code:
        if ins.op == "LOAD_CONST" and ins.arg is None:
            steps = following(code, ins.index, 4)
            if unbinds_name(steps) and len(steps) == 4 and steps[3].index == done:
                for step in steps[:3]:
                    step.drop()


def unbinds_name(steps: list[Ins]) -> bool:
    """Whether ``steps`` begin with what ends every clause that says ``as e``: ``e = None; del e``."""
    if len(steps) < 3 or steps[0].op != "LOAD_CONST" or steps[0].arg is not None:
        return False
    store, delete = steps[1:3]
    named = store.op.startswith("STORE_") and delete.op.startswith("DELETE_")
    return named and store.arg == delete.arg and isinstance(store.arg, str)
