"""Canonical instructions in, the same program with the compiler's own bookkeeping removed.

Each pass recognises what CPython's compiler emits *around* the user's code and takes it away, leaving instructions
whose meaning is one to one with source: ``await`` loops become one YIELD_FROM, the handlers that only restore the
exception state vanish, ``e = None; del e`` after ``except … as e`` vanishes, the three Nones and the call that leave a
``with`` become one WITH_END, ``async for`` becomes FOR_ITER.  Example: ``await x`` on 3.11 is GET_AWAITABLE,
LOAD_CONST, SEND, YIELD_VALUE, RESUME, JUMP_BACKWARD_NO_INTERRUPT; after ``simplify`` it is GET_AWAITABLE, LOAD_CONST,
YIELD_FROM.
"""

from __future__ import annotations

import itertools

from ...bytecode.canonical import VERSION
from ...bytecode.flow import following, skip
from ...bytecode.ins import Ins
from .exception_groups import rewrite_group_handlers, unbinds_name


def simplify(code: list[Ins], plain: bool = False) -> dict[int, str]:
    """Rewrite ``code`` in place; returns the handlers that mean something, each with its kind.

    Kinds: ``except``, ``star``, ``finally``, ``with``.
    """
    _drop_block_marks(code)
    fold_awaits(code)
    _drop_cleanup_handlers(code)
    _fold_async_for(code)
    if not plain:  # a state machine unbinds the names of exceptions itself
        _drop_exception_name_cleanup(code)
    _cover_branches(code)
    drop_loop_ends(code)
    _keep_tested_values(code)
    kinds = handler_kinds(code)
    if "star" in kinds.values():
        rewrite_group_handlers(code)
    if "with" in kinds.values():
        _fold_with_ends(code, kinds)
    return kinds


def handler_kinds(code: list[Ins]) -> dict[int, str]:
    """What each handler in use is: ``except``, ``star``, ``finally`` or ``with``."""
    return {h: _handler_kind(code, h) for h in {ins.eh for ins in code if ins.eh >= 0}}


def _drop_block_marks(code: list[Ins]) -> None:
    """3.10 marks protected regions with instructions; which handler protects what is known by now."""
    for ins in code:
        if ins.op in ("POP_BLOCK", "SETUP_FINALLY", "SETUP_ASYNC_WITH"):
            ins.drop()


def fold_awaits(code: list[Ins]) -> None:
    for ins in code:
        if ins.op == "SEND":
            ins.op = "YIELD_FROM"
            ins.nxt, ins.to = ins.to, -1


def _drop_cleanup_handlers(code: list[Ins]) -> None:
    """Handlers that only undo what entering another handler did: their ranges fall to the handler around them."""
    known: dict[int, bool] = {}
    for ins in code:
        while ins.eh >= 0:
            handler = ins.eh
            if handler not in known:
                known[handler] = _is_cleanup(code, handler)
            if not known[handler]:
                break
            outer = code[handler]
            if outer.eh == handler:
                ins.eh = -1
                break
            ins.region = outer.region


def _is_cleanup(code: list[Ins], handler: int) -> bool:
    first = following(code, handler, 6)
    ops = [i.op for i in first]
    if ops[:3] == ["COPY", "POP_EXCEPT", "RERAISE"] and first[0].arg == 3:
        return True
    if ops[:1] in (["CLEANUP_THROW"], ["SWAP"]):  # leaving an await or an inlined comprehension
        return True
    if ops[:1] == ["LIST_APPEND"] or (ops[:1] == ["LOAD_CONST"] and ops[3:4] == ["LIST_APPEND"]):
        return True  # files what an except* clause raised
    if ops[:2] == ["INTRINSIC_1", "RERAISE"] and first[0].arg == "STOPITERATION_ERROR":
        return True
    return unbinds_name(first) and ops[3:4] == ["RERAISE"]


def _fold_async_for(code: list[Ins]) -> None:
    for ins in code:
        if ins.op != "GET_ANEXT" or ins.eh < 0:
            continue
        handler = code[skip(code, ins.eh)]
        if handler.op != "END_ASYNC_FOR":
            continue
        steps = following(code, ins.nxt, 2)
        if [s.op for s in steps] != ["LOAD_CONST", "YIELD_FROM"]:
            continue
        end = ins.eh
        ins.op, ins.arg = "FOR_ITER", "async"
        ins.nxt, ins.to = steps[1].nxt, handler.nxt
        for other in code:
            if other.eh == end:
                other.region = handler.region


def _drop_exception_name_cleanup(code: list[Ins]) -> None:
    for ins in code:
        if ins.op != "POP_EXCEPT":
            continue
        rest = following(code, ins.nxt, 3)
        if unbinds_name(rest):
            for other in rest:
                other.drop()


def drop_loop_ends(code: list[Ins]) -> None:
    """3.13 leaves a ``for`` through END_FOR and POP_TOP; in our dialect FOR_ITER's exit has popped the iterator."""
    if VERSION < (3, 13):
        return
    for ins in code:
        if ins.op == "FOR_ITER" and ins.arg != "async":
            end = code[ins.to]
            follower = code[end.nxt] if end.op == "NOP" else end
            if follower.op == "POP_TOP":
                follower.drop()


def _cover_branches(code: list[Ins]) -> None:
    """3.12+ may leave a jump in a region uncovered (it was turned round late): it belongs to what comes before it."""
    if VERSION < (3, 12):
        return
    for before, ins in itertools.pairwise(code):
        if before.eh < 0 or ins.eh == before.eh or before.nxt != ins.index:
            continue
        if ins.op == "BRANCH" or (ins.op == "NOP" and code[skip(code, ins.index)].op == "BRANCH"):
            ins.region = before.region


def _keep_tested_values(code: list[Ins]) -> None:
    """COPY, test, POP_TOP (3.12+) is what JUMP_IF_x_OR_POP was before: BRANCH_KEEP."""
    for ins in code:
        if ins.op != "COPY" or ins.arg != 1 or ins.nxt < 0:
            continue
        branch = code[skip(code, ins.nxt)]
        if branch.op != "BRANCH" or branch.arg != "bool":
            continue
        drop = code[skip(code, branch.nxt)]
        if drop.op == "POP_TOP":
            ins.drop()
            branch.op = "BRANCH_KEEP"
            branch.nxt = drop.nxt


def _handler_kind(code: list[Ins], handler: int) -> str:
    if code[handler].arg == "entered" and code[handler].op == "PUSH_EXC_INFO":
        return "except"
    ops = [i.op for i in following(code, handler, 3)]
    if ops[:1] == ["PUSH_EXC_INFO"]:
        ops = ops[1:]
    if ops[:1] == ["WITH_EXCEPT_START"]:
        return "with"
    return _except_or_finally(code, handler)


def _except_or_finally(code: list[Ins], handler: int) -> str:
    """Look along the straight line for the test of an ``except`` clause before anything of a ``finally`` body."""
    at = handler
    pushed = 0
    for _ in range(400):
        at = skip(code, at)
        ins = code[at]
        op = ins.op
        if op in ("CHECK_EXC_MATCH",) or (op == "BRANCH" and ins.arg == "exc"):
            return "except"
        if op == "CHECK_EG_MATCH":
            return "star"
        if op == "POP_TOP" and pushed == 0:
            return "except"
        if op == "POP_TOP" or op.startswith("STORE_") or op in ("RERAISE", "RETURN_VALUE", "RAISE") or ins.nxt < 0:
            return "finally"
        if op != "PUSH_EXC_INFO":
            pushed += 1
        at = ins.nxt
    return "finally"


def _fold_with_ends(code: list[Ins], kinds: dict[int, str]) -> None:
    """``exit(None, None, None)`` at the end of a with block becomes one WITH_END, protected by that block's handler."""
    predecessors: dict[int, list[int]] = {}
    for ins in code:
        for target in (ins.nxt, ins.to):
            if target >= 0:
                predecessors.setdefault(target, []).append(ins.index)
    for ins in code:
        if ins.op != "LOAD_CONST" or ins.arg is not None:
            continue
        steps = _with_end_steps(code, ins)
        if steps is None:
            continue
        ins.op = "WITH_END"
        for other in steps[1:]:
            other.drop()
        ins.nxt = steps[-1].nxt
        _extend_with(code, ins, predecessors, kinds)


def _with_end_steps(code: list[Ins], first: Ins) -> list[Ins] | None:
    steps = following(code, first.index, 9)
    ops = [s.op for s in steps]
    if ops[:4] == ["LOAD_CONST", "LOAD_CONST", "LOAD_CONST", "CALL"] and steps[3].arg == (2, None):
        if any(s.arg is not None for s in steps[:3]):
            return None
        length = 4
    elif ops[:4] == ["LOAD_CONST", "COPY", "COPY", "CALL_FUNCTION"] and steps[3].arg == (3, None):
        length = 4
    else:
        return None
    if ops[length : length + 3] == ["GET_AWAITABLE", "LOAD_CONST", "YIELD_FROM"]:
        length += 3
    if ops[length : length + 1] != ["POP_TOP"]:
        return None
    return steps[: length + 1]


def _extend_with(code: list[Ins], end: Ins, predecessors: dict[int, list[int]], kinds: dict[int, str]) -> None:
    """The handler that the end of a with block closes: the innermost ``with`` still open before it."""
    at = end.index
    for _ in range(10000):
        before = predecessors.get(at)
        if not before:
            return
        at = before[0]
        ins = code[at]
        if ins.op in ("NOP", "SWAP", "ROT", "JUMP", "LOAD_CONST", "POP_BLOCK", "POP_TOP") and ins.eh == end.eh:
            continue
        if ins.op == "WITH_END" and ins.eh >= 0:
            ins = code[ins.eh]
        while ins.eh >= 0 and kinds.get(ins.eh) != "with":
            ins = code[ins.eh]
        if ins.eh >= 0:
            end.region = ins.region
        return


#: what takes the exception and the exit function off the stack
_AFTER_EXIT = ["POP_TOP", "POP_EXCEPT", "POP_TOP", "POP_TOP"]
if VERSION < (3, 11):
    _AFTER_EXIT = ["POP_TOP", "POP_TOP", "POP_TOP", "POP_EXCEPT", "POP_TOP"]


def with_after(code: list[Ins], handler: int) -> int | None:
    """Where a with statement continues when its context manager swallowed the exception; None if not recognised."""
    at = handler
    for _ in range(12):
        at = skip(code, at)
        ins = code[at]
        if ins.op == "BRANCH":
            if not ins.jump_if:
                return None
            at = ins.to
            break
        at = ins.nxt
        if at < 0:
            return None
    for expected in _AFTER_EXIT:
        at = skip(code, at)
        if code[at].op != expected:
            return None
        at = code[at].nxt
    return at
