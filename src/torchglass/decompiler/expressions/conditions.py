"""Conditions as expressions: joined by ``and`` and ``or``, negated where that compiles alike."""

from __future__ import annotations

import ast
from typing import Any

from ...bytecode.canonical import VERSION
from .trees import is_none
from .values import CaseTest


def join_bool(op: ast.boolop, first: Any, second: Any) -> Any:
    """``first op second``, flattening operands of the same kind."""
    kind = type(op)
    values: list[Any] = []
    for part in (first, second):
        values.extend(part.values if isinstance(part, ast.BoolOp) and type(part.op) is kind else [part])
    return ast.BoolOp(op, values)


def negatable(test: Any) -> bool:
    """``not (a is b)`` and ``not (a in b)`` compile to another instruction; everything else only turns the jump."""
    if case_test(test) is not None:
        return False
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return True
    if type(test.ops[0]) in (ast.Is, ast.IsNot) and VERSION >= (3, 11):
        return is_none(test.comparators[0])
    return type(test.ops[0]) not in (ast.In, ast.NotIn, ast.Is, ast.IsNot)


_OPPOSITE = {ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}


def negate(test: Any) -> Any:
    """``not test``, without doubling a ``not``; ``is`` and ``in`` have negated forms that compile alike."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        op = test.ops[0]
        if type(op) in (ast.Is, ast.IsNot) and is_none(test.comparators[0]) and VERSION >= (3, 11):
            return ast.Compare(test.left, [_OPPOSITE[type(op)]()], test.comparators)
    return ast.UnaryOp(ast.Not(), test)


def case_test(test: Any) -> Any:
    """The CaseTest that ``test`` is or begins with, or None."""
    if isinstance(test, CaseTest):
        return test
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and isinstance(test.values[0], CaseTest):
        return test.values[0]
    return None
