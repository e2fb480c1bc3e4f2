"""``match`` statements: the instructions that test one pattern become one branch that carries the pattern.

Before: COPY, MATCH_SEQUENCE, BRANCH, GET_LEN, LOAD_CONST, COMPARE, BRANCH, UNPACK_SEQUENCE, STORE a, STORE b.  After:
one BRANCH whose argument is ``Case([a, b])`` (read by ``pattern.py``).  Whatever does not fit leaves the instructions
as they are.  Once there are statements, ``statements/match.py`` makes of the tests what they were.
"""

from __future__ import annotations

from ...bytecode.flow import skip
from ...bytecode.ins import Ins
from .pattern import Hole, NoPattern, Reader, Token
from .values import Case

_TELLING = frozenset({"MATCH_SEQUENCE", "MATCH_MAPPING", "MATCH_CLASS"})


def extract_matches(code: list[Ins], reachable: list[int]) -> None:
    """Replace the tests of every ``case`` found in ``code`` by one branch each, in place."""
    done: set[int] = set()
    alive = set(reachable)
    for at in reachable:
        ins = code[at]
        if at in done or ins.op != "COPY" or ins.arg != 1:
            continue
        following = code[skip(code, ins.nxt)]
        if following.op.startswith("STORE_") and _guarded_capture(code, at, following):
            ins.op = "BIND_SUBJECT"
            continue
        is_none = following.op == "BRANCH" and following.arg == "none" and not following.jump_if
        if following.op.startswith(("STORE_", "BRANCH", "UNPACK")) and not is_none:
            continue
        _extract_statement(code, at, done)
    for at in reachable:  # a statement with a single case copies nothing
        if at in done or at not in alive or code[at].op not in _TELLING:
            continue
        start = at
        if code[at].op == "MATCH_CLASS":
            start = _class_start(code, at)
        if start >= 0:
            _extract_case(code, start, True, done)


def _guarded_capture(code: list[Ins], at: int, store: Ins) -> bool:
    """Whether COPY, STORE begins ``case name if …`` as the first case: the guard fails to where another case begins."""
    place = skip(code, store.nxt)
    for _ in range(60):
        ins = code[place]
        if ins.op == "BRANCH":
            if ins.arg != "bool" or ins.jump_if or code[skip(code, ins.nxt)].op != "POP_TOP":
                return False
            following = code[skip(code, ins.to)]
            if following.op == "COPY" and following.arg == 1:
                return not code[skip(code, following.nxt)].op.startswith(("STORE_", "BRANCH"))
            return _is_last_case(code, following.index)
        if ins.op.startswith(("STORE_", "POP_TOP", "BRANCH", "FOR_", "RETURN", "RAISE")) or ins.nxt < 0:
            return False
        place = skip(code, ins.nxt)
    return False


def _is_last_case(code: list[Ins], at: int) -> bool:
    reader = Reader(code, 0)
    try:
        reader.run(at, [Hole()], False)
    except (NoPattern, KeyError):
        return False
    return True


def _class_start(code: list[Ins], at: int) -> int:
    at -= 1
    while at > 0 and code[at].op in ("LOAD_CONST", "LOAD_ATTR", "NOP"):
        at -= 1
    return at if code[at].op in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF") else -1


def _extract_statement(code: list[Ins], at: int, done: set[int]) -> None:
    """All cases of one statement, from the first on."""
    for n in range(1000):
        ins = code[at]
        is_copy = ins.op == "COPY" and ins.arg == 1
        if is_copy and _extract_case(code, at, True, done, True) is not None:
            return
        after = _extract_case(code, at, False, done) if is_copy else None
        if after is None:
            store = code[skip(code, ins.nxt)]
            if n and is_copy and store.op.startswith("STORE_"):
                return  # a capture with a guard; what follows it finds its own beginning
            if n or is_copy:
                _extract_case(code, at, True, done)
            return
        at = after


def _extract_case(code: list[Ins], at: int, last: bool, done: set[int], choices: bool = False) -> int | None:
    """Turn the case that starts at ``at`` into one branch; returns where the next starts, None if it is no case.

    ``choices``: only if the whole pattern is ``a | b``, whose first COPY looks like that of a case with others behind.
    """
    ins = code[at]
    subject = Hole()
    reader = Reader(code, 0 if last else 1)
    try:
        start, stack = (at, [subject]) if last else (ins.nxt, [Token("subject"), subject])
        success, _ = reader.run(start, stack, False)
        if not reader.fails or (choices and not subject.choices):
            return None
        following = code[skip(code, success)].op
        if not last and following.startswith("STORE_"):
            return None  # the copy was for ``as``: this is the only case
        failure = reader.next_case(0 if last else 1)
        pattern = subject.pattern()
    except (NoPattern, KeyError):
        return None
    done.update(range(at, success))
    ins.op, ins.arg, ins.jump_if = "BRANCH", Case(pattern, reader.stores, last), False
    ins.nxt, ins.to = success, failure
    return failure
