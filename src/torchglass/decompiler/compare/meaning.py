"""Whether two code objects do the same operations, in the same order, on the same values.

Comparing instructions is too strict for code no compiler made: a resume function restores a stack, a tool shuffles
values that source must give names to.  Here both codes run in step on symbols
(``symbolic.py``) and every observable operation of one must meet the same operation of the other, with equal operands,
an equal handler, and equal ways on.  Where control comes back to a pair of places with other values, what the two
visits have in common is kept (anti-unification) and the pair is run again, until nothing changes.

Not compared: how long a value is kept alive, and what ``locals()`` shows.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType

from ...bytecode.canonical import canonical
from ...bytecode.flow import branch_ways, reachable_instructions, skip
from ...bytecode.ins import Ins
from ...bytecode.parameters import parameter_names
from ..instructions.entered import raised_names
from ..instructions.peel import restored_names
from ..instructions.simplify import drop_loop_ends, fold_awaits
from ..names import STAND_IN
from .difference import Differs, other_instruction
from .symbolic import NESTED, UNBOUND, Event, Run, State, Term, with_parts

#: events that cannot raise: which handler protects them does not matter
_QUIET = frozenset(
    {"RETURN_VALUE", "PUSH_EXC_INFO", "POP_EXCEPT", "STORE_DEREF", "STORE_GLOBAL", "MAKE_FUNCTION",
     "SET_FUNCTION_ATTRIBUTE", "RETURN_GENERATOR", "LOAD_BUILD_CLASS", "LOAD_ASSERTION_ERROR"}
)  # fmt: skip
_LAST = frozenset({"RETURN_VALUE", "RAISE", "RERAISE"})
_BUDGET = 20000


#: how two constants that are code are compared; None when they mean the same
Nested = Callable[[CodeType, CodeType], "str | None"]


def meaning_difference(a: CodeType, b: CodeType, nested: Nested) -> str | None:
    """Why ``b`` is not known to do what ``a`` does; None when it does.  Both must have the same signature."""
    try:
        _Pairing(a, b, nested).run()
    except Differs as error:
        return str(error)
    except (IndexError, KeyError) as error:
        return f"no stack machine does this: {error!r}"
    return None


def _called(code: CodeType) -> State:
    """The frame of a call: parameters by position, whatever they are named."""
    return State([], {name: ("p", n) for n, name in enumerate(parameter_names(code))}, {})


def _prepared(code: CodeType) -> list[Ins]:
    instructions = canonical(code)
    fold_awaits(instructions)
    drop_loop_ends(instructions)
    _fold_cells(instructions)
    _fold_keyword_dictionaries(instructions)
    _fold_catch_alls(instructions)
    _fold_own_cells(instructions, code)
    return instructions


def _fold_keyword_dictionaries(code: list[Ins]) -> None:
    """``f(*a, **d)`` copies ``d`` before the call, the instruction by itself does not; the callee cannot tell."""
    for ins in code:
        steps = [s for s in code[ins.index : ins.index + 8] if s.op != "NOP"][:4]
        if [s.op for s in steps] != ["BUILD_MAP", "LOAD_FAST", "DICT_MERGE", "CALL_EX"] or steps[0].arg != 0:
            continue
        for step in (steps[0], steps[2]):
            step.drop()


def _fold_cells(code: list[Ins]) -> None:
    """``(lambda: x).__closure__[0]`` is how source says LOAD_CLOSURE."""
    shape = ["LOAD_CLOSURE", "BUILD_TUPLE", "LOAD_CONST", "MAKE_FUNCTION", "LOAD_ATTR", "LOAD_CONST", "BINARY_SUBSCR"]
    for ins in code:
        if ins.op != "LOAD_CLOSURE":
            continue
        steps = [s for s in code[ins.index : ins.index + 12] if s.op not in ("NOP", "SET_FUNCTION_ATTRIBUTE")]
        if [s.op for s in steps[:7]] != shape or steps[4].arg != "__closure__" or steps[5].arg != 0:
            continue
        body = [i.op for i in canonical(steps[2].arg) if i.op != "NOP"]
        if body == ["LOAD_DEREF", "RETURN_VALUE"] and steps[2].arg.co_freevars == (ins.arg,) and steps[1].arg == 1:
            ins.nxt = steps[6].nxt


def _fold_reentered(code: list[Ins]) -> list[Ins]:
    """``with reentered(leave):`` puts ``leave`` where a context manager's exit function stands."""
    shape = ["LOAD_GLOBAL", "LOAD_FAST", "CALL", "BEFORE_WITH", "POP_TOP"]
    for ins in code:
        if ins.op != "LOAD_GLOBAL" or ins.arg != "reentered":
            continue
        near = code[max(ins.index - 1, 0) : ins.index + 10]
        steps = [s for s in near if s.op not in ("NOP", "PUSH_NULL") and s.index >= ins.index][:5]
        ops = ["BEFORE_WITH" if s.op == "BEFORE_ASYNC_WITH" else s.op for s in steps if s.op != "YIELD_FROM"]
        if ops != shape or steps[2].arg != (1, None):
            continue
        for step in [*(s for s in near if s.op == "PUSH_NULL" and s.index < steps[2].index), steps[0], *steps[2:]]:
            step.drop()
    return code


def _fold_own_cells(instructions: list[Ins], code: CodeType) -> None:
    """A cell that no function closes over is a local: the functions that did may have been made before the entry."""
    alive = [instructions[at] for at in reachable_instructions(instructions)]
    closed = {ins.arg for ins in alive if ins.op == "LOAD_CLOSURE"} | set(code.co_freevars)
    for ins in alive:
        if ins.op in ("LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF") and ins.arg not in closed:
            ins.op = ins.op.replace("DEREF", "FAST")


def _fold_stand_ins(instructions: list[Ins], code: CodeType) -> list[Ins]:
    """``_constant_3`` is how source says a constant of ``code`` that it cannot write."""
    for ins in instructions:
        if ins.op == "LOAD_GLOBAL" and ins.arg.startswith(STAND_IN) and ins.arg not in code.co_names:
            number = ins.arg.removeprefix(STAND_IN)
            if number.isdigit() and int(number) < len(code.co_consts):
                ins.op, ins.arg = "LOAD_CONST", code.co_consts[int(number)]
    return instructions


def _fold_catch_alls(code: list[Ins]) -> None:
    """``except BaseException`` catches whatever is raised: no test is needed."""
    for ins in code:
        if ins.op != "LOAD_GLOBAL" or ins.arg != "BaseException":
            continue
        match = code[skip(code, ins.nxt)]
        branch = code[skip(code, match.nxt)]
        if match.op == "CHECK_EXC_MATCH" and branch.op == "BRANCH":
            ins.op, ins.arg, ins.nxt, ins.to = "JUMP", None, -1, branch_ways(branch)[0]


class _Pairing:
    """Both codes in step.  ``known`` holds, for each pair of events, the most special state all visits agree on."""

    def __init__(self, a: CodeType, b: CodeType, nested: Nested) -> None:
        self.codes = (a, b)
        self.nested = nested
        left = _prepared(a)
        names = parameter_names(a)
        restored = frozenset(("p", names.index(n)) for n in restored_names(left) if n in names)
        raised = frozenset(("p", names.index(n)) for n in raised_names(left) if n in names)
        right = _fold_stand_ins(_fold_reentered(_prepared(b)), a)
        self.left, self.right = Run(left), Run(right, restored, raised)
        self.fresh = 0
        self.known: dict[tuple[int, int], tuple[State, State]] = {}
        self.work: list[tuple[int, int, State, State]] = []

    def run(self) -> None:
        self.work.append((0, 0, _called(self.codes[0]), _called(self.codes[1])))
        for _ in range(_BUDGET):
            if not self.work:
                return
            self.step(*self.work.pop())
        raise Differs("too many places to compare")

    def value(self) -> Term:
        self.fresh += 1
        return ("v", self.fresh)

    # -- one pair of events ----------------------------------------------------------------------------------------
    def step(self, i: int, j: int, a: State, b: State) -> None:
        i, j = self.left.advance(i, a), self.right.advance(j, b)
        while self.right.repeats(j, b) and not _same_operation(self.left.code[i], self.right.code[j], a, b):
            j = self.right.advance(self.right.repeat(j, b), b)
        form = _canonical(a, b)
        old = self.known.get((i, j))
        if old is not None:
            form = _common(old, form)
            if form == old:
                return
        self.known[i, j] = form
        a, b = self.states(form)
        x, y = self.left.event(i, a), self.right.event(j, b)
        self.compare(x, y, a, b)
        self.follow(x, y, a, b)

    def states(self, form: tuple[State, State]) -> tuple[State, State]:
        """Fresh states of the shape ``form``; its variables get numbers of this pairing."""
        values: dict[Term, Term] = {}

        def term(t: Term) -> Term:
            if t[0] != "v":
                return with_parts(t, term)
            if t not in values:
                values[t] = self.value()
            return values[t]

        for run, side in zip((self.left, self.right), form):
            run.list_count = max([run.list_count, *side.lists])
        left, right = (_with_terms(side, term) for side in form)
        return left, right

    def compare(self, x: Event, y: Event, a: State, b: State) -> None:
        if x.op != y.op or x.arg != y.arg or x.results != y.results or len(x.operands) != len(y.operands):
            raise other_instruction(x.ins, y.ins)
        shown: dict[int, tuple[int, Term]] = {}
        for s, t in zip(x.operands, y.operands):
            if t[0] == "piece" and x.op == "BUILD_STRING":
                t = t[1]
            if not self.match(s, t, a, b, shown):
                raise Differs("is given another value", x.ins)
        if shown:
            _show(a, {m: v for m, (_, v) in shown.items()})
            _show(b, dict(shown.values()))
        if x.op not in _QUIET and (x.ins.eh < 0) != (y.ins.eh < 0):
            raise Differs("is protected in one code only", x.ins)

    def match(self, s: Term, t: Term, a: State, b: State, shown: dict[int, tuple[int, Term]]) -> bool:
        if s[0] != t[0]:
            return False
        if s[0] in NESTED:
            return len(s[1]) == len(t[1]) and all(self.match(u, v, a, b, shown) for u, v in zip(s[1], t[1]))
        if s[0] == "l":
            if s[1] in shown or any(n == t[1] for n, _ in shown.values()):
                return s[1] in shown and shown[s[1]][0] == t[1]
            shown[s[1]] = (t[1], self.value())
            left, right = a.lists[s[1]], b.lists[t[1]]
            return len(left) == len(right) and all(self.match(u, v, a, b, shown) for u, v in zip(left, right))
        if s[0] == "c" and isinstance(s[2], CodeType) and isinstance(t[2], CodeType):
            return self.nested(s[2], t[2]) is None
        return s[:2] == t[:2]

    # -- where it goes on --------------------------------------------------------------------------------------------
    def follow(self, x: Event, y: Event, a: State, b: State) -> None:
        if x.op not in _QUIET and x.ins.eh >= 0:
            raised, place = self.value(), self.value()
            left, right = _handling(x, a, raised, place), _handling(y, b, raised, place)
            self.work.append((x.ins.eh, y.ins.eh, left, right))
        if x.op in _LAST:
            return
        if x.op == "BRANCH":
            for truth in (0, 1):
                left, right = a.copy(), b.copy()
                ways = []
                for event, state in ((x, left), (y, right)):
                    own = truth ^ event.flipped
                    ways.append(branch_ways(event.ins)[own])
                    if event.ins.arg == "bool":
                        state.tested = event.kept, own == 0
                    if event.ins.op == "BRANCH_KEEP" and event.ins.jump_if == (own == 0):
                        state.stack.append(event.kept)
                self.work.append((ways[0], ways[1], left, right))
            return
        if x.op == "FOR_ITER":
            self.work.append((x.ins.to, y.ins.to, a.copy(), b.copy()))
            item = self.value()
            a.stack.extend((x.operands[0], item))
            b.stack.extend((y.operands[0], item))
        elif x.op == "PUSH_EXC_INFO":
            a.stack.extend((("h", tuple(x.operands)), x.operands[0]))
            b.stack.extend((("h", tuple(y.operands)), y.operands[0]))
        else:
            results = [self.value() for _ in range(x.results)]
            a.stack.extend(results)
            b.stack.extend(results)
        self.work.append((x.ins.nxt, y.ins.nxt, a, b))


def _same_operation(x: Ins, y: Ins, a: State, b: State) -> bool:
    return x.op == y.op and bool(a.stack) and a.stack[-1] == b.stack[-1]


def _handling(event: Event, state: State, raised: Term, place: Term) -> State:
    """The frame as ``event``'s handler finds it."""
    out = state.copy()
    out.stack = [*state.stack, *event.operands][: event.ins.depth]
    out.stack += [place, raised] if event.ins.lasti else [raised]
    return out


def _with_terms(state: State, term: Callable[[Term], Term]) -> State:
    """A state of the same shape, each term changed."""
    names = {k: term(t) for k, t in state.locals.items()}
    return State([term(t) for t in state.stack], names, {n: [term(t) for t in v] for n, v in state.lists.items()})


def _show(state: State, values: dict[int, Term]) -> None:
    """Lists that an operation was given are plain values from then on."""

    def term(t: Term) -> Term:
        return values.get(t[1], t) if t[0] == "l" else with_parts(t, term)

    for n in values:
        state.lists.pop(n, None)
    new = _with_terms(state, term)
    state.stack, state.locals, state.lists = new.stack, new.locals, new.lists


# -- shapes of states ---------------------------------------------------------------------------------------------
def _canonical(a: State, b: State) -> tuple[State, State]:
    """Both states with variables and lists numbered in the order in which they are met; equal iff alike."""
    values: dict[Term, Term] = {}

    def side(state: State) -> State:
        numbers: dict[int, int] = {}
        lists: dict[int, list[Term]] = {}

        def term(t: Term) -> Term:
            if t[0] == "v":
                return values.setdefault(t, ("v", len(values)))
            if t[0] != "l":
                return with_parts(t, term)
            if t[1] not in numbers:
                n = numbers[t[1]] = len(numbers) + 1
                lists[n] = []  # numbered before those inside it
                lists[n] = [term(u) for u in state.lists[t[1]]]
            return ("l", numbers[t[1]])

        stack = [term(t) for t in state.stack]
        return State(stack, {k: term(state.locals[k]) for k in sorted(state.locals)}, lists)

    return side(a), side(b)


def _common(old: tuple[State, State], new: tuple[State, State]) -> tuple[State, State]:
    """The most special form that both are instances of: what differs becomes a variable, equal pairs the same one."""
    shapes = [[[(n, len(v)) for n, v in side.lists.items()] for side in form] for form in (old, new)]
    if shapes[0] != shapes[1]:
        old, new = _without_lists(*old), _without_lists(*new)
    if any(len(one.stack) != len(two.stack) for one, two in zip(old, new)):
        raise Differs("stacks of different depth meet")
    pairs: dict[tuple[Term, Term], Term] = {}

    def term(s: Term, t: Term) -> Term:
        if s == t and s[0] != "v" and s[0] not in NESTED:
            return s
        if s[0] == t[0] and s[0] in NESTED and len(s[1]) == len(t[1]):
            return (s[0], tuple(map(term, s[1], t[1])))
        return pairs.setdefault((s, t), ("v", len(pairs)))

    def side(one: State, two: State) -> State:
        names = sorted({*one.locals, *two.locals})
        both = {k: term(one.locals.get(k, UNBOUND), two.locals.get(k, UNBOUND)) for k in names}
        held = {n: list(map(term, v, two.lists[n])) for n, v in one.lists.items()}
        bound = {k: t for k, t in both.items() if t is not UNBOUND}
        return State(list(map(term, one.stack, two.stack)), bound, held)

    return _canonical(*map(side, old, new))


def _without_lists(a: State, b: State) -> tuple[State, State]:
    """The form in which each list under construction is a plain value: the same for lists of the same elements."""
    left, right = a.copy(), b.copy()
    role = {t[1]: b.locals.get(name) for name, t in a.locals.items() if t[0] == "l"}
    for k in range(len(a.lists)):
        n = max(left.lists)  # numbered as they are met: those inside come last
        same = [m for m, v in right.lists.items() if v == left.lists[n]]
        if not same:
            raise Differs("lists under construction meet")
        m = next((m for m in same if role.get(n) == ("l", m)), same[0])
        _show(left, {n: ("v", f"list {k}")})
        _show(right, {m: ("v", f"list {k}")})
    if right.lists:
        raise Differs("lists under construction meet")
    return _canonical(left, right)
