"""Small rewrites of finished statements: ``assert``, leftovers of the compiler."""

from __future__ import annotations

import ast
from typing import Any

from ..expressions.conditions import negate
from ..expressions.trees import some
from .match import match_statement, starts_match


def finish(stmts: list[ast.stmt]) -> list[ast.stmt]:
    """Rewrite ``stmts`` and everything inside them (not nested functions, which are finished already)."""
    out: list[ast.stmt] = []
    for n, stmt in enumerate(stmts):
        if starts_match(stmt):
            match, after = match_statement(stmts[n:])
            for case in match.cases:
                case.body = finish(case.body)
            return [*out, match, *finish(after)]
        for field in ("body", "orelse", "finalbody"):
            inner = getattr(stmt, field, None)
            if isinstance(inner, list) and not isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                setattr(stmt, field, finish(inner))
        for handler in getattr(stmt, "handlers", ()):
            handler.body = finish(handler.body)
        out.extend(_assertion(stmt))
    return out


def _assertion(stmt: ast.stmt) -> list[ast.stmt]:
    if isinstance(stmt, ast.Raise):
        message = _assertion_message(stmt)
        return [stmt] if message is None else [ast.Assert(ast.Constant(False), message[0])]
    if not isinstance(stmt, ast.If) or not stmt.body:
        return [stmt]
    first = stmt.body[0]
    if len(stmt.body) == 1 and isinstance(first, ast.Assert) and _is_false(first.test):
        return [ast.Assert(negate(stmt.test), first.msg), *stmt.orelse]
    last = stmt.orelse[0] if len(stmt.orelse) == 1 else None
    if isinstance(last, ast.Assert) and _is_false(last.test):
        body = [] if isinstance(first, ast.Pass) else stmt.body
        return [ast.Assert(stmt.test, last.msg), *body]
    return [stmt]


def _is_false(test: Any) -> bool:
    return isinstance(test, ast.Constant) and test.value is False


def _assertion_message(stmt: ast.Raise) -> tuple[Any] | None:
    exc = stmt.exc
    if stmt.cause is not None:
        return None
    if getattr(exc, "special", False):
        return (None,)
    if isinstance(exc, ast.Call) and getattr(exc.func, "special", False) and len(exc.args) == 1:
        return (exc.args[0],)
    return None


def drop_plain_return(stmts: list[ast.stmt]) -> list[ast.stmt]:
    """Leave out ``return`` where the end of the function follows anyway."""
    while stmts:
        last = stmts[-1]
        if isinstance(last, ast.Return) and last.value is None:
            stmts.pop()
            continue
        if isinstance(last, ast.If):
            last.body = some(drop_plain_return(last.body))
            last.orelse = drop_plain_return(last.orelse)
        elif isinstance(last, (ast.With, ast.AsyncWith)):
            last.body = some(drop_plain_return(last.body))
        elif isinstance(last, ast.Try) and not last.finalbody:
            if not last.orelse:
                last.body = some(drop_plain_return(last.body))
            last.orelse = drop_plain_return(last.orelse)
            for handler in last.handlers:
                handler.body = some(drop_plain_return(handler.body))
        break
    return stmts
