"""``match`` statements: the instructions that test one pattern become one branch that carries the pattern.

Before: COPY, MATCH_SEQUENCE, BRANCH, GET_LEN, LOAD_CONST, COMPARE, BRANCH, UNPACK_SEQUENCE, STORE a, STORE b.  After:
one BRANCH whose argument is ``Case([a, b])``.  A pattern is read off by running its instructions on a stack of
*holes*: each test says something about a hole, each unpacking makes new ones, each store names one.  Whatever does not
fit leaves the instructions as they are.
"""

from __future__ import annotations

import ast
from typing import Any

from ..bytecode.canonical import Ins
from .constants import constant
from .flow import skip
from .minimize import alike
from .values import Marker


class _NoPattern(Exception):
    """These instructions test no pattern."""


class Case:
    """One ``case``: its pattern, the variables it stores, and whether the subject was used up by it."""

    def __init__(self, pattern: Any, stores: list[Ins], last: bool) -> None:
        self.pattern = pattern
        self.stores = stores
        self.last = last

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Case) and ast.dump(self.pattern) == ast.dump(other.pattern)

    def __hash__(self) -> int:
        return hash(ast.dump(self.pattern))


class CaseTest(ast.expr):
    """The condition of a ``case``: ``subject`` is a Marker that all cases of one statement share."""

    _fields = ()

    def __init__(self, subject: Any, pattern: Any) -> None:
        self.subject = subject
        self.pattern = pattern


class _Hole:
    """A value a pattern is matched against, and what is known of the pattern so far."""

    def __init__(self) -> None:
        self.value: Any = None  # a finished pattern: value, singleton
        self.kind = ""
        self.length: tuple[str, int] | None = None
        self.parts: dict[int, _Hole] = {}
        self.star: int | None = None
        self.keys: Any = None
        self.rest: str | None = None
        self.cls: Any = None
        self.names: list[str] = []
        self.choices: list[_Hole] = []
        self.twins: list[_Hole] = []

    def pattern(self) -> Any:
        node = self._bare()
        for name in self.names:
            node = ast.MatchAs(node, name)
        return node if node is not None else ast.MatchAs(None, None)

    def _bare(self) -> Any:
        if self.choices:
            return ast.MatchOr([c.pattern() for c in self.choices])
        if self.value is not None:
            return self.value
        if self.kind == "sequence":
            return ast.MatchSequence(self._elements())
        if self.kind == "mapping":
            keys = self.keys or []
            return ast.MatchMapping(list(keys), [self.parts[n].pattern() for n in range(len(keys))], self.rest)
        if self.kind == "class":
            cls, count, names = self.cls
            parts = [self._part(n) for n in range(count + len(names))]
            return ast.MatchClass(cls, parts[:count], list(names), parts[count:])
        return None

    def _elements(self) -> list[Any]:
        sign, size = self.length or (">=", 0)
        star = self.star
        if star is None and sign == ">=":
            # by subscripts: positions from the front are >= 0, those from the back < 0
            front = [n for n in self.parts if n >= 0]
            star = max(front) + 1 if front else 0
            back = size - star
            items = [self._part(n) for n in range(star)]
            return items + [ast.MatchStar(None)] + [self._part(n) for n in range(-back, 0)]
        items = []
        for n in range(size + (star is not None)):
            if n == star:
                hole = self.parts.get(n)
                items.append(ast.MatchStar(hole.names[0] if hole is not None and hole.names else None))
            else:
                items.append(self._part(n))
        return items

    def _part(self, n: int) -> Any:
        return self.parts[n].pattern() if n in self.parts else ast.MatchAs(None, None)


class _Token:
    """Anything else on the stack: the outcome of a test, a length, unpackable attributes, the rest of a mapping."""

    def __init__(self, kind: str, hole: _Hole | None = None, value: Any = None) -> None:
        self.kind = kind
        self.hole = hole
        self.value = value


class _Reader:
    """Runs the instructions of one pattern."""

    def __init__(self, code: list[Ins], base: int) -> None:
        self.code = code
        self.base = base
        self.fails: list[tuple[int, int]] = []
        self.stores: list[Ins] = []
        self.budget = 600

    def run(self, at: int, stack: list[Any], until_jump: bool) -> tuple[int, list[Any]]:
        """Run from ``at``; stops when the stack is back at ``base`` or, inside an alternative, at a JUMP."""
        stack = list(stack)
        while True:
            self.budget -= 1
            if self.budget < 0:
                raise _NoPattern
            ins = self.code[at]
            if ins.op == "NOP":
                at = ins.nxt
                continue
            if not until_jump and len(stack) <= self.base:
                return at, stack
            if until_jump and (ins.op == "JUMP" or (ins.op == "POP_TOP" and len(stack) == self.base)):
                return at, stack  # a POP_TOP here drops the subject: the jump to the common end was replaced by a copy
            if ins.op == "JUMP":
                raise _NoPattern
            if ins.op == "COPY" and ins.arg == 1 and isinstance(stack[-1], _Hole):
                known = [(v, dict(v.__dict__, names=list(v.names))) for v in stack if isinstance(v, _Hole)]
                chosen = self._alternatives(at, stack)
                if chosen is None:
                    for hole, state in known:
                        hole.__dict__.update(state)
                if chosen is not None:
                    at, stack = chosen
                    continue
            function = _OPS.get(ins.op)
            if function is None:
                raise _NoPattern
            try:
                function(self, ins, stack)
            except (IndexError, AttributeError, TypeError) as error:
                raise _NoPattern from error
            if len(stack) < self.base:
                raise _NoPattern
            at = ins.to if ins.op == "BRANCH" and ins.arg == "bool" and ins.jump_if else ins.nxt

    def _alternatives(self, at: int, stack: list[Any]) -> tuple[int, list[Any]] | None:
        size = len(stack)
        ends: set[int] = set()
        choices: list[_Hole] = []
        outcomes: list[list[Any]] = []
        stores: list[Ins] = []
        place = at
        while self.code[place].op == "COPY" and self.code[place].arg == 1:
            reader = _Reader(self.code, size)
            reader.budget = self.budget
            hole = _Hole()
            try:
                jump, after = reader.run(self.code[place].nxt, [*stack, hole], True)
                if len(after) < size or not all(isinstance(v, _Hole) for v in after[size:]):
                    return None
                if any(a is not b for a, b in zip(after, stack)):
                    return None
                place = reader.next_case(size)
            except _NoPattern:
                return None
            ends.add(skip(self.code, self.code[jump].to if self.code[jump].op == "JUMP" else jump))
            choices.append(hole)
            outcomes.append(after)
            stores += reader.stores
        if (
            len(choices) < 2
            or not self._one_place(ends)
            or len({len(o) for o in outcomes}) != 1
            or self.code[place].op != "POP_TOP"
        ):
            return None
        self.fails.append((place, size))
        self.stores += stores
        merged = list(stack)
        for column in zip(*[o[size:] for o in outcomes]):
            hole = _Hole()
            hole.twins = list(column)
            merged.append(hole)
        top = stack[-1]
        top.choices = choices
        return min(ends), merged

    def _one_place(self, ends: set[int]) -> bool:
        first = min(ends)
        return all(e == first or alike(self.code, first, e, False) is not None for e in ends)

    def next_case(self, size: int) -> int:
        """Where all failed tests lead once they have dropped what lies above ``size``."""
        places = set()
        for at, depth in self.fails:
            while depth > size:
                at = skip(self.code, at)
                if self.code[at].op != "POP_TOP":
                    raise _NoPattern
                at = self.code[at].nxt
                depth -= 1
            places.add(skip(self.code, at))
        if len(places) != 1:
            raise _NoPattern
        return places.pop()


def _op_copy(r: _Reader, ins: Ins, stack: list[Any]) -> None:
    stack.append(stack[-ins.arg])


def _op_pop(r: _Reader, ins: Ins, stack: list[Any]) -> None:
    stack.pop()


def _op_swap(r: _Reader, ins: Ins, stack: list[Any]) -> None:
    stack[-1], stack[-ins.arg] = stack[-ins.arg], stack[-1]


def _op_rot(r: _Reader, ins: Ins, stack: list[Any]) -> None:
    stack.insert(len(stack) - ins.arg, stack.pop())


def _op_const(r: _Reader, ins: Ins, stack: list[Any]) -> None:
    stack.append(_Token("const", None, ins.arg))


def _op_name(r: _Reader, ins: Ins, stack: list[Any]) -> None:
    stack.append(_Token("expr", None, ast.Name(ins.arg, ast.Load())))


def _op_attr(r: _Reader, ins: Ins, stack: list[Any]) -> None:
    stack[-1] = _Token("expr", None, ast.Attribute(_expression(stack[-1]), ins.arg, ast.Load()))


def _expression(token: Any) -> Any:
    if not isinstance(token, _Token) or token.kind not in ("const", "expr"):
        raise _NoPattern
    return constant(token.value) if token.kind == "const" else token.value


def _op_compare(r: _Reader, ins: Ins, stack: list[Any]) -> None:
    right, left = stack.pop(), stack.pop()
    if isinstance(left, _Token) and left.kind == "length" and ins.arg in ("==", ">="):
        stack.append(_Token("test", left.hole, ("length", ins.arg, right.value)))
    elif isinstance(left, _Token) and left.kind == "attributes" and ins.arg == "is not":
        stack.append(_Token("test", left.hole, ("found",)))
    elif isinstance(left, _Hole) and ins.arg == "==":
        stack.append(_Token("test", left, ("value", ast.MatchValue(_expression(right)))))
    elif isinstance(left, _Hole) and ins.arg == "is":
        stack.append(_Token("test", left, ("value", ast.MatchSingleton(right.value))))
    else:
        raise _NoPattern


def _op_branch(r: _Reader, ins: Ins, stack: list[Any]) -> None:
    token = stack.pop()
    if ins.arg == "none":
        if isinstance(token, _Hole) and not ins.jump_if:
            token.value = ast.MatchSingleton(None)
        elif not (isinstance(token, _Token) and token.kind == "attributes" and ins.jump_if):
            raise _NoPattern
    else:
        # 3.13 may turn a test round: then the fall-through is the jump to the next case
        if ins.arg != "bool" or token.kind != "test" or (ins.jump_if and r.code[ins.nxt].op not in ("JUMP", "NOP")):
            raise _NoPattern
        what = token.value
        if what[0] == "length":
            token.hole.length = (what[1], what[2])
        elif what[0] == "value":
            token.hole.value = what[1]
        elif what[0] == "kind":
            token.hole.kind = what[1]
    turned = ins.arg == "bool" and ins.jump_if
    r.fails.append((ins.nxt if turned else ins.to, len(stack)))


def _op_match_kind(r: _Reader, ins: Ins, stack: list[Any]) -> None:
    if not isinstance(stack[-1], _Hole):
        raise _NoPattern
    kind = "sequence" if ins.op == "MATCH_SEQUENCE" else "mapping"
    stack.append(_Token("test", stack[-1], ("kind", kind)))


def _op_len(r: _Reader, ins: Ins, stack: list[Any]) -> None:
    stack.append(_Token("length", stack[-1]))


def _op_keys(r: _Reader, ins: Ins, stack: list[Any]) -> None:
    keys, hole = stack[-1], stack[-2]
    values = [constant(v) for v in keys.value] if keys.kind == "const" else [_expression(v) for v in keys.value]
    hole.keys = values
    keys.size = len(values)
    stack.append(_Token("attributes", hole, len(values)))
    _old_outcome(r, hole, stack)


def _old_outcome(r: _Reader, hole: _Hole, stack: list[Any]) -> None:
    from ..bytecode.canonical import VERSION

    if VERSION < (3, 11):
        stack.append(_Token("test", hole, ("found",)))


def _op_class(r: _Reader, ins: Ins, stack: list[Any]) -> None:
    names, cls, hole = stack.pop(), stack.pop(), stack.pop()
    if not isinstance(hole, _Hole):
        raise _NoPattern
    hole.kind = "class"
    hole.cls = (_expression(cls), ins.arg, names.value)
    stack.append(_Token("attributes", hole, ins.arg + len(names.value)))
    _old_outcome(r, hole, stack)


def _op_unpack(r: _Reader, ins: Ins, stack: list[Any]) -> None:
    top = stack.pop()
    count, star = ins.arg, None
    if ins.op == "UNPACK_EX":
        before, after = ins.arg & 255, ins.arg >> 8
        count, star = before + 1 + after, before
    if isinstance(top, _Token) and top.kind in ("const", "tuple"):  # the keys, once more, for ``**rest``
        stack.extend(_Token("key") for _ in range(count))
        return
    hole = top.hole if isinstance(top, _Token) and top.kind == "attributes" else top
    if not isinstance(hole, _Hole):
        raise _NoPattern
    hole.parts = {n: _Hole() for n in range(count)}
    hole.star = star
    if hole.kind == "sequence" and hole.length is None:
        hole.length = (">=", count - 1)
    stack.extend(hole.parts[n] for n in range(count - 1, -1, -1))


def _op_subscript(r: _Reader, ins: Ins, stack: list[Any]) -> None:
    index, hole = stack.pop(), stack.pop()
    n = index.value if index.kind == "const" else -index.value
    if isinstance(hole, _Token) and hole.kind == "attributes":
        hole = hole.hole
    if index.kind not in ("const", "from_end") or not isinstance(hole, _Hole):
        raise _NoPattern
    part = hole.parts[n] = _Hole()
    stack.append(part)


def _op_binary(r: _Reader, ins: Ins, stack: list[Any]) -> None:
    right, left = stack.pop(), stack.pop()
    if ins.arg != "-" or left.kind != "length":
        raise _NoPattern
    stack.append(_Token("from_end", left.hole, right.value))


def _op_build_map(r: _Reader, ins: Ins, stack: list[Any]) -> None:
    if ins.arg:
        raise _NoPattern
    stack.append(_Token("rest"))


def _op_build_tuple(r: _Reader, ins: Ins, stack: list[Any]) -> None:
    values = stack[len(stack) - ins.arg :]
    del stack[len(stack) - ins.arg :]
    stack.append(_Token("tuple", None, values))


def _op_dict_update(r: _Reader, ins: Ins, stack: list[Any]) -> None:
    hole = stack.pop()
    rest = stack[-ins.arg]
    if not isinstance(hole, _Hole) or rest.kind != "rest":
        raise _NoPattern
    rest.hole = hole


def _op_delete(r: _Reader, ins: Ins, stack: list[Any]) -> None:
    key, rest = stack.pop(), stack.pop()
    if key.kind != "key" or rest.kind != "rest":
        raise _NoPattern


def _op_without_keys(r: _Reader, ins: Ins, stack: list[Any]) -> None:
    stack.pop()
    stack.append(_Token("rest", stack[-1]))


def _op_store(r: _Reader, ins: Ins, stack: list[Any]) -> None:
    value = stack.pop()
    if isinstance(value, _Token) and value.kind == "rest" and value.hole is not None:
        value.hole.rest = ins.arg
    elif isinstance(value, _Hole):
        _name(value, ins.arg)
    else:
        raise _NoPattern
    r.stores.append(ins)


def _name(hole: _Hole, name: str) -> None:
    hole.names.append(name)
    for twin in hole.twins:
        _name(twin, name)


_OPS: dict[str, Any] = {
    "COPY": _op_copy, "POP_TOP": _op_pop, "SWAP": _op_swap, "ROT": _op_rot, "LOAD_CONST": _op_const,
    "LOAD_FAST": _op_name, "LOAD_NAME": _op_name, "LOAD_GLOBAL": _op_name, "LOAD_DEREF": _op_name,
    "LOAD_ATTR": _op_attr,
    "COMPARE": _op_compare, "BRANCH": _op_branch, "MATCH_SEQUENCE": _op_match_kind, "MATCH_MAPPING": _op_match_kind,
    "GET_LEN": _op_len, "MATCH_KEYS": _op_keys, "MATCH_CLASS": _op_class, "UNPACK_SEQUENCE": _op_unpack,
    "UNPACK_EX": _op_unpack, "BINARY_SUBSCR": _op_subscript, "BINARY": _op_binary, "BUILD_MAP": _op_build_map,
    "BUILD_TUPLE": _op_build_tuple, "DICT_UPDATE": _op_dict_update, "DELETE_SUBSCR": _op_delete,
    "COPY_DICT_WITHOUT_KEYS": _op_without_keys, "STORE_FAST": _op_store, "STORE_NAME": _op_store,
    "STORE_GLOBAL": _op_store, "STORE_DEREF": _op_store,
}  # fmt: skip
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
    reader = _Reader(code, 0)
    try:
        reader.run(at, [_Hole()], False)
    except (_NoPattern, KeyError):
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
    subject = _Hole()
    reader = _Reader(code, 0 if last else 1)
    try:
        start, stack = (at, [subject]) if last else (ins.nxt, [_Token("subject"), subject])
        success, _ = reader.run(start, stack, False)
        if not reader.fails or (choices and not subject.choices):
            return None
        following = code[skip(code, success)].op
        if not last and following.startswith("STORE_"):
            return None  # the copy was for ``as``: this is the only case
        failure = reader.next_case(0 if last else 1)
        pattern = subject.pattern()
    except (_NoPattern, KeyError):
        return None
    done.update(range(at, success))
    ins.op, ins.arg, ins.jump_if = "BRANCH", Case(pattern, reader.stores, last), False
    ins.nxt, ins.to = success, failure
    return failure


def match_statement(stmts: list[ast.stmt]) -> tuple[Any, list[ast.stmt]]:
    """The ``match`` that the tests of one subject at the start of ``stmts`` are, and the statements after it."""
    from .structure import terminates

    first = stmts[0]
    subject = first.value if isinstance(first, ast.Assign) else case_test(first.test).subject  # type: ignore[attr-defined]
    cases: list[ast.match_case] = []
    after: list[ast.stmt] = []
    rest = stmts[:1] if isinstance(first, ast.If) else stmts
    tail = stmts[1:] if isinstance(first, ast.If) else []
    while True:
        rest = _captured(rest, subject, cases)
        current = rest[0] if rest else None
        if not isinstance(current, ast.If) or case_test(current.test) is None:
            break
        leaving = all(terminates(c.body) for c in cases)
        if case_test(current.test).subject is not subject or (len(rest) > 1 and not leaving):
            break
        after = rest[1:] + after
        values = current.test.values[1:] if isinstance(current.test, ast.BoolOp) else []
        guard = values[0] if len(values) == 1 else ast.BoolOp(ast.And(), values) if values else None
        cases.append(ast.match_case(case_test(current.test).pattern, guard, current.body or [ast.Pass()]))
        rest = current.orelse
    match = ast.Match(subject.expr, cases)  # type: ignore[union-attr]
    if rest and all(terminates(c.body) for c in cases):
        after = rest + after
    elif rest:
        cases.append(ast.match_case(ast.MatchAs(None, None), None, rest))
    return match, after + tail


def starts_match(stmt: ast.stmt) -> bool:
    """Whether ``stmt`` is the first test of a match statement."""
    if isinstance(stmt, ast.If):
        return case_test(stmt.test) is not None
    return isinstance(stmt, ast.Assign) and isinstance(stmt.value, Marker) and stmt.value.kind == "subject"


def _captured(rest: list[ast.stmt], subject: Any, cases: list[ast.match_case]) -> list[ast.stmt]:
    """``case name:`` tests nothing: it shows as an assignment of the subject (and an ``if`` for its guard)."""
    while rest:
        first = rest[0]
        if not (isinstance(first, ast.Assign) and first.value is subject and isinstance(first.targets[0], ast.Name)):
            break
        pattern = ast.MatchAs(None, first.targets[0].id)
        guarded = rest[1] if len(rest) > 1 else None
        if isinstance(guarded, ast.If) and case_test(guarded.test) is None and (guarded.orelse or len(rest) > 2):
            from .structure import terminates

            if (guarded.orelse and len(rest) > 2) or not (guarded.orelse or terminates(guarded.body)):
                cases.append(ast.match_case(pattern, None, rest[1:]))
                return []
            cases.append(ast.match_case(pattern, guarded.test, guarded.body))
            rest = guarded.orelse or rest[2:]
            continue
        cases.append(ast.match_case(pattern, None, rest[1:] or [ast.Pass()]))
        return []
    return rest


def case_test(test: Any) -> Any:
    """The CaseTest that ``test`` is or begins with, or None."""
    if isinstance(test, CaseTest):
        return test
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and isinstance(test.values[0], CaseTest):
        return test.values[0]
    return None
