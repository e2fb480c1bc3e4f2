"""Python's operators, a row each, and how instructions shuffle the stack.  Imports no torch.

>>> BINARY["|"].function(4, 1), BINARY["|"].reflected, COMPARE["<"].reflected, UNARY["UNARY_NOT"].template
(5, '__ror__', '__gt__', 'not {}')
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from itertools import starmap
from typing import Any, NamedTuple


class Operator(NamedTuple):
    """``left + right``, ``left < right`` or ``-value``.

    ``function`` is that of the module ``operator``, ``method`` what the operand, or the left one, is asked for, and
    ``reflected`` what the right one is; ``inplace`` and ``inplace_method`` are those of ``+=``, and ``opcode`` is the
    instruction's name (of a binary operator, Python 3.10's).
    """

    symbol: str
    tree: Callable[[], Any]
    function: Callable[..., Any]
    method: str
    opcode: str = ""
    reflected: str = ""
    inplace: Callable[..., Any] | None = None
    inplace_method: str = ""

    @property
    def template(self) -> str:
        """Its text, with a hole for each operand."""
        return f"{{}} {self.symbol} {{}}" if self.reflected else f"{self.symbol}{{}}"


def _binary(symbol: str, name: str, tree: type[ast.operator], opcode: str) -> Operator:
    bare = name.rstrip("_")
    inplace = getattr(operator, f"i{bare}")
    function = getattr(operator, name)
    return Operator(symbol, tree, function, f"__{bare}__", f"BINARY_{opcode}", f"__r{bare}__", inplace, f"__i{bare}__")


def _compare(symbol: str, name: str, tree: type[ast.cmpop], swapped: str) -> Operator:
    return Operator(symbol, tree, getattr(operator, name), f"__{name}__", reflected=f"__{swapped}__")


def _by_symbol(rows: Any) -> dict[str, Operator]:
    return {row.symbol: row for row in rows}


#: in the order of CPython's NB_* numbers (Include/opcode.h)
BINARY = _by_symbol(starmap(_binary, (
    ("+", "add", ast.Add, "ADD"), ("&", "and_", ast.BitAnd, "AND"), ("//", "floordiv", ast.FloorDiv, "FLOOR_DIVIDE"),
    ("<<", "lshift", ast.LShift, "LSHIFT"), ("@", "matmul", ast.MatMult, "MATRIX_MULTIPLY"),
    ("*", "mul", ast.Mult, "MULTIPLY"), ("%", "mod", ast.Mod, "MODULO"), ("|", "or_", ast.BitOr, "OR"),
    ("**", "pow", ast.Pow, "POWER"), (">>", "rshift", ast.RShift, "RSHIFT"), ("-", "sub", ast.Sub, "SUBTRACT"),
    ("/", "truediv", ast.Div, "TRUE_DIVIDE"), ("^", "xor", ast.BitXor, "XOR"),
)))  # fmt: skip
#: what BINARY_OP's argument stands for, by that number: the text (``+`` or ``+=``) and the function
NUMBERED = (*((row.symbol, row.function) for row in BINARY.values()),
            *((f"{row.symbol}=", row.inplace) for row in BINARY.values()))  # fmt: skip
COMPARE = _by_symbol(starmap(_compare, (
    ("<", "lt", ast.Lt, "gt"), ("<=", "le", ast.LtE, "ge"), ("==", "eq", ast.Eq, "eq"),
    ("!=", "ne", ast.NotEq, "ne"), (">", "gt", ast.Gt, "lt"), (">=", "ge", ast.GtE, "le"),
)))  # fmt: skip
UNARY = {row.opcode: row for row in (
    Operator("not ", ast.Not, operator.not_, "__bool__", "UNARY_NOT"),
    Operator("-", ast.USub, operator.neg, "__neg__", "UNARY_NEGATIVE"),
    Operator("+", ast.UAdd, operator.pos, "__pos__", "UNARY_POSITIVE"),
    Operator("~", ast.Invert, operator.invert, "__invert__", "UNARY_INVERT"),
)}  # fmt: skip
#: what ``!s``, ``!r`` and ``!a`` call, by their number in syntax trees, in the order of their numbers in instructions
CONVERSIONS: dict[int, Callable[[Any], str]] = {ord("s"): str, ord("r"): repr, ord("a"): ascii}
#: all of two operands by their function, the in-place one too
BY_FUNCTION: dict[Callable[..., Any], Operator] = {
    **{row.function: row for row in (*BINARY.values(), *COMPARE.values())},
    **{row.inplace: row for row in BINARY.values() if row.inplace is not None},
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
