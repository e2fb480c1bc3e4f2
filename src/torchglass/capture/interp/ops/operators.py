"""Unary, binary and comparison operators, truth tests, formatting."""

from __future__ import annotations

from typing import Any

from ....bytecode.operators import COMPARE, CONVERSIONS, NUMBERED, UNARY
from ...errors import Unsupported
from ...protocol import Machine, Value
from ...torch_api import deferred_asserts as checked
from ...values import symbolic_strings as texts
from ...values.constant import ConstantV
from ...values.instance import InstanceV
from ...values.sizes import ComparisonV
from ...values.tensor import TensorV
from .registry import BEFORE_312, BEFORE_313, SINCE_313, handler


@handler("BINARY_OP")
def binary_op(m, f, i):
    right, left = f.pop(), f.pop()
    f.push(m.binary(NUMBERED[i.arg][1], left, right))


@handler("COMPARE_OP")
def compare_op(m, f, i):
    right, left = f.pop(), f.pop()
    f.push(m.binary(COMPARE[i.argval].function, left, right))


@handler("IS_OP")
def is_op(m, f, i):
    right, left = f.pop(), f.pop()
    f.push(ConstantV(m.identical(left, right) ^ bool(i.arg)))


@handler("CONTAINS_OP")
def contains_op(m, f, i):
    container, item = f.pop(), f.pop()
    f.push(ConstantV(container.contains(m, m.settled_key(item)) ^ bool(i.arg)))


@handler("UNARY_NOT")
def unary_not(m, f, i):
    f.push(ConstantV(not m.truth(f.pop())))


@handler("UNARY_POSITIVE", versions=BEFORE_312)
@handler("UNARY_NEGATIVE", "UNARY_INVERT")
def unary(m, f, i):
    f.push(m.unary(UNARY[i.opname].function, f.pop()))


@handler("TO_BOOL", versions=SINCE_313)
def to_bool(m, f, i):
    value = f.pop()
    is_bool = isinstance(value, ComparisonV)  # the jump asks it
    f.push(value if is_bool else ConstantV(checked.truth(m, f, value)))


# --- f-strings --------------------------------------------------------------------------------------------------------
_CONVERSIONS = (None, *CONVERSIONS.values())


def _formatted(m: Machine, value: Value, conversion: Any, spec: Value) -> Value:
    """One replacement field of an f-string."""
    text = m.call(m.wrap(conversion), [value], {}) if conversion else value
    if isinstance(text, TensorV):
        raise Unsupported("formatting a tensor", "print tensors outside the compiled function")
    if isinstance(text, InstanceV):
        given = text.special(m, "__format__", spec)
        if given is not None:
            return given
    changing = texts.formatted(m, text, spec)
    if changing is not None:
        return changing
    if isinstance(text, ConstantV) and spec.is_constant():
        return ConstantV(m.real(format, text.value, spec.as_constant()))
    if spec.is_constant() and spec.as_constant() == "":
        return m.call(m.wrap(str), [text], {})
    raise Unsupported(f"formatting {value.a()}")


@handler("FORMAT_VALUE", versions=BEFORE_313)
def format_value(m, f, i):
    spec = f.pop() if i.arg & 4 else ConstantV("")
    value = f.pop()
    f.push(_formatted(m, value, _CONVERSIONS[i.arg & 3], spec))


@handler("CONVERT_VALUE", versions=SINCE_313)
def convert_value(m, f, i):
    f.push(_formatted(m, f.pop(), _CONVERSIONS[i.arg], ConstantV("")))


@handler("FORMAT_SIMPLE", versions=SINCE_313)
def format_simple(m, f, i):
    f.push(_formatted(m, f.pop(), None, ConstantV("")))


@handler("FORMAT_WITH_SPEC", versions=SINCE_313)
def format_with_spec(m, f, i):
    spec, value = f.pop(), f.pop()
    f.push(_formatted(m, value, None, spec))


@handler("BUILD_STRING")
def build_string(m, f, i):
    f.push(texts.joined(m, f.pop_n(i.arg)))
