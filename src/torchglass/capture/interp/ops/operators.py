"""Unary, binary and comparison operators, truth tests, formatting."""

from __future__ import annotations

import operator
from typing import Any

from ...torch_api import deferred_asserts as checked
from ...values import symbolic_strings as texts
from ...values.constant import ConstantV
from .registry import BEFORE_313, SINCE_313, handler

# The order of CPython's NB_* numbers (Include/opcode.h), the same in 3.11 to 3.13.
BINARY = (
    operator.add, operator.and_, operator.floordiv, operator.lshift, operator.matmul, operator.mul, operator.mod,
    operator.or_, operator.pow, operator.rshift, operator.sub, operator.truediv, operator.xor,
)  # fmt: skip
INPLACE = (
    operator.iadd, operator.iand, operator.ifloordiv, operator.ilshift, operator.imatmul, operator.imul, operator.imod,
    operator.ior, operator.ipow, operator.irshift, operator.isub, operator.itruediv, operator.ixor,
)  # fmt: skip
COMPARE = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def binary_function(arg: int):
    """The ``operator`` function of a BINARY_OP argument."""
    return (BINARY + INPLACE)[arg]


@handler("BINARY_OP")
def binary_op(m, f, i):
    right, left = f.pop(), f.pop()
    f.push(m.binary(binary_function(i.arg), left, right))


@handler("COMPARE_OP")
def compare_op(m, f, i):
    right, left = f.pop(), f.pop()
    f.push(m.binary(COMPARE[i.argval], left, right))


@handler("IS_OP")
def is_op(m, f, i):
    right, left = f.pop(), f.pop()
    f.push(ConstantV(m.identical(left, right) ^ bool(i.arg)))


@handler("CONTAINS_OP")
def contains_op(m, f, i):
    container, item = f.pop(), f.pop()
    f.push(ConstantV(m.contains(container, item) ^ bool(i.arg)))


@handler("UNARY_NOT")
def unary_not(m, f, i):
    f.push(ConstantV(not m.truth(f.pop())))


@handler("UNARY_NEGATIVE")
def unary_negative(m, f, i):
    f.push(m.unary(operator.neg, f.pop()))


@handler("UNARY_INVERT")
def unary_invert(m, f, i):
    f.push(m.unary(operator.invert, f.pop()))


@handler("UNARY_POSITIVE", versions=((3, 11), (3, 12)))
def unary_positive(m, f, i):
    f.push(m.unary(operator.pos, f.pop()))


@handler("TO_BOOL", versions=SINCE_313)
def to_bool(m, f, i):
    f.push(ConstantV(checked.truth(m, f, f.pop())))


# --- f-strings --------------------------------------------------------------------------------------------------------
CONVERSIONS: dict[int, Any] = {1: str, 2: repr, 3: ascii}


@handler("FORMAT_VALUE", versions=BEFORE_313)
def format_value(m, f, i):
    spec = f.pop() if i.arg & 4 else ConstantV("")
    value = f.pop()
    f.push(m.format(value, CONVERSIONS.get(i.arg & 3), spec))


@handler("CONVERT_VALUE", versions=SINCE_313)
def convert_value(m, f, i):
    f.push(m.format(f.pop(), CONVERSIONS[i.arg], ConstantV("")))


@handler("FORMAT_SIMPLE", versions=SINCE_313)
def format_simple(m, f, i):
    f.push(m.format(f.pop(), None, ConstantV("")))


@handler("FORMAT_WITH_SPEC", versions=SINCE_313)
def format_with_spec(m, f, i):
    spec, value = f.pop(), f.pop()
    f.push(m.format(value, None, spec))


@handler("BUILD_STRING")
def build_string(m, f, i):
    f.push(texts.joined(m, f.pop_n(i.arg)))
