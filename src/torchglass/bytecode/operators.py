"""What instructions do as data: operators by their text, and how the stack is shuffled.  Imports no torch.

Keyed as in the dialect of ``canonical.py``: ``BINARY`` carries ``+`` or ``+=``, ``COMPARE`` carries ``is not``.

    >>> ast.unparse(ast.BinOp(ast.Name("a"), BINARY["//"](), ast.Name("b")))
    'a // b'
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

BINARY: dict[str, type[ast.operator]] = {
    "+": ast.Add, "-": ast.Sub, "*": ast.Mult, "/": ast.Div, "//": ast.FloorDiv, "%": ast.Mod, "**": ast.Pow,
    "@": ast.MatMult, "<<": ast.LShift, ">>": ast.RShift, "&": ast.BitAnd, "|": ast.BitOr, "^": ast.BitXor,
}  # fmt: skip
COMPARE: dict[str, type[ast.cmpop]] = {
    "<": ast.Lt, "<=": ast.LtE, "==": ast.Eq, "!=": ast.NotEq, ">": ast.Gt, ">=": ast.GtE,
    "is": ast.Is, "is not": ast.IsNot, "in": ast.In, "not in": ast.NotIn,
}  # fmt: skip
UNARY: dict[str, type[ast.unaryop]] = {
    "UNARY_NOT": ast.Not, "UNARY_NEGATIVE": ast.USub, "UNARY_POSITIVE": ast.UAdd, "UNARY_INVERT": ast.Invert,
}  # fmt: skip


def part(lower: Any, upper: Any) -> ast.Slice:
    """``lower:upper``; a bound that is None is left out."""
    ends = [None if isinstance(end, ast.Constant) and end.value is None else end for end in (lower, upper)]
    return ast.Slice(*ends)


#: what LOAD_ATTR, STORE_SUBSCR, DELETE_SUBSCR and their kind name, by the end of the instruction's name: how many
#: operands are on the stack, and the tree of the argument, the context (load, store, delete) and the operands
PLACES: dict[str, tuple[int, Callable[..., ast.expr]]] = {
    "ATTR": (1, lambda name, context, owner: ast.Attribute(owner, name, context)),
    "SUBSCR": (2, lambda _, context, owner, index: ast.Subscript(owner, index, context)),
    "SLICE": (3, lambda _, context, owner, lower, upper: ast.Subscript(owner, part(lower, upper), context)),
}


def _copy(stack: list[Any], n: int) -> None:
    stack.append(stack[-n])


def _copy_two(stack: list[Any], n: int) -> None:
    stack.extend(stack[-2:])


def _swap(stack: list[Any], n: int) -> None:
    stack[-1], stack[-n] = stack[-n], stack[-1]


def _rotate(stack: list[Any], n: int) -> None:
    stack.insert(len(stack) - n, stack.pop())


#: what instructions that only move values do to a stack (a list, top last), given their argument
SHUFFLES: dict[str, Callable[[list[Any], int], None]] = {
    "COPY": _copy, "DUP_TOP_TWO": _copy_two, "SWAP": _swap, "ROT": _rotate,
}  # fmt: skip


def unpacked(op: str, arg: int) -> tuple[int, int | None]:
    """``(how many targets, which of them has the star)`` of UNPACK_SEQUENCE and UNPACK_EX."""
    if op == "UNPACK_SEQUENCE":
        return arg, None
    before, after = arg & 255, arg >> 8
    return before + 1 + after, before
