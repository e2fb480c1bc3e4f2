"""Nested loops that collect, turned into a comprehension.

Before: ``for x in xs: if x: <collect x + 1>``.  After: ``[x + 1 for x in xs if x]``.
"""

from __future__ import annotations

import ast
from inspect import CO_COROUTINE
from typing import Any

from ..errors import DecompileError
from ..scope import Scope
from .values import Collected, Function, Iterating


def build_comprehension(function: Function, iterated: Any, parent: Scope) -> Any:
    """The comprehension that calling ``function`` (its code is ``<listcomp>`` or the like) on ``iterated`` was."""
    stmts = parent.nested(function.code).body()
    node = from_loops(stmts, iterated.value if isinstance(iterated, Iterating) else iterated)
    node.awaited = bool(function.code.co_flags & CO_COROUTINE)
    return node


def from_loops(stmts: list[ast.stmt], iterated: Any) -> Any:
    """``iterated`` replaces the iterable of the outermost loop."""
    while stmts and isinstance(stmts[-1], ast.Return):
        stmts = stmts[:-1]
    generators: list[ast.comprehension] = []
    current = stmts
    while True:
        if len(current) != 1:
            raise DecompileError("a comprehension with more than one statement")
        stmt = current[0]
        if isinstance(stmt, (ast.For, ast.AsyncFor)):
            if stmt.orelse:
                raise DecompileError("a comprehension's loop with an else clause")
            source = iterated if not generators else stmt.iter
            generators.append(ast.comprehension(stmt.target, source, [], int(isinstance(stmt, ast.AsyncFor))))
            current = stmt.body
        elif isinstance(stmt, ast.If) and generators:
            if not stmt.orelse:
                generators[-1].ifs.append(stmt.test)
                current = stmt.body
            elif len(stmt.body) == 1 and isinstance(stmt.body[0], ast.Pass):
                generators[-1].ifs.append(ast.UnaryOp(ast.Not(), stmt.test))
                current = stmt.orelse
            else:
                raise DecompileError("a comprehension's condition with an else clause")
        elif isinstance(stmt, Collected) and generators:
            return _finish(stmt, generators)
        else:
            raise DecompileError("a comprehension of unknown shape")


def _finish(leaf: Collected, generators: list[ast.comprehension]) -> Any:
    if leaf.kind == "MAP_ADD":
        return ast.DictComp(leaf.key, leaf.value, generators)
    kind: Any = {"LIST_APPEND": ast.ListComp, "SET_ADD": ast.SetComp, "YIELD": ast.GeneratorExp}[leaf.kind]
    return kind(leaf.value, generators)
