"""The last look at the finished tree: nothing but real Python nodes, and no expression written twice.

A node of ``values.py`` left in the tree would be printed as nothing, and an expression object that occurs twice would
be evaluated twice; both are errors here rather than wrong source.
"""

from __future__ import annotations

import ast
from typing import Any

from ..errors import DecompileError
from ..expressions import values

_OURS = tuple(v for v in vars(values).values() if isinstance(v, type) and v.__module__ == values.__name__)
_SHAREABLE = (ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)


def check_tree(tree: ast.AST) -> None:
    seen: set[int] = set()
    work: list[Any] = [tree]
    while work:
        node = work.pop()
        kind = type(node)
        if kind is list:
            work.extend(node)
            continue
        if not isinstance(node, ast.AST):
            if isinstance(node, _OURS):
                raise DecompileError(f"{kind.__name__} left in the source")
            continue
        if isinstance(node, _SHAREABLE):
            continue
        if isinstance(node, _OURS):
            raise DecompileError(f"{kind.__name__} left in the source")
        if id(node) in seen:
            if not (kind is ast.Tuple and hasattr(node, "constant_value")):
                raise DecompileError(f"one {kind.__name__} written in two places")
            continue
        seen.add(id(node))
        for field in kind._fields:
            value = getattr(node, field, None)
            if value is not None:
                work.append(value)
