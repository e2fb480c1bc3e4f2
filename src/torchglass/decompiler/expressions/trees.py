"""Makers of the syntax trees that are needed everywhere, and questions about them."""

from __future__ import annotations

import ast
from typing import Any

from ...bytecode.expressions import LOAD

STORE = ast.Store()
DEL = ast.Del()


def load(name: str) -> ast.Name:
    return ast.Name(name, LOAD)


def assign_to(name: str, value: Any) -> ast.Assign:
    return ast.Assign([ast.Name(name, STORE)], value, lineno=0)


def some(body: list[ast.stmt]) -> list[ast.stmt]:
    """``body``, or ``pass`` where there is nothing."""
    return body or [ast.Pass()]


def is_none(value: Any) -> bool:
    """Whether ``value`` is the expression ``None``."""
    return isinstance(value, ast.Constant) and value.value is None


def terminates(stmts: list[ast.stmt]) -> bool:
    """Whether the end of ``stmts`` is never reached."""
    if not stmts:
        return False
    last = stmts[-1]
    if isinstance(last, (ast.Return, ast.Raise, ast.Continue, ast.Break)):
        return True
    if isinstance(last, ast.If):
        return terminates(last.body) and terminates(last.orelse)
    return bool(getattr(last, "endless", False))
