"""One code object run on symbols instead of values, from one observable operation to the next.

``Run.advance`` executes what no program can observe (loads and stores of locals, shuffling the stack, building tuples
and fresh lists, constant tests) and stops at the next operation that can be observed: an ``Event`` with its operands.
Two codes with the same events on the same operands are the same program, however they keep values in between.

Terms: ``("v", n)`` some value, ``("p", n)`` what parameter ``n`` was called with, ``("c", key, object)`` a constant,
``("t", terms)`` a tuple, ``("l", n)`` a list that nothing else has seen yet (its elements are in ``State.lists``),
``("s", terms)`` a slice, ``("is none", terms)`` and its negation what a comparison gave, ``("h", terms)`` what
PUSH_EXC_INFO saved, with the exception handled, ``("cell", name)``, ``("piece", term)`` a restored piece of an
f-string, ``NULL`` and ``UNBOUND``.  Lists become plain values when an event takes them.  For Python 3.11 and later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...bytecode.canonical import VERSION
from ...bytecode.flow import branch_ways, constant_key
from ...bytecode.ins import Ins
from ...bytecode.operators import COMPARE, SHUFFLES, UNARY, unpacked
from .difference import Differs

Term = tuple[Any, ...]
NULL: Term = ("null",)
UNBOUND: Term = ("unbound",)
#: kinds of terms that hold terms
NESTED = ("t", "s", "h", "is none", "is not none")


def constant(value: Any) -> Term:
    return ("c", constant_key(value), value)


NONE: Term = constant(None)


def with_parts(term: Term, change: Callable[[Term], Term]) -> Term:
    """``term`` with each term that it holds changed."""
    return (term[0], tuple(map(change, term[1]))) if term[0] in NESTED else term


@dataclass(slots=True)
class State:
    """What a frame holds: its stack, its locals, and the elements of lists that were built but not yet shown."""

    stack: list[Term]
    locals: dict[str, Term]
    lists: dict[int, list[Term]]
    #: the value that the event just passed has tested, and the outcome: testing it once more tells nothing new
    #: (CPython's compiler leaves such second tests out, or not, as its jumps happen to lie)
    tested: tuple[Term, bool] | None = field(default=None, compare=False)

    def copy(self) -> State:
        return State(list(self.stack), dict(self.locals), {n: list(v) for n, v in self.lists.items()})

    def take(self, count: int) -> list[Term]:
        """Pop ``count`` values, the last of them the top."""
        at = len(self.stack) - count
        if at < 0:
            raise Differs("the stack runs empty")
        values = self.stack[at:]
        del self.stack[at:]
        return values


@dataclass(slots=True, eq=False)
class Event:
    """An observable operation: ``op`` with ``arg`` on ``operands``; ``results`` is how many values it pushes.

    Of a branch, ``flipped`` says that it is on the opposite of what its instruction tests, ``kept`` what it tests.
    """

    ins: Ins
    op: str
    arg: Any
    operands: list[Term]
    results: int
    flipped: bool = False
    kept: Term = NONE


class Run:
    """The instructions of one code object.  ``restored``: what a prologue puts back: under a loop
    an iterator, of which ``iter`` returns itself; in an f-string a piece that is a string already.  ``raised``: what it
    restores as an exception, which raised again goes to its handler as it did before.
    """

    def __init__(
        self, code: list[Ins], restored: frozenset[Term] = frozenset(), raised: frozenset[Term] = frozenset()
    ) -> None:
        self.code = code
        self.restored = restored
        self.raised = raised
        self.list_count = 0

    def advance(self, at: int, state: State) -> int:
        """Execute from ``at`` what cannot be observed; the index of the next event."""
        for _ in range(20000):
            if not 0 <= at < len(self.code):
                raise Differs("control leaves the code")
            ins = self.code[at]
            silent = _SILENT.get(ins.op)
            following = silent(self, ins, state) if silent is not None else None
            if following is None:
                return at
            at = following
        raise Differs("a loop in which nothing happens")

    def repeats(self, at: int, state: State) -> bool:
        """Whether the event at ``at`` does once more what had been done to a restored value before the entry.

        It takes the iterator of an iterator, or formats a piece of an f-string: nothing happens.
        """
        ins = self.code[at]
        again = ins.op == "GET_ITER" or (ins.op == "FORMAT_VALUE" and ins.arg == (-1, False))
        return again and bool(state.stack) and state.stack[-1] in self.restored

    def repeat(self, at: int, state: State) -> int:
        """Pass over what ``repeats`` found; the index to go on at."""
        if self.code[at].op == "FORMAT_VALUE":
            state.stack.append(("piece", state.stack.pop()))
        return self.code[at].nxt

    def event(self, at: int, state: State) -> Event:
        """The event at ``at``, its operands taken off the stack."""
        ins = self.code[at]
        make = _EVENTS.get(ins.op)
        if make is None:
            raise Differs(f"no model of {ins.op}")
        return make(ins, state)

    def new_list(self, state: State, elements: list[Term]) -> Term:
        self.list_count += 1
        state.lists[self.list_count] = elements
        return ("l", self.list_count)


# -- what cannot be observed: each returns where to go on, or None if it can be observed after all ------------------
Silent = Callable[[Run, Ins, State], "int | None"]


def _does(change: Callable[[State, Any], Any]) -> Silent:
    """Nothing but a change of the frame, given the argument."""

    def silent(run: Run, ins: Ins, state: State) -> int:
        change(state, ins.arg)
        return ins.nxt

    return silent


def _shuffle(run: Run, ins: Ins, state: State) -> int:
    SHUFFLES[ins.op](state.stack, ins.arg)
    return ins.nxt


def _jump(run: Run, ins: Ins, state: State) -> int:
    return ins.to


def _load_fast(run: Run, ins: Ins, state: State) -> int | None:
    term = state.locals.get(ins.arg, UNBOUND)
    if term is UNBOUND:
        return None
    state.stack.append(term)
    return ins.nxt


def _delete_fast(run: Run, ins: Ins, state: State) -> int | None:
    return ins.nxt if state.locals.pop(ins.arg, None) is not None else None


def _build_list(run: Run, ins: Ins, state: State) -> int:
    state.stack.append(run.new_list(state, state.take(ins.arg)))
    return ins.nxt


def _elements(state: State, term: Term) -> list[Term] | None:
    """The elements of a tuple or of a list that nothing else has seen."""
    if term[0] == "t":
        return list(term[1])
    if term[0] == "c" and type(term[2]) is tuple:
        return [constant(v) for v in term[2]]
    return state.lists.get(term[1]) if term[0] == "l" else None


def _index(term: Term) -> Any:
    """A constant index or slice; None if it is none."""
    if term[0] == "c" and type(term[2]) is int:
        return term[2]
    if term[0] == "s" and all(p[0] == "c" and type(p[2]) in (int, type(None)) for p in term[1]):
        return slice(*[p[2] for p in term[1]])
    return None


def _subscript(run: Run, ins: Ins, state: State) -> int | None:
    elements, index = _elements(state, state.stack[-2]), _index(state.stack[-1])
    if elements is None or index is None:
        return None
    kind = state.stack[-2][0]
    try:
        found = elements[index]
    except IndexError:
        return None
    del state.stack[-2:]
    if isinstance(index, slice):
        found = run.new_list(state, list(found)) if kind == "l" else ("t", tuple(found))
    state.stack.append(found)
    return ins.nxt


def _binary_slice(run: Run, ins: Ins, state: State) -> int | None:
    bounds = ("s", tuple(state.stack[-2:]))
    if _elements(state, state.stack[-3]) is None or _index(bounds) is None:
        return None
    del state.stack[-2:]
    state.stack.append(bounds)
    return _subscript(run, ins, state)


def _held(state: State, term: Term) -> list[Term] | None:
    """The elements of a list that nothing else has seen, to be changed."""
    return state.lists.get(term[1]) if term[0] == "l" else None


def _store_subscript(run: Run, ins: Ins, state: State) -> int | None:
    value, owner, where = state.stack[-3:]
    index, elements = _index(where), _held(state, owner)
    if elements is None or index is None:
        return None
    if isinstance(index, slice):
        new = _elements(state, value)
        if new is None or index.step is not None:
            return None
        elements[index] = list(new)
    elif -len(elements) <= index < len(elements):
        elements[index] = value
    else:
        return None
    del state.stack[-3:]
    return ins.nxt


def _store_slice(run: Run, ins: Ins, state: State) -> int | None:
    """STORE_SUBSCR with the two ends of a slice apart (Python 3.12); the stack is as it was if it can be observed."""
    bounds = state.stack[-2:]
    state.stack[-2:] = [("s", tuple(bounds))]
    following = _store_subscript(run, ins, state)
    if following is None:
        state.stack[-1:] = bounds
    return following


def _delete_subscript(run: Run, ins: Ins, state: State) -> int | None:
    owner, where = state.stack[-2:]
    index, elements = _index(where), _held(state, owner)
    if elements is None or index is None:
        return None
    try:
        del elements[index]
    except IndexError:
        return None
    del state.stack[-2:]
    return ins.nxt


def _list_extend(run: Run, ins: Ins, state: State) -> int | None:
    elements, into = _elements(state, state.stack[-1]), _held(state, state.stack[-1 - ins.arg])
    if into is None or elements is None:
        return None
    state.stack.pop()
    into.extend(list(elements))
    return ins.nxt


def _list_append(run: Run, ins: Ins, state: State) -> int | None:
    """To a list right below the value: how CPython collects the arguments of a call that has more than thirty."""
    into = _held(state, state.stack[-1 - ins.arg])
    if ins.arg != 1 or into is None:
        return None
    into.append(state.stack.pop())
    return ins.nxt


def _list_to_tuple(run: Run, ins: Ins, state: State) -> int | None:
    elements = _elements(state, state.stack[-1])
    if elements is None:
        return None
    state.stack[-1] = ("t", tuple(elements))
    return ins.nxt


def _unpack(run: Run, ins: Ins, state: State) -> int | None:
    elements = _elements(state, state.stack[-1])
    if elements is None or len(elements) != ins.arg:
        return None
    state.stack.pop()
    state.stack.extend(reversed(elements))
    return ins.nxt


def _raise(run: Run, ins: Ins, state: State) -> int | None:
    error = state.stack[-1] if state.stack else NULL
    if ins.arg != 1 or ins.eh < 0 or error not in run.raised or ("h", (error,)) in state.stack:
        return None
    state.stack[ins.depth :] = [NONE, error] if ins.lasti else [error]
    return ins.eh


def _compare(run: Run, ins: Ins, state: State) -> int | None:
    """Two integer constants: the tests of a state machine.  Whether something is None nobody can observe."""
    a, b = state.stack[-2:]
    if ins.arg in ("is", "is not") and b == NONE and a[0] != "c":
        state.stack[-2:] = [(f"{ins.arg} none", (a,))]
        return ins.nxt
    if ins.arg not in ("==", "!=") or any(t[0] != "c" or type(t[2]) is not int for t in (a, b)):
        return None
    state.stack[-2:] = [constant(COMPARE[ins.arg].function(a[2], b[2]))]
    return ins.nxt


def _truth(ins: Ins, term: Term) -> bool | None:
    """What a branch on ``term`` does where that is known."""
    if ins.arg == "none":
        return term[2] is None if term[0] == "c" else (False if term[0] in ("t", "l", "s") else None)
    if ins.arg == "bool" and term[0] == "c" and type(term[2]) in (bool, int, str, type(None)):
        return bool(term[2])
    return None


def _branch(run: Run, ins: Ins, state: State) -> int | None:
    term = state.stack[-1]
    again = ins.arg == "bool" and state.tested is not None and state.tested[0] == term
    truth = state.tested[1] if again and state.tested is not None else _truth(ins, term)
    if truth is None:
        return None
    kept = ins.op == "BRANCH_KEEP" and truth == ins.jump_if
    if not kept:
        state.stack.pop()
    return branch_ways(ins)[0 if truth else 1]


_SILENT: dict[str, Silent] = {
    **dict.fromkeys(SHUFFLES, _shuffle), "NOP": _does(lambda state, arg: None), "JUMP": _jump,
    "LOAD_CONST": _does(lambda state, arg: state.stack.append(constant(arg))),
    "PUSH_NULL": _does(lambda state, arg: state.stack.append(NULL)),
    "STORE_FAST": _does(lambda state, arg: state.locals.update({arg: state.stack.pop()})),
    "LOAD_FAST_AND_CLEAR": _does(lambda state, arg: state.stack.append(state.locals.pop(arg, UNBOUND))),
    "LOAD_CLOSURE": _does(lambda state, arg: state.stack.append(("cell", arg))),
    "POP_TOP": _does(lambda state, arg: state.stack.pop()),
    "BUILD_TUPLE": _does(lambda state, arg: state.stack.append(("t", tuple(state.take(arg))))),
    "BUILD_SLICE": _does(lambda state, arg: state.stack.append(("s", tuple(state.take(arg))))),
    "LOAD_FAST": _load_fast, "DELETE_FAST": _delete_fast, "BUILD_LIST": _build_list,
    "BINARY_SUBSCR": _subscript, "BINARY_SLICE": _binary_slice, "STORE_SUBSCR": _store_subscript,
    "STORE_SLICE": _store_slice, "DELETE_SUBSCR": _delete_subscript, "LIST_EXTEND": _list_extend,
    "LIST_APPEND": _list_append, "LIST_TO_TUPLE": _list_to_tuple, "UNPACK_SEQUENCE": _unpack, "COMPARE": _compare,
    "BRANCH": _branch, "BRANCH_KEEP": _branch, "RAISE": _raise,
}  # fmt: skip


# -- what can be observed -------------------------------------------------------------------------------------------
Maker = Callable[[Ins, State], Event]


def _plain(pops: int | Callable[[Any], int], pushes: int | Callable[[Any], int] = 1) -> Maker:
    """An operation on the ``pops`` topmost values that pushes ``pushes`` new ones (numbers, or functions of arg)."""

    def make(ins: Ins, state: State) -> Event:
        count = pops(ins.arg) if callable(pops) else pops
        results = pushes(ins.arg) if callable(pushes) else pushes
        return Event(ins, ins.op, ins.arg, state.take(count), results)

    return make


def _looks(depth: int) -> Maker:
    """An operation that looks at the ``depth`` topmost values and pushes one."""

    def make(ins: Ins, state: State) -> Event:
        return Event(ins, ins.op, ins.arg, state.stack[-depth:], 1)

    return make


def _sliced(op: str, below: int, pushes: int) -> Maker:
    """``op`` on ``below`` values and a slice, whose two ends are apart on the stack (Python 3.12)."""

    def make(ins: Ins, state: State) -> Event:
        ends = state.take(2)
        return Event(ins, op, None, [*state.take(below), ("s", tuple(ends))], pushes)

    return make


def _into(values: int) -> Maker:
    """SET_ADD and its kind: ``values`` from the top go into the container ``arg`` places below them."""

    def make(ins: Ins, state: State) -> Event:
        given = state.take(values)
        return Event(ins, ins.op, None, [state.stack[-ins.arg], *given], 0)

    return make


def _call(ins: Ins, state: State) -> Event:
    return _call_with(ins, state, *ins.arg)


def _call_kw(ins: Ins, state: State) -> Event:
    """A call (3.13) whose keyword names are on the stack: a constant that was not pushed last."""
    names = _elements(state, *state.take(1))
    if names is None or any(name[0] != "c" for name in names):
        raise Differs("keyword names that are no constant")
    return _call_with(ins, state, ins.arg, tuple(name[2] for name in names))


def _call_with(ins: Ins, state: State, count: int, names: tuple[str, ...] | None) -> Event:
    args = state.take(count)
    pair = [t for t in state.take(2) if t is not NULL]
    return Event(ins, "CALL", (len(pair) + count - 1, names), [*pair, *args], 1)


def _call_ex(ins: Ins, state: State) -> Event:
    named = state.take(1) if ins.arg else []
    (positional,) = state.take(1)
    (function,) = state.take(1)
    if state.stack and state.stack[-1] is NULL:
        state.stack.pop()
    elif function is NULL:  # 3.13 keeps NULL above the function
        (function,) = state.take(1)
    elements = _elements(state, positional)
    if elements is not None and not named:
        return Event(ins, "CALL", (len(elements), None), [function, *elements], 1)
    return Event(ins, "CALL_EX", bool(ins.arg), [function, positional, *named], 1)


def _method(ins: Ins, state: State) -> Event:
    """LOAD_METHOD is LOAD_ATTR with room for ``self``."""
    event = Event(ins, "LOAD_ATTR", ins.arg, state.take(1), 1)
    state.stack.append(NULL)
    return event


def _super_attr(ins: Ins, state: State) -> Event:
    event = Event(ins, ins.op, (ins.arg[0], ins.arg[2]), state.take(3), 1)
    if ins.arg[1]:
        state.stack.append(NULL)
    return event


def _make_function(ins: Ins, state: State) -> Event:
    if VERSION >= (3, 13):
        return Event(ins, ins.op, None, state.take(1), 1)
    code = state.take(1)
    return Event(ins, ins.op, ins.arg, state.take(bin(ins.arg).count("1")) + code, 1)


def _const_key_map(ins: Ins, state: State) -> Event:
    """BUILD_MAP with its keys as one constant."""
    (keys,) = state.take(1)
    values = state.take(ins.arg)
    names = [constant(key) for key in keys[2]]
    return Event(ins, "BUILD_MAP", ins.arg, [t for pair in zip(names, values) for t in pair], 1)


def _exception_match(ins: Ins, state: State) -> Event:
    (kind,) = state.take(1)
    return Event(ins, ins.op, None, [state.stack[-1], kind], 1)


def _with_except(ins: Ins, state: State) -> Event:
    return Event(ins, ins.op, None, [state.stack[-4], state.stack[-1]], 1)


def _raised(ins: Ins, state: State) -> Event:
    """A bare ``raise`` is RERAISE of what is being handled."""
    if ins.op == "RERAISE":
        return Event(ins, "RERAISE", None, state.take(1), 0)
    handled = next((t[1][0] for t in reversed(state.stack) if t[0] == "h"), None)
    if ins.arg == 0 and handled is not None:
        return Event(ins, "RERAISE", None, [handled], 0)
    return Event(ins, "RAISE", ins.arg, state.take(ins.arg), 0)


def _test(ins: Ins, state: State) -> Event:
    """A branch; one on what a comparison with None gave is a branch on None."""
    (value,) = state.take(1)
    if ins.arg == "bool" and value[0] in ("is none", "is not none"):
        event = Event(ins, "BRANCH", "none", list(value[1]), 0)
        event.flipped = value[0] == "is not none"
    else:
        event = Event(ins, "BRANCH", ins.arg, [value], 0)
    event.kept = value
    return event


_EVENTS: dict[str, Maker] = {
    "LOAD_FAST": _plain(0), "DELETE_FAST": _plain(0, 0),  # of an unbound variable: they raise
    "LOAD_GLOBAL": _plain(0), "LOAD_NAME": _plain(0), "LOAD_DEREF": _plain(0), "LOAD_CLASSDEREF": _plain(0),
    "LOAD_LOCALS": _plain(0), "LOAD_BUILD_CLASS": _plain(0), "LOAD_ASSERTION_ERROR": _plain(0),
    "LOAD_FROM_DICT_OR_DEREF": _plain(1), "LOAD_FROM_DICT_OR_GLOBALS": _plain(1),
    "LOAD_ATTR": _plain(1), "LOAD_METHOD": _method, "LOAD_SUPER_ATTR": _super_attr,
    "STORE_NAME": _plain(1, 0), "STORE_GLOBAL": _plain(1, 0), "STORE_DEREF": _plain(1, 0), "STORE_ATTR": _plain(2, 0),
    "STORE_SUBSCR": _plain(3, 0), "STORE_SLICE": _sliced("STORE_SUBSCR", 2, 0),
    "DELETE_NAME": _plain(0, 0), "DELETE_GLOBAL": _plain(0, 0), "DELETE_DEREF": _plain(0, 0),
    "DELETE_ATTR": _plain(1, 0), "DELETE_SUBSCR": _plain(2, 0),
    "UNPACK_SEQUENCE": _plain(1, lambda n: n), "UNPACK_EX": _plain(1, lambda n: unpacked("UNPACK_EX", n)[0]),
    "IMPORT_NAME": _plain(2), "IMPORT_FROM": _looks(1),
    "GET_ITER": _plain(1), "GET_AITER": _plain(1), "GET_AWAITABLE": _plain(1), "GET_YIELD_FROM_ITER": _plain(1),
    "YIELD_VALUE": _plain(1), "YIELD_FROM": _plain(2), "RETURN_GENERATOR": _plain(0),
    "BINARY": _plain(2), "COMPARE": _plain(2),
    "BINARY_SUBSCR": _plain(2), "BINARY_SLICE": _sliced("BINARY_SUBSCR", 1, 1),
    **dict.fromkeys(UNARY, _plain(1)),
    "BUILD_SET": _plain(lambda n: n), "BUILD_MAP": _plain(lambda n: 2 * n), "BUILD_STRING": _plain(lambda n: n),
    "BUILD_CONST_KEY_MAP": _const_key_map, "LIST_TO_TUPLE": _plain(1),
    "SET_ADD": _into(1), "SET_UPDATE": _into(1), "DICT_UPDATE": _into(1), "DICT_MERGE": _into(1), "MAP_ADD": _into(2),
    "LIST_APPEND": _into(1), "LIST_EXTEND": _into(1),
    "FORMAT_VALUE": _plain(lambda a: 1 + a[1]), "CONVERT_VALUE": _plain(1),
    "CALL": _call, "CALL_KW_DYNAMIC": _call_kw, "CALL_EX": _call_ex,
    "MAKE_FUNCTION": _make_function, "SET_FUNCTION_ATTRIBUTE": _plain(2),
    "RETURN_VALUE": _plain(1, 0), "RAISE": _raised, "RERAISE": _raised,
    "BEFORE_WITH": _plain(1, 2), "BEFORE_ASYNC_WITH": _plain(1, 2), "WITH_EXCEPT_START": _with_except,
    "PUSH_EXC_INFO": _plain(1, 0), "POP_EXCEPT": _plain(1, 0), "CHECK_EXC_MATCH": _exception_match,
    "INTRINSIC_1": _plain(1), "INTRINSIC_2": _plain(2),
    "GET_LEN": _looks(1), "MATCH_SEQUENCE": _looks(1), "MATCH_MAPPING": _looks(1), "MATCH_KEYS": _looks(2),
    "MATCH_CLASS": _plain(3),
    "BRANCH": _test, "BRANCH_KEEP": _test, "FOR_ITER": _plain(1, 0),
}  # fmt: skip
