"""Constants of a code object as expressions that compile to the same constant."""

from __future__ import annotations

import ast
import math
from typing import Any

from ..errors import DecompileError
from .trees import LOAD


def constant(value: Any) -> Any:
    """An expression for ``value``: ``-1`` becomes ``UnaryOp``, a tuple of constants stays one constant.

    A code object becomes a Constant that MAKE_FUNCTION unpacks again.
    """
    kind = type(value)
    if kind in (int, float):
        if value < 0 or (kind is float and math.copysign(1.0, value) < 0):
            return ast.UnaryOp(ast.USub(), ast.Constant(-value))
        if value != value:
            inf = ast.Constant(math.inf)
            return ast.BinOp(inf, ast.Sub(), ast.Constant(math.inf))
        return ast.Constant(value)
    if kind is complex:
        return _complex(value)
    if kind is tuple:
        node = ast.Tuple([constant(v) for v in value], LOAD)
        node.constant_value = value  # type: ignore[attr-defined]
        return node
    return ast.Constant(value)


def _complex(value: complex) -> Any:
    if value.real == 0 and math.copysign(1.0, value.real) > 0 and math.copysign(1.0, value.imag) > 0:
        return ast.Constant(value)
    imaginary = ast.Constant(complex(0, abs(value.imag)))
    op: ast.operator = ast.Sub() if math.copysign(1.0, value.imag) < 0 else ast.Add()
    return ast.BinOp(constant(value.real), op, imaginary)


def starred_elements(value: Any, first: bool) -> list[Any]:
    """The elements ``value`` contributes to a display: those of a constant tuple or frozenset, else ``*value``."""
    if isinstance(value, ast.Constant) and isinstance(value.value, frozenset):
        return [constant(v) for v in sorted(value.value, key=repr)]
    if first and isinstance(value, ast.Tuple) and hasattr(value, "constant_value"):
        return list(value.elts)
    return [ast.Starred(value, LOAD)]


def constant_tuple(value: Any) -> tuple[Any, ...]:
    """The values of an expression that was a constant tuple."""
    if isinstance(value, ast.Constant) and isinstance(value.value, tuple):
        return value.value
    if hasattr(value, "constant_value"):
        return value.constant_value
    raise DecompileError("keys that are no constant tuple")
