"""``decompile``: a function or code object in, source text out.

>>> from torchglass.decompiler import decompile
>>> print(decompile(lambda x: x + 1))   # doctest: +SKIP
lambda x: x + 1
"""

from __future__ import annotations

import ast
from types import CodeType, FunctionType, MethodType
from typing import Any

from .compare.sameness import source_difference
from .errors import UNEXPECTED, DecompileError
from .expressions.definitions import (
    NoExpression,
    class_body,
    declared_body,
    docstring_statement,
    function_definition,
    lambda_expression,
    unused_free_variables,
    with_type_params,
)
from .expressions.signature import fill_signature
from .expressions.trees import load
from .expressions.values import Function
from .instructions.cells import with_free_cells
from .instructions.peel import resumes
from .names import LAMBDA, identifier
from .pipeline import MODES, FinalError, attempt
from .scope import Scope
from .statements.check import check_tree


def decompile(function_or_code: Any, *, verify: bool = False, name: str | None = None) -> str:
    """Source that compiles to what ``function_or_code`` does.

    Takes a function, method or code object; returns a complete ``def``, ``async def``, lambda or class body.  A
    function with free variables is wrapped in a ``def`` that binds them.  ``name`` renames the result.  With
    ``verify`` the text is compiled again and its control-flow graph compared instruction by instruction.  Raises
    TypeError for what has no bytecode and DecompileError for what cannot be turned into source that is known to be
    right.
    """
    target = function_or_code
    while isinstance(target, MethodType):
        target = target.__func__
    while not isinstance(target, (FunctionType, CodeType)) and hasattr(target, "__wrapped__"):
        target = target.__wrapped__
    code = target.__code__ if type(target) is FunctionType else target
    if not isinstance(code, CodeType):
        kind = type(function_or_code).__name__
        raise TypeError(f"decompile expects a function or a code object, got {kind}, which has no bytecode")
    text, difference = _attempt(target, code, name)
    if difference is not None:
        if verify:
            raise DecompileError(f"{_place(code)}: recompiled differently: {difference}")
        if not text.startswith((_STATES, _RESUMES)):
            text = f"# not the same bytecode when compiled again: {' '.join(difference.split())}\n{text}"
    return text


def readable(code: CodeType, *, name: str | None = None) -> str:
    """The verified source of ``code``; where there is none, text whose first lines say so and why.  Never raises."""
    try:
        text, difference = _attempt(code, code, name)
    except DecompileError as error:
        return f"# The decompiler cannot show this: {' '.join(str(error).split())}\n"
    if difference is None:
        return text
    why = f"{_place(code)}: recompiled differently: {difference}"
    return f"# Not verified: {' '.join(why.split())}\n{text}"


def _attempt(target: Any, code: CodeType, name: str | None) -> tuple[str, str | None]:
    """:func:`_best_source`; DecompileError, naming the place, for whatever goes wrong."""
    code, shared = with_free_cells(code)
    try:
        text, difference = _best_source(target, code, name)
        return _with_shared(text, shared), difference
    except RecursionError as error:
        raise DecompileError(f"{_place(code)}: nested too deeply") from error
    except DecompileError as error:
        raise DecompileError(f"{_place(code)}: {error}") from error
    except UNEXPECTED as error:
        raise DecompileError(f"{_place(code)}: unexpected bytecode: {error!r}") from error


#: how many other places are tried for what follows a statement, when the comparison says that a reading is wrong
_READINGS = 16
_STATES = "# control flow"
_RESUMES = "# continues in the middle of a function: shown from there on, not compared with the bytecode"


def _with_shared(text: str, shared: tuple[str, ...]) -> str:
    if not shared:
        return text
    lines = text.splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if not line.startswith("#"))
    note = f"# shared with functions made before, and given as cells: {', '.join(shared)}\n"
    return "".join([*lines[:at], note, *lines[at:]])


def _place(code: CodeType) -> str:
    return f"{code.co_name} ({code.co_filename}:{code.co_firstlineno})"


def _best_source(target: Any, code: CodeType, name: str | None) -> tuple[str, str | None]:
    """The best source and how it differs from ``code``.

    Best is what compiles to the same instructions, then what means the same, structured before state machine, then
    the first that was found.
    """
    texts: list[str] = []
    failure: DecompileError | None = None
    made = _made(code)
    # a tool's code is no compiler's copies: its temporaries are read by name
    order = sorted(range(len(MODES)), key=lambda n: MODES[n] != "named") if made else range(len(MODES))
    readings = [(0, k) for k in range(1, _READINGS)]
    for tried, (n, reading) in enumerate([*((n, 0) for n in order), *readings]):
        if made and tried in (1, len(order)) and (same := _first_same(texts, code, name)):
            return same, None  # no source compiles to the same instructions, and other readings are no better
        try:
            text = _source(target, code, name, MODES[n:] + MODES[:n] if not reading else (MODES[n],), reading)
            why = source_difference(text, code, name, by_meaning=False)
        except DecompileError as error:
            failure = failure or error
            if isinstance(error, FinalError) and not reading:
                break
            continue
        if why is None:
            return text, None
        if text not in texts:
            texts.append(text)
    if same := _first_same(texts, code, name):
        return same, None
    return _next_best(target, code, name, texts, failure)


def _first_same(texts: list[str], code: CodeType, name: str | None) -> str | None:
    """Sorts ``texts``, the best first, and returns the first that means what ``code`` does."""
    texts.sort(key=lambda text: (text.startswith(_STATES), text.count("\n")))
    return next((text for text in texts if source_difference(text, code, name) is None), None)


def _next_best(
    target: Any, code: CodeType, name: str | None, texts: list[str], failure: DecompileError | None
) -> tuple[str, str | None]:
    """What is shown where no text is known to mean the same, and why it is not."""
    # of a module or class the functions would be written as state machines, not itself
    states = _as_states(target, code, name) if code.co_flags & 1 else None
    if not texts:
        assert failure is not None
        if states is None:
            raise failure
        return states
    text = texts[0]
    resumed = code.co_flags & 1 and resumes(code) and not text.startswith(_STATES)
    if resumed and (states is None or states[1] is not None):
        text = f"{_RESUMES}\n{text}"  # the prologue may do what source cannot say
    elif states is not None:
        return states
    return text, source_difference(texts[0], code, name)


def _made(code: CodeType) -> bool:
    """Whether a tool assembled ``code``: nearly all of its instructions have no place in a source of their own."""
    if not hasattr(code, "co_positions"):
        return False
    positions = [place for place, opcode in zip(code.co_positions(), code.co_code[::2]) if opcode]  # 0 is CACHE
    return len(set(positions)) * 6 < len(positions)


def _as_states(target: Any, code: CodeType, name: str | None) -> tuple[str, str | None] | None:
    """``code`` as state machines throughout: what is shown when the structured form is not the same program."""
    try:
        text = _source(target, code, name, ())
        return text, source_difference(text, code, name)
    except (DecompileError, *UNEXPECTED):
        return None


def _source(target: Any, code: CodeType, name: str | None, modes: tuple[str, ...], reading: int = 0) -> str:
    outer = Scope(code, None, attempt(modes, reading))
    outer.names = set(code.co_freevars)  # all that is known around the code
    tree = definition_tree(target, code, name, outer)
    check_tree(tree)
    notes = "".join(f"# {' '.join(note.split())}\n" for note in outer.attempt.notes)
    return notes + ast.unparse(tree)


def definition_tree(target: Any, code: CodeType, name: str | None, outer: Scope) -> ast.Module:
    """The definition of ``code`` as a module, wrapped in a function that binds its free variables if it has any."""
    kind = code.co_name
    function = Function(code)
    if type(target) is FunctionType:
        fill_signature(function, target)
    if not code.co_flags & 1 and "__module__" in code.co_names and "__qualname__" in code.co_names:
        body = class_body(outer.nested(code))
        stmt: ast.stmt = with_type_params(ast.ClassDef(name or kind, [], [], body, []))
    elif kind == "<lambda>" and name is None:
        stmt = _lambda(function, outer)
    elif kind == "<module>":
        first, *rest = declared_body(outer.nested(code))
        return ast.Module([docstring_statement(first) or first, *rest], [])
    else:
        stmt = function_definition(function, outer, name or identifier(kind), [])
    if code.co_freevars:
        stmt = _factory(stmt, code)
    imports = [ast.ImportFrom("torchglass.decompiler", [ast.alias("reentered", None)], 0)]
    reenters = any(getattr(node, "reenters", False) for node in ast.walk(stmt))
    return ast.Module([*(imports if reenters else []), stmt], [])


def _lambda(function: Function, outer: Scope) -> ast.stmt:
    """A lambda; as a ``def`` when its body is no expression, as tools leave them."""
    try:
        if not unused_free_variables(function.code):  # which only a statement can declare
            return ast.Expr(lambda_expression(function, outer))
    except NoExpression:
        pass
    return function_definition(function, outer, LAMBDA, [])


def _factory(stmt: ast.stmt, code: CodeType) -> ast.stmt:
    """``def`` around a closure: its parameters are the free variables."""
    args = ast.arguments([], [ast.arg(n, None) for n in code.co_freevars], None, [], [], None, [])
    if isinstance(stmt, ast.Expr):
        body: list[ast.stmt] = [ast.Return(stmt.value)]
    else:
        body = [stmt, ast.Return(load(stmt.name))]  # type: ignore[attr-defined]
    return with_type_params(ast.FunctionDef("make_closure", args, body, [], None, None, lineno=0))
