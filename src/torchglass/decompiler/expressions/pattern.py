"""One pattern of a ``match`` statement, read off the instructions that test it.

``Reader.run`` runs the instructions on a stack of *holes*: each test says something about a hole, each unpacking makes
new ones, each store names one.  ``Hole.pattern`` is then the pattern.  Example: MATCH_SEQUENCE, BRANCH, GET_LEN,
LOAD_CONST 2, COMPARE ==, BRANCH, UNPACK_SEQUENCE 2, STORE a, STORE b leave a hole whose pattern is ``[a, b]``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...bytecode.canonical import VERSION
from ...bytecode.flow import skip
from ...bytecode.ins import Ins
from ...bytecode.operators import SHUFFLES, unpacked
from ..instructions.minimize import alike
from .constants import constant
from .trees import LOAD, load


class NoPattern(Exception):
    """These instructions test no pattern."""


@dataclass(eq=False)
class Hole:
    """A value a pattern is matched against, and what is known of the pattern so far."""

    value: Any = None  # a finished pattern: value, singleton
    kind: str = ""
    length: tuple[str, int] | None = None
    parts: dict[int, Hole] = field(default_factory=dict)
    star: int | None = None
    keys: Any = None
    rest: str | None = None
    cls: Any = None
    names: list[str] = field(default_factory=list)
    choices: list[Hole] = field(default_factory=list)
    twins: list[Hole] = field(default_factory=list)

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


@dataclass(eq=False)
class Token:
    """Anything else on the stack: the outcome of a test, a length, unpackable attributes, the rest of a mapping."""

    kind: str
    hole: Hole | None = None
    value: Any = None


class Reader:
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
                raise NoPattern
            ins = self.code[at]
            if ins.op == "NOP":
                at = ins.nxt
                continue
            if not until_jump and len(stack) <= self.base:
                return at, stack
            if until_jump and (ins.op == "JUMP" or (ins.op == "POP_TOP" and len(stack) == self.base)):
                return at, stack  # a POP_TOP here drops the subject: the jump to the common end was replaced by a copy
            if ins.op == "JUMP":
                raise NoPattern
            if ins.op == "COPY" and ins.arg == 1 and isinstance(stack[-1], Hole):
                known = [(v, dict(v.__dict__, names=list(v.names))) for v in stack if isinstance(v, Hole)]
                chosen = self._alternatives(at, stack)
                if chosen is not None:
                    at, stack = chosen
                    continue
                for hole, state in known:
                    hole.__dict__.update(state)
            function = _OPS.get(ins.op)
            if function is None:
                raise NoPattern
            try:
                function(self, ins, stack)
            except (IndexError, AttributeError, TypeError) as error:
                raise NoPattern from error
            if len(stack) < self.base:
                raise NoPattern
            at = ins.to if ins.op == "BRANCH" and ins.arg == "bool" and ins.jump_if else ins.nxt

    def _alternatives(self, at: int, stack: list[Any]) -> tuple[int, list[Any]] | None:
        size = len(stack)
        ends: set[int] = set()
        choices: list[Hole] = []
        outcomes: list[list[Any]] = []
        stores: list[Ins] = []
        place = at
        while self.code[place].op == "COPY" and self.code[place].arg == 1:
            reader = Reader(self.code, size)
            reader.budget = self.budget
            hole = Hole()
            try:
                jump, after = reader.run(self.code[place].nxt, [*stack, hole], True)
                if len(after) < size or not all(isinstance(v, Hole) for v in after[size:]):
                    return None
                if any(a is not b for a, b in zip(after, stack)):
                    return None
                place = reader.next_case(size)
            except NoPattern:
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
            hole = Hole()
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
                    raise NoPattern
                at = self.code[at].nxt
                depth -= 1
            places.add(skip(self.code, at))
        if len(places) != 1:
            raise NoPattern
        return places.pop()


Step = Callable[[Reader, Ins, "list[Any]"], Any]


def _op_shuffle(r: Reader, ins: Ins, stack: list[Any]) -> None:
    SHUFFLES[ins.op](stack, ins.arg)


def _op_attr(r: Reader, ins: Ins, stack: list[Any]) -> None:
    stack[-1] = Token("expr", None, ast.Attribute(_expression(stack[-1]), ins.arg, LOAD))


def _expression(token: Any) -> Any:
    if not isinstance(token, Token) or token.kind not in ("const", "expr"):
        raise NoPattern
    return constant(token.value) if token.kind == "const" else token.value


def _op_compare(r: Reader, ins: Ins, stack: list[Any]) -> None:
    right, left = stack.pop(), stack.pop()
    if isinstance(left, Token) and left.kind == "length" and ins.arg in ("==", ">="):
        stack.append(Token("test", left.hole, ("length", ins.arg, right.value)))
    elif isinstance(left, Token) and left.kind == "attributes" and ins.arg == "is not":
        stack.append(Token("test", left.hole, ("found",)))
    elif isinstance(left, Hole) and ins.arg == "==":
        stack.append(Token("test", left, ("value", ast.MatchValue(_expression(right)))))
    elif isinstance(left, Hole) and ins.arg == "is":
        stack.append(Token("test", left, ("value", ast.MatchSingleton(right.value))))
    else:
        raise NoPattern


def _op_branch(r: Reader, ins: Ins, stack: list[Any]) -> None:
    token = stack.pop()
    if ins.arg == "none":
        if isinstance(token, Hole) and not ins.jump_if:
            token.value = ast.MatchSingleton(None)
        elif not (isinstance(token, Token) and token.kind == "attributes" and ins.jump_if):
            raise NoPattern
    else:
        # 3.13 may turn a test round: then the fall-through is the jump to the next case
        if ins.arg != "bool" or token.kind != "test" or (ins.jump_if and r.code[ins.nxt].op not in ("JUMP", "NOP")):
            raise NoPattern
        what = token.value
        if what[0] == "length":
            token.hole.length = (what[1], what[2])
        elif what[0] == "value":
            token.hole.value = what[1]
        elif what[0] == "kind":
            token.hole.kind = what[1]
    turned = ins.arg == "bool" and ins.jump_if
    r.fails.append((ins.nxt if turned else ins.to, len(stack)))


def _op_match_kind(r: Reader, ins: Ins, stack: list[Any]) -> None:
    if not isinstance(stack[-1], Hole):
        raise NoPattern
    kind = "sequence" if ins.op == "MATCH_SEQUENCE" else "mapping"
    stack.append(Token("test", stack[-1], ("kind", kind)))


def _op_keys(r: Reader, ins: Ins, stack: list[Any]) -> None:
    keys, hole = stack[-1], stack[-2]
    values = [constant(v) for v in keys.value] if keys.kind == "const" else [_expression(v) for v in keys.value]
    hole.keys = values
    stack.append(Token("attributes", hole, len(values)))
    _old_outcome(r, hole, stack)


def _old_outcome(r: Reader, hole: Hole, stack: list[Any]) -> None:
    if VERSION < (3, 11):
        stack.append(Token("test", hole, ("found",)))


def _op_class(r: Reader, ins: Ins, stack: list[Any]) -> None:
    names, cls, hole = stack.pop(), stack.pop(), stack.pop()
    if not isinstance(hole, Hole):
        raise NoPattern
    hole.kind = "class"
    hole.cls = (_expression(cls), ins.arg, names.value)
    stack.append(Token("attributes", hole, ins.arg + len(names.value)))
    _old_outcome(r, hole, stack)


def _op_unpack(r: Reader, ins: Ins, stack: list[Any]) -> None:
    top = stack.pop()
    count, star = unpacked(ins.op, ins.arg)
    if isinstance(top, Token) and top.kind in ("const", "tuple"):  # the keys, once more, for ``**rest``
        stack.extend(Token("key") for _ in range(count))
        return
    hole = top.hole if isinstance(top, Token) and top.kind == "attributes" else top
    if not isinstance(hole, Hole):
        raise NoPattern
    hole.parts = {n: Hole() for n in range(count)}
    hole.star = star
    if hole.kind == "sequence" and hole.length is None:
        hole.length = (">=", count - 1)
    stack.extend(hole.parts[n] for n in range(count - 1, -1, -1))


def _op_subscript(r: Reader, ins: Ins, stack: list[Any]) -> None:
    index, hole = stack.pop(), stack.pop()
    n = index.value if index.kind == "const" else -index.value
    if isinstance(hole, Token) and hole.kind == "attributes":
        hole = hole.hole
    if index.kind not in ("const", "from_end") or not isinstance(hole, Hole):
        raise NoPattern
    part = hole.parts[n] = Hole()
    stack.append(part)


def _op_binary(r: Reader, ins: Ins, stack: list[Any]) -> None:
    right, left = stack.pop(), stack.pop()
    if ins.arg != "-" or left.kind != "length":
        raise NoPattern
    stack.append(Token("from_end", left.hole, right.value))


def _op_build_map(r: Reader, ins: Ins, stack: list[Any]) -> None:
    if ins.arg:
        raise NoPattern
    stack.append(Token("rest"))


def _op_dict_update(r: Reader, ins: Ins, stack: list[Any]) -> None:
    hole = stack.pop()
    rest = stack[-ins.arg]
    if not isinstance(hole, Hole) or rest.kind != "rest":
        raise NoPattern
    rest.hole = hole


def _op_delete(r: Reader, ins: Ins, stack: list[Any]) -> None:
    key, rest = stack.pop(), stack.pop()
    if key.kind != "key" or rest.kind != "rest":
        raise NoPattern


def _op_store(r: Reader, ins: Ins, stack: list[Any]) -> None:
    value = stack.pop()
    if isinstance(value, Token) and value.kind == "rest" and value.hole is not None:
        value.hole.rest = ins.arg
    elif isinstance(value, Hole):
        _name(value, ins.arg)
    else:
        raise NoPattern
    r.stores.append(ins)


def _name(hole: Hole, name: str) -> None:
    hole.names.append(name)
    for twin in hole.twins:
        _name(twin, name)


def _pushes(make: Callable[[list[Any], Any], Token], pops: int | None = 0) -> Step:
    """A token of the stack and the argument, in place of the ``pops`` topmost values (None: as many as ``arg``)."""

    def step(r: Reader, ins: Ins, stack: list[Any]) -> None:
        token = make(stack, ins.arg)
        at = len(stack) - (ins.arg if pops is None else pops)
        stack[at:] = [token]

    return step


_NAME = _pushes(lambda stack, arg: Token("expr", None, load(arg)))
_OPS: dict[str, Step] = {
    **dict.fromkeys(SHUFFLES, _op_shuffle),
    **dict.fromkeys(("LOAD_FAST", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF"), _NAME),
    **dict.fromkeys(("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF"), _op_store),
    "POP_TOP": lambda r, ins, stack: stack.pop(),
    "LOAD_CONST": _pushes(lambda stack, arg: Token("const", None, arg)),
    "GET_LEN": _pushes(lambda stack, arg: Token("length", stack[-1])),
    "BUILD_TUPLE": _pushes(lambda stack, arg: Token("tuple", None, stack[len(stack) - arg :]), None),
    "COPY_DICT_WITHOUT_KEYS": _pushes(lambda stack, arg: Token("rest", stack[-2]), 1),
    "LOAD_ATTR": _op_attr, "COMPARE": _op_compare, "BRANCH": _op_branch, "MATCH_SEQUENCE": _op_match_kind,
    "MATCH_MAPPING": _op_match_kind, "MATCH_KEYS": _op_keys, "MATCH_CLASS": _op_class, "UNPACK_SEQUENCE": _op_unpack,
    "UNPACK_EX": _op_unpack, "BINARY_SUBSCR": _op_subscript, "BINARY": _op_binary, "BUILD_MAP": _op_build_map,
    "DICT_UPDATE": _op_dict_update, "DELETE_SUBSCR": _op_delete,
}  # fmt: skip
