"""What operations of the loop IR cost beside others."""

from __future__ import annotations

CHEAP = frozenset({"add", "sub", "mul", "neg", "abs", "cast", "where", "minimum", "maximum"}) | {
    "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "xor",
}  # fmt: skip
"""Operations that take less time than reading a number from memory."""

HEAVY = frozenset(
    {"exp", "log", "tanh", "erf", "ndtr", "sigmoid", "expm1", "log1p", "sin", "cos", "pow", "exp2", "lgamma", "atan"}
)
"""Operations that take as long as many others: series, and divisions in them."""
