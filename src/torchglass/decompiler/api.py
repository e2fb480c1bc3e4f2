"""``decompile``: a function or code object in, source text out.

>>> from torchglass.decompiler import decompile
>>> print(decompile(lambda x: x + 1))   # doctest: +SKIP
lambda x: x + 1
"""

from __future__ import annotations

import ast
from types import CodeType, FunctionType, MethodType
from typing import Any

from .compare.instructions import LAMBDA, source_difference, source_value_difference
from .errors import UNEXPECTED, DecompileError
from .expressions.values import Function
from .instructions.cells import with_free_cells
from .instructions.peel import resumes
from .pipeline import (
    MODES,
    FinalError,
    NoExpression,
    Scope,
    class_body,
    function_definition,
    lambda_expression,
    unused_free_variables,
)
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

    Best is what compiles to the same instructions, then what does the same with the same values, structured before
    state machine, then the first that was found.
    """
    texts: list[tuple[str, str | None]] = []
    failure: DecompileError | None = None
    made = _made(code)
    # a tool's code is no compiler's copies: its temporaries are read by name
    order = sorted(range(len(MODES)), key=lambda n: MODES[n] != "named") if made else range(len(MODES))
    readings = [(0, k) for k in range(1, _READINGS)]
    for tried, (n, reading) in enumerate([*((n, 0) for n in order), *readings]):
        if made and tried in (1, len(order)):
            # no source compiles to the same instructions, and other readings are no better
            by_value = _same_by_value(texts, code, name)
            if by_value is not None:
                return by_value, None
        try:
            modes = MODES[n:] + MODES[:n]
            text = _source(target, code, name, modes if not reading else modes[:1], reading)
            why = source_difference(text, code, name)
        except DecompileError as error:
            failure = failure or error
            if isinstance(error, FinalError) and not reading:
                break
            continue
        if why is None:
            return text, None
        if text not in [t for t, _ in texts]:
            texts.append((text, why))
    by_value = _same_by_value(texts, code, name)
    if by_value is not None:
        return by_value, None
    if not texts:
        assert failure is not None
        states = _as_states(target, code, name) if code.co_flags & 1 else None
        if states is None:
            raise failure
        return states
    text, why = texts[0]
    if not code.co_flags & 1:  # a module or class: its functions would be written as state machines, not itself
        return texts[0]
    states = _as_states(target, code, name)
    if resumes(code) and not text.startswith(_STATES) and (states is None or states[1] is not None):
        return f"{_RESUMES}\n{text}", why  # the prologue may do what source cannot say
    return states or texts[0]


def _made(code: CodeType) -> bool:
    """Whether a tool assembled ``code``: nearly all of its instructions have no place in a source of their own."""
    positions = list(code.co_positions()) if hasattr(code, "co_positions") else []
    return len(set(positions)) * 6 < len(positions)


def _same_by_value(texts: list[tuple[str, str | None]], code: CodeType, name: str | None) -> str | None:
    """Sorts ``texts``, the best first, and returns the first that does the same with the same values."""
    texts.sort(key=lambda pair: (pair[0].startswith(_STATES), pair[0].count("\n")))
    for n, (text, _) in enumerate(texts):
        by_value = source_value_difference(text, code, name)
        if by_value is None:
            return text
        texts[n] = (text, by_value)
    return None


def _source(target: Any, code: CodeType, name: str | None, modes: tuple[str, ...], reading: int = 0) -> str:
    notes: list[str] = []
    tree = definition_tree(target, code, name, modes, notes, reading)
    check_tree(tree)
    return _with_notes(ast.unparse(tree), notes)


def _as_states(target: Any, code: CodeType, name: str | None) -> tuple[str, str | None] | None:
    """``code`` as state machines throughout: what is shown when the structured form is not the same program."""
    try:
        text = _source(target, code, name, ())
        why = source_difference(text, code, name)
        return text, why and source_value_difference(text, code, name)
    except (DecompileError, *UNEXPECTED):
        return None


def _with_notes(text: str, notes: list[str]) -> str:
    return "".join(f"# {' '.join(note.split())}\n" for note in notes) + text


def definition_tree(
    target: Any,
    code: CodeType,
    name: str | None,
    modes: tuple[str, ...] = MODES,
    notes: list[str] | None = None,
    reading: int = 0,
) -> ast.AST:
    """The definition of ``code`` as a module, wrapped in a function that binds its free variables if it has any."""
    function = Function(code)
    if type(target) is FunctionType:
        from .expressions.signature import fill_signature

        fill_signature(function, target)
    kind = code.co_name
    outer = _OuterScope(code)
    outer.modes, outer.reading = modes, reading
    if notes is not None:
        outer.notes = notes
    if not code.co_flags & 1 and "__module__" in code.co_names and "__qualname__" in code.co_names:
        stmt: ast.stmt = ast.ClassDef(name or kind, [], [], class_body(code, outer), [])
        if hasattr(ast, "TypeVar"):
            stmt.type_params = []  # type: ignore[attr-defined]
    elif kind == "<lambda>" and name is None:
        stmt = _lambda(function, outer)
    elif kind == "<module>":
        from .pipeline import declared_body

        return ast.Module(_with_docstring(declared_body(code, outer)), [])
    else:
        clean = "".join(c if c.isalnum() or c == "_" else "_" for c in kind)
        stmt = function_definition(function, outer, name or clean, [])
    if code.co_freevars:
        stmt = _factory(stmt, code)
    imports = [ast.ImportFrom("torchglass.decompiler", [ast.alias("reentered", None)], 0)]
    return ast.Module([*(imports if _reenters(stmt) else []), stmt], [])


def _with_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    """A module's first statement ``__doc__ = "..."`` is its docstring."""
    first = body[0]
    if isinstance(first, ast.Assign) and ast.unparse(first.targets[0]) == "__doc__":
        value = first.value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return [ast.Expr(value), *body[1:]]
    return body


def _reenters(stmt: ast.stmt) -> bool:
    return any(getattr(node, "reenters", False) for node in ast.walk(stmt))


def _lambda(function: Function, outer: Scope) -> ast.stmt:
    """A lambda; as a ``def`` when its body is no expression, as tools leave them."""
    try:
        if not unused_free_variables(function.code):  # which only a statement can declare
            return ast.Expr(lambda_expression(function, outer))
    except NoExpression:
        pass
    return function_definition(function, outer, LAMBDA, [])


class _OuterScope(Scope):
    """The scope around the code object that was asked for: knows nothing but its free variables."""

    def __init__(self, code: CodeType) -> None:
        super().__init__(code, None)
        self.names = set(code.co_freevars)


def _factory(stmt: ast.stmt, code: CodeType) -> ast.stmt:
    """``def`` around a closure: its parameters are the free variables."""
    args = ast.arguments([], [ast.arg(n, None) for n in code.co_freevars], None, [], [], None, [])
    if isinstance(stmt, ast.Expr):
        result: ast.stmt = ast.Return(stmt.value)
        body = [result]
    else:
        body = [stmt, ast.Return(ast.Name(stmt.name, ast.Load()))]  # type: ignore[attr-defined]
    node = ast.FunctionDef("make_closure", args, body, [], None, None, lineno=0)
    if hasattr(ast, "TypeVar"):
        node.type_params = []  # type: ignore[attr-defined]
    return node
