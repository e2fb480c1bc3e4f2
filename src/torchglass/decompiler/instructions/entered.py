"""Code that starts inside a handler: the exception being handled is raised again, so that source can handle it.

A resume function restores a stack and jumps into its user's bytecode.  Inside an ``except`` clause the stack holds what
PUSH_EXC_INFO saved; at the begin of a handler it holds the exception that is to be handled.  Both become what leads
there in source.  Before: ``PUSH_EXC_INFO stack_0; jump into the clause``; after:

    try:
        raise stack_0
    except BaseException as error:
        ...the rest of the clause
"""

from __future__ import annotations

import itertools
from types import CodeType

from ...bytecode.flow import handlers_around, skip
from ...bytecode.ins import Ins, append
from ...bytecode.parameters import parameter_names
from .exception_groups import unbinds_name
from .peel import (
    ENTERED,
    adopt_handlers,
    enter_behind_exit,
    entry_jump,
    peel_entered_loops,
    set_aside_skipped,
    stack_depths,
)
from .simplify import handler_kinds, simplify


def simplify_entered(instructions: list[Ins], code: CodeType, rounds: bool) -> dict[int, str]:
    """``simplify``; code that a prologue enters in the middle becomes code that begins at its begin.

    ``rounds`` gives the rest of each round a loop of its own (see ``peel_entered_loops``).  Returns the handlers in
    use, each with its kind.
    """
    enter_behind_exit(instructions)
    names = raise_where_handled(instructions)
    skipped = set_aside_skipped(instructions)
    kinds = simplify(instructions)
    for ins, op in skipped:
        ins.op = op
    adopt_handlers(instructions)
    changed = peel_entered_loops(instructions, stack_depths(code) if rounds else None)
    changed |= raise_handled(instructions, names, parameter_names(code))
    return handler_kinds(instructions) if changed or skipped else kinds


def raised_names(code: list[Ins]) -> set[str]:
    """The parameters that a prologue restores as exceptions: being handled, or on their way to a handler."""
    jump = entry_jump(code)
    if jump is None:
        return set()
    before = code[: jump.index]
    found = {load.arg for load, push in itertools.pairwise(before) if _restores_handled(load, push)}
    if before and before[-1].op == "LOAD_FAST" and _region(code, jump.to) is not None:
        found.add(before[-1].arg)
    return found


def raise_where_handled(code: list[Ins]) -> dict[int, str]:
    """A jump to the begin of a handler becomes a ``raise`` that the handler's own region protects.

    To be called before ``simplify``.  Returns the names that ``except … as`` clauses around the entry bind, by the
    depth of the stack below what is handled.
    """
    jump = entry_jump(code)
    if jump is None:
        return {}
    names = _clause_names(code, code[skip(code, jump.to)])
    region = _region(code, jump.to)
    before = [ins for ins in code[: jump.index] if ins.op != "NOP"]
    if (
        region is not None
        and len(before) > region.lasti
        and all(i.op == "LOAD_FAST" for i in before[-1 - region.lasti :])
    ):
        if region.lasti:
            before[-2].drop()
        jump.op, jump.arg, jump.to, jump.nxt, jump.pos = "RAISE", 1, -1, -1, ENTERED
        for ins in (jump, before[-1]):
            ins.region = region.region
    return names


def raise_handled(code: list[Ins], names: dict[int, str], parameters: tuple[str, ...]) -> bool:
    """Each exception that the prologue restores as handled is raised and caught; returns whether there was one.

    To be called after ``simplify``; ``names`` as ``raise_where_handled`` gave them.
    """
    jump = entry_jump(code)
    if jump is None:
        return False
    before = code[: jump.index]
    target = jump if jump.op == "RAISE" else code[skip(code, jump.to)]
    depth, handled = 0, False
    around = (-1, 0, False)
    for n, ins in enumerate(before):
        if ins.eh < 0:
            ins.region = around
        if n and _restores_handled(before[n - 1], ins):
            depth -= 1
            around = _outer(code, target, depth)
            clause = _clause(code, before[n - 1], ins, depth, around)
            after = code[ins.index + 1]
            if after.op == "POP_TOP" and depth in names:
                _bind(code, clause, after, names[depth], names[depth] in parameters)
            handled, depth = True, depth + 2
        else:
            depth += {"LOAD_FAST": 1, "PUSH_NULL": 1, "COPY": 1, "POP_TOP": -1, "STORE_FAST": -1}.get(ins.op, 0)
    if handled and jump.op == "JUMP":
        jump.region = around
    return handled


def _restores_handled(load: Ins, push: Ins) -> bool:
    return load.op == "LOAD_FAST" and push.op == "PUSH_EXC_INFO"


def _region(code: list[Ins], at: int) -> Ins | None:
    """An instruction whose handler begins at ``at``."""
    place = skip(code, at)
    return next((ins for ins in code if ins.eh >= 0 and skip(code, ins.eh) == place), None)


def _clause(code: list[Ins], load: Ins, push: Ins, depth: int, around: tuple[int, int, bool]) -> Ins:
    """PUSH_EXC_INFO becomes a ``raise``, caught by a handler that goes on where PUSH_EXC_INFO did."""
    clause = append(code, "PUSH_EXC_INFO", ENTERED, push)
    clause.nxt, clause.region = push.index + 1, around
    push.op, push.arg, push.nxt = "RAISE", 1, -1
    for ins in (load, push):
        ins.region = clause.index, depth, False
    return clause


def _outer(code: list[Ins], target: Ins, depth: int) -> tuple[int, int, bool]:
    """The handler around a clause of which ``target`` is part and below which ``depth`` values lie."""
    inside = target
    for handler in handlers_around(code, target.eh):
        if inside.depth <= depth:
            return handler, inside.depth, inside.lasti
        inside = code[handler]
    return -1, 0, False


def _clause_names(code: list[Ins], target: Ins) -> dict[int, str]:
    names: dict[int, str] = {}
    inside = target
    for handler in handlers_around(code, target.eh):
        steps = code[handler : handler + 4]
        if len(steps) == 4 and unbinds_name(steps) and steps[1].op == "STORE_FAST" and steps[-1].op == "RERAISE":
            names.setdefault(inside.depth - 1, steps[1].arg)
        inside = code[handler]
    return names


def _bind(code: list[Ins], clause: Ins, drop: Ins, name: str, passed: bool) -> None:
    """The clause binds ``name``; what the parameter of that name holds is kept for its body."""
    store = append(code, "STORE_FAST", name, drop)
    clause.nxt = store.index
    store.nxt = drop.nxt
    if not passed:
        return
    kept = f"{name}_of_caller"
    saved = [append(code, "LOAD_FAST", name, code[0]), append(code, "STORE_FAST", kept, code[0])]
    saved[0].nxt, saved[1].nxt = saved[1].index, code[0].nxt
    code[0].nxt = saved[0].index
    again = [append(code, "LOAD_FAST", kept, store), append(code, "STORE_FAST", name, store)]
    again[0].nxt, again[1].nxt, store.nxt = again[1].index, drop.nxt, again[0].index
