"""``match`` statements: the tests of one subject, as ``expressions/cases.py`` found them, become what they were."""

from __future__ import annotations

import ast
from typing import Any

from ..expressions.conditions import case_test
from ..expressions.trees import some, terminates
from ..expressions.values import is_marker


def match_statement(stmts: list[ast.stmt]) -> tuple[Any, list[ast.stmt]]:
    """The ``match`` that the tests of one subject at the start of ``stmts`` are, and the statements after it."""
    first = stmts[0]
    subject = first.value if isinstance(first, ast.Assign) else case_test(first.test).subject  # type: ignore[attr-defined]
    cases: list[ast.match_case] = []
    after: list[ast.stmt] = []
    rest = stmts[:1] if isinstance(first, ast.If) else stmts
    tail = stmts[1:] if isinstance(first, ast.If) else []
    while True:
        rest = _captured(rest, subject, cases)
        current = rest[0] if rest else None
        if not isinstance(current, ast.If) or case_test(current.test) is None:
            break
        leaving = all(terminates(c.body) for c in cases)
        if case_test(current.test).subject is not subject or (len(rest) > 1 and not leaving):
            break
        after = rest[1:] + after
        values = current.test.values[1:] if isinstance(current.test, ast.BoolOp) else []
        guard = values[0] if len(values) == 1 else ast.BoolOp(ast.And(), values) if values else None
        cases.append(ast.match_case(case_test(current.test).pattern, guard, some(current.body)))
        rest = current.orelse
    match = ast.Match(subject.expr, cases)  # type: ignore[union-attr]
    if rest and all(terminates(c.body) for c in cases):
        after = rest + after
    elif rest:
        cases.append(ast.match_case(ast.MatchAs(None, None), None, rest))
    return match, after + tail


def starts_match(stmt: ast.stmt) -> bool:
    """Whether ``stmt`` is the first test of a match statement."""
    if isinstance(stmt, ast.If):
        return case_test(stmt.test) is not None
    return isinstance(stmt, ast.Assign) and is_marker(stmt.value, "subject")


def _captured(rest: list[ast.stmt], subject: Any, cases: list[ast.match_case]) -> list[ast.stmt]:
    """``case name:`` tests nothing: it shows as an assignment of the subject (and an ``if`` for its guard)."""
    while rest:
        first = rest[0]
        if not (isinstance(first, ast.Assign) and first.value is subject and isinstance(first.targets[0], ast.Name)):
            break
        pattern = ast.MatchAs(None, first.targets[0].id)
        guarded = rest[1] if len(rest) > 1 else None
        if isinstance(guarded, ast.If) and case_test(guarded.test) is None and (guarded.orelse or len(rest) > 2):
            if (guarded.orelse and len(rest) > 2) or not (guarded.orelse or terminates(guarded.body)):
                cases.append(ast.match_case(pattern, None, rest[1:]))
                return []
            cases.append(ast.match_case(pattern, guarded.test, guarded.body))
            rest = guarded.orelse or rest[2:]
            continue
        cases.append(ast.match_case(pattern, None, some(rest[1:])))
        return []
    return rest
