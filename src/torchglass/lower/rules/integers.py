"""Integer division, powers and shifts with eager's meaning where C's is undefined or another.

C traps at a division by zero and at the smallest number divided by -1; both are kept from the division. A zero leaves
the error that eager raises, as an index out of range does (see ``gathering``).
"""

from __future__ import annotations

from ..table import NotLowered
from ..values import Number, V, bits, is_float, where
from .gathering import ZERO_DIVISION, bounded

LONGEST_POWER = 64
"""Exponents that are written out, at most ten multiplications. Past it every even number is 0 in 64 bits."""


def quotient(x: V, y: V, op: str) -> V:
    """``x op y`` for one of div (towards zero), floordiv, mod, fmod."""
    if is_float(x.dtype):
        return x.do(op, y)
    if x.dtype == "bool":
        raise NotLowered("division of truths")
    zero = y.do("eq", 0)
    nothing = bounded(zero, 1, ZERO_DIVISION).cast(y.dtype)  # 0, and the error where y is 0
    y = where(zero, 1, y) + nothing
    if x.dtype == "uint8":
        return x.do({"floordiv": "div", "mod": "fmod"}.get(op, op), y)
    minus = y.do("eq", -1)
    found = x.do(op, where(minus, 1, y))
    return where(minus, x.lift(0) - x if op in ("div", "floordiv") else 0, found)


def power(x: V, y: Number) -> V:
    """``x`` to a whole number that is not negative, by squaring; wraps as eager's does."""
    if not isinstance(y, int) or isinstance(y, bool) or not 0 <= y <= LONGEST_POWER or x.dtype == "bool":
        raise NotLowered("integer power")
    result, square = None, x
    while y:
        if y & 1:
            result = square if result is None else result * square
        y >>= 1
        square = square * square if y else square
    return x.lift(1) if result is None else result


def shift(x: V, by: V, left: bool) -> V:
    """``x << by`` or ``x >> by``; shifts that C leaves open give 0, or the sign to the right."""
    if is_float(x.dtype) or x.dtype == "bool":
        raise NotLowered("shifts of other numbers")
    width = bits(x.dtype)
    open_ = (by < 0).do("or", by >= width)
    safe = where(open_, 0, by)
    if left:
        return where(open_, 0, x.do("shl", safe))
    return where(open_, where(x < 0, x.lift(-1), 0) if not x.dtype.startswith("u") else 0, x.do("shr", safe))
