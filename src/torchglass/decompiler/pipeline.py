"""The way of one code object through the rooms: instructions, graph, expressions, statements.

``body_of(scope)`` gives the statements of the scope's code.  How many copies the compiler made of one statement cannot
always be told; if the likeliest reading has no structure, the others of ``MODES`` are tried, then a state machine.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ..bytecode.canonical import canonical
from ..bytecode.flow import reachable_instructions
from .errors import UNEXPECTED, DecompileError
from .expressions import (  # noqa: F401  (their rules register)
    rules_basic,
    rules_calls,
    rules_control,
    rules_generics,
    rules_named,
    rules_values,
)
from .expressions.cases import extract_matches
from .expressions.machine import Machine
from .expressions.naming import NamingMachine, store_then_load
from .expressions.reduce import Respill, execute
from .graph.cfg import Graph
from .graph.dominance import dominators, join_finally_ends, order, ordered
from .instructions.entered import simplify_entered
from .instructions.finally_copies import strip_finally_copies, unify_with_exits
from .instructions.inlined import extract_comprehensions
from .instructions.minimize import merge_copies, merge_plain_returns
from .instructions.peel import entry_jump, restored_names
from .instructions.simplify import simplify
from .scope import Attempt, Scope
from .statements.finish import drop_plain_return, finish
from .statements.places import Unstructured
from .statements.states import state_machine
from .statements.structure import structure

#: how instructions are taken for copies of one another (same source position, same meaning, never); then, code that
#: shuffles its values as no compiler does; then, code entered in loops whose rest of the round needs one of its own
MODES = ("copies", "alike", "apart", "named", "rounds")
_PATTERN_HINTS = frozenset({"COPY", "MATCH_SEQUENCE", "MATCH_MAPPING", "MATCH_CLASS"})


def attempt(modes: tuple[str, ...] = MODES, reading: int = 0) -> Attempt:
    return Attempt(body_of, _loop_statements, modes, reading)


class FinalError(DecompileError):
    """A body for which every way has been tried already: whoever contains it need not try again."""


def body_of(scope: Scope) -> list[ast.stmt]:
    """The statements of ``scope``'s code; the returns of ``None`` at its end are left out."""
    first: DecompileError | None = None
    attempt = scope.attempt
    for mode in attempt.modes or (MODES if _expression_like(scope) else ()):
        scope.begin()
        try:
            return _structured(scope, mode)
        except FinalError:
            raise
        except DecompileError as error:
            first = first or error
        except UNEXPECTED as error:
            # bytecode no compiler makes must end in a refusal, not in a traceback of ours
            first = first or DecompileError(f"unexpected bytecode: {error!r}")
    scope.begin()
    if attempt.reading:
        raise FinalError(str(first))  # another reading is only wanted for its structure
    try:
        stmts = _states(scope)
    except (DecompileError, *UNEXPECTED) as error:
        raise FinalError(str(first)) from error
    why = first or "its structured form compiles to other bytecode"
    attempt.note(f"control flow of {scope.code.co_name} written as a state machine: {why}")
    return stmts


def _expression_like(scope: Scope) -> bool:
    name = scope.code.co_name
    return scope.is_comprehension or scope.is_class or scope.is_generic or name in ("<lambda>", "<module>")


def _states(scope: Scope) -> list[ast.stmt]:
    """The body without structure: right, but to be read block by block."""
    if _expression_like(scope):
        raise DecompileError("no state machine inside an expression or class body")
    instructions = canonical(scope.code)
    kinds = simplify(instructions, plain=True)
    store_then_load(instructions)
    if "star" in kinds.values():
        raise DecompileError("an except* clause in a state machine")
    extract_comprehensions(instructions)
    scope.instructions = (instructions, kinds)
    scope.named_iterators = True
    scope.machine = scope.machine or Machine

    def written() -> list[ast.stmt]:
        graph = Graph(instructions, kinds)
        execute(ordered(graph), NamingMachine(scope), [])
        return state_machine(graph, order(graph))

    return _with_temporaries(scope, written)


def _structured(scope: Scope, mode: str) -> list[ast.stmt]:
    code = scope.code
    instructions = canonical(code)
    if mode == "rounds" and entry_jump(instructions) is None:
        raise DecompileError("not entered in a loop")
    scope.constants |= restored_names(instructions)
    kinds = simplify_entered(instructions, code, mode == "rounds")
    failed = strip_finally_copies(instructions, kinds)
    if mode in ("copies", "alike", "rounds"):
        merge_copies(instructions, reachable_instructions(instructions), mode != "alike")
    merge_plain_returns(instructions)
    if failed:
        raise DecompileError("a finally body differs between its copies")
    if "with" in kinds.values():
        unify_with_exits(instructions, kinds)
    extract_comprehensions(instructions)
    if any(i.op in _PATTERN_HINTS for i in instructions):
        extract_matches(instructions, reachable_instructions(instructions))
    if mode == "named":
        store_then_load(instructions)
    scope.instructions = (instructions, kinds)
    scope.machine = NamingMachine if mode == "named" else Machine
    return drop_plain_return(finish(_statements_from(scope, 0, [])))


def _loop_statements(scope: Scope, start: int, stack: list[Any]) -> list[ast.stmt]:
    """An inlined comprehension's loop, which is a part of its own of the instructions of ``scope``."""
    named, scope.named_iterators = scope.named_iterators, False
    stmts = _statements_from(scope, start, stack)
    scope.named_iterators = named
    return finish(stmts)


def _statements_from(scope: Scope, start: int, stack: list[Any]) -> list[ast.stmt]:
    """Graph, execution and structure of the instructions reached from ``start`` with ``stack``."""
    return _with_temporaries(scope, lambda: _statements(scope, start, stack))


def _with_temporaries(scope: Scope, written: Callable[[], list[ast.stmt]]) -> list[ast.stmt]:
    """What ``written`` gives once every value that waits across a branch has a name."""
    for _ in range(8):
        try:
            return written()
        except Respill as waiting:
            scope.spills |= waiting.homes
    raise DecompileError("values wait across a branch")


def _statements(scope: Scope, start: int, stack: list[Any]) -> list[ast.stmt]:
    instructions, kinds = scope.instructions
    graph = Graph(instructions, kinds, start)
    execute(ordered(graph), scope.machine(scope), stack)
    nodes = order(graph)
    dominators(nodes)
    if "finally" in kinds.values():
        join_finally_ends(graph, nodes)
        nodes = order(graph)
        dominators(nodes)
    try:
        return structure(graph, nodes, scope.attempt.reading)
    except Unstructured as error:
        raise DecompileError(f"control flow not structured: {error}") from error
