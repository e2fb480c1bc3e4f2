"""What instructions are as expressions: trees of their operands' trees.  Imports no torch.

The decompiler builds source of them, capture the line of an entry that does what broke the graph:

    >>> ast.unparse(EXPRESSIONS["BINARY"]("**", lambda count: [ast.parse("-2", mode="eval").body, ast.Name("n")]))
    '(-2) ** n'

Keyed as in the dialect of ``canonical.py``: ``BINARY`` carries ``+``, ``COMPARE`` carries ``is not``.  ``take(count)``
gives the operands, popped from whatever stack, the one on top last.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from .operators import BINARY, COMPARE, UNARY

Take = Callable[[int], list[Any]]

LOAD = ast.Load()
_TESTS: dict[str, Callable[[], Any]] = {
    **{symbol: row.tree for symbol, row in COMPARE.items()},
    "is": ast.Is, "is not": ast.IsNot, "in": ast.In, "not in": ast.NotIn,
}  # fmt: skip


def part(lower: Any, upper: Any) -> ast.Slice:
    """``lower:upper``; a bound that is None is left out."""
    ends = [None if isinstance(end, ast.Constant) and end.value is None else end for end in (lower, upper)]
    return ast.Slice(*ends)


def place(op: str, arg: Any, context: ast.expr_context, take: Take) -> Any:
    """The attribute, element or part that LOAD_ATTR, STORE_SUBSCR, DELETE_SUBSCR and their kind name."""
    if op.endswith("_ATTR"):
        return ast.Attribute(take(1)[0], arg, context)
    owner, *index = take(2 if op.endswith("_SUBSCR") else 3)
    return ast.Subscript(owner, part(*index) if len(index) > 1 else index[0], context)


def _binary(symbol: str, take: Take) -> Any:
    left, right = take(2)
    return ast.BinOp(left, BINARY[symbol].tree(), right)


def _compare(symbol: str, take: Take) -> Any:
    left, right = take(2)
    return ast.Compare(left, [_TESTS[symbol]()], [right])


def _unary(op: str) -> Callable[[Any, Take], Any]:
    return lambda _, take: ast.UnaryOp(UNARY[op].tree(), *take(1))


def _loaded(op: str) -> Callable[[Any, Take], Any]:
    return lambda arg, take: place(op, arg, LOAD, take)


def _dict(count: int, take: Take) -> Any:
    parts = take(2 * count)
    return ast.Dict(parts[::2], parts[1::2])


EXPRESSIONS: dict[str, Callable[[Any, Take], Any]] = {
    "BINARY": _binary, "COMPARE": _compare, **{op: _unary(op) for op in UNARY},
    **{op: _loaded(op) for op in ("LOAD_ATTR", "BINARY_SUBSCR", "BINARY_SLICE")},
    "BUILD_TUPLE": lambda count, take: ast.Tuple(take(count), LOAD),
    "BUILD_LIST": lambda count, take: ast.List(take(count), LOAD),
    "BUILD_SET": lambda count, take: ast.Set(take(count)), "BUILD_MAP": _dict,
}  # fmt: skip
