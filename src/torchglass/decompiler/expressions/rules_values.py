"""Rules for operators, displays and f-strings: instructions that make one value of others."""

from __future__ import annotations

import ast
import re
from typing import Any

from ...bytecode.expressions import EXPRESSIONS, part
from ...bytecode.ins import Ins
from ...bytecode.operators import BINARY, UNARY
from ..errors import DecompileError
from .constants import constant, constant_tuple, starred_elements
from .machine import Machine, rule
from .trees import LOAD
from .values import Collected, Inplace, Marker, is_marker


# -- operators ------------------------------------------------------------------------------------------------------
@rule("BINARY")
def binary(m: Machine, ins: Ins) -> None:
    left, right = m.exprs(2)
    if ins.arg[-1] == "=":
        m.push(Inplace(left, BINARY[ins.arg[:-1]].tree(), right))
        return
    if ins.arg == "%" and would_become_fstring(left, right):
        left = ast.JoinedStr([left])
    m.push(EXPRESSIONS["BINARY"](ins.arg, lambda _: [left, right]))


_PLAIN_FORMAT = re.compile(r"%(?:%|[-+ #0]*\d{0,2}(?:\.\d{0,2})?([sra]))")


def would_become_fstring(left: Any, right: Any) -> bool:
    """The compiler turns ``"%s" % (a,)`` into an f-string; where it did not, the left side was no plain constant."""
    if not isinstance(left, ast.Constant) or not isinstance(left.value, str) or not isinstance(right, ast.Tuple):
        return False
    if any(isinstance(e, ast.Starred) for e in right.elts) or all(isinstance(e, ast.Constant) for e in right.elts):
        return False
    rest = _PLAIN_FORMAT.sub("", left.value)
    return "%" not in rest and sum(bool(m.group(1)) for m in _PLAIN_FORMAT.finditer(left.value)) == len(right.elts)


@rule("BUILD_SLICE")
def build_slice(m: Machine, ins: Ins) -> None:
    parts = m.exprs(ins.arg)
    piece = part(parts[0], parts[1])
    if ins.arg == 3:
        piece.step = parts[2]
    m.push(piece)


@rule(*UNARY, "LOAD_ATTR", "BINARY_SUBSCR", "BINARY_SLICE", "BUILD_TUPLE")
def expression(m: Machine, ins: Ins) -> None:
    m.push(EXPRESSIONS[ins.op](ins.arg, m.exprs))


@rule("COMPARE")
def compare(m: Machine, ins: Ins) -> None:
    left, right = m.exprs(2)
    if isinstance(right, ast.Constant) and isinstance(right.value, frozenset):
        right = ast.Set([constant(v) for v in sorted(right.value, key=repr)])
    m.push(EXPRESSIONS["COMPARE"](ins.arg, lambda _: [left, right]))


# -- containers -----------------------------------------------------------------------------------------------------
@rule("BUILD_LIST", "BUILD_SET", "BUILD_MAP")
def build_display(m: Machine, ins: Ins) -> None:
    scope = m.scope
    if scope.is_comprehension and scope.collector is None and not ins.arg and not scope.is_generator_expression:
        # in a comprehension's function the first empty display is what the elements go into
        scope.collector = Marker("collector")
        m.push(scope.collector)
    else:
        m.push(EXPRESSIONS[ins.op](ins.arg, m.exprs))


@rule("BUILD_CONST_KEY_MAP")
def build_const_key_map(m: Machine, ins: Ins) -> None:
    keys = m.pop()
    values = m.exprs(ins.arg)
    m.push(ast.Dict([constant(k) for k in constant_tuple(keys)], values))


def _display(m: Machine, ins: Ins, *kinds: type) -> Any:
    """What an instruction adds to, ``arg`` places below the value just popped; in a comprehension, its collector."""
    m.need(ins.arg)
    into = m.stack[-ins.arg]
    if not isinstance(into, kinds) and not is_marker(into, "collector"):
        raise DecompileError(f"{ins.op} into something that is no display")
    return into


@rule("LIST_EXTEND", "SET_UPDATE")
def list_extend(m: Machine, ins: Ins) -> None:
    value, into = m.expr(), _display(m, ins, ast.List, ast.Set)
    into.elts.extend(starred_elements(value, not into.elts))


@rule("LIST_TO_TUPLE")
def list_to_tuple(m: Machine, ins: Ins) -> None:
    value = m.expr()
    if not isinstance(value, ast.List):
        raise DecompileError("LIST_TO_TUPLE of something that is no display")
    m.push(ast.Tuple(value.elts, LOAD))


@rule("DICT_UPDATE", "DICT_MERGE")
def dict_update(m: Machine, ins: Ins) -> None:
    value, into = m.expr(), _display(m, ins, ast.Dict)
    more = ins.op == "DICT_UPDATE" and _continues_display(into, value)
    into.keys.extend(value.keys if more else [None])
    into.values.extend(value.values if more else [value])
    into.group = len(value.keys) if more else 0


def _continues_display(into: ast.Dict, value: Any) -> bool:
    """Whether ``value`` is one more run of entries: after ``**x`` or a full run; a short one would have taken them."""
    if not isinstance(value, ast.Dict) or not value.keys or None in value.keys or not into.keys:
        return False
    run = getattr(into, "group", len(into.keys))
    return run == 0 or run >= 15


@rule("LIST_APPEND", "SET_ADD")
def list_append(m: Machine, ins: Ins) -> None:
    value, into = m.expr(), _display(m, ins, ast.List, ast.Set)
    if isinstance(into, Marker):
        m.emit(Collected(ins.op, value))
    else:
        into.elts.append(value)


@rule("MAP_ADD")
def map_add(m: Machine, ins: Ins) -> None:
    value, key, into = m.expr(), m.expr(), _display(m, ins, ast.Dict)
    if isinstance(into, Marker):
        m.emit(Collected(ins.op, value, key))
    else:
        into.keys.append(key)
        into.values.append(value)


# -- f-strings ------------------------------------------------------------------------------------------------------
@rule("CONVERT_VALUE")
def convert_value(m: Machine, ins: Ins) -> None:
    piece = ast.FormattedValue(m.expr(), ins.arg, None)
    piece.pending = True  # type: ignore[attr-defined]
    m.push(piece)


@rule("FORMAT_VALUE")
def format_value(m: Machine, ins: Ins) -> None:
    conversion, has_spec = ins.arg
    spec = m.expr() if has_spec else None
    value = m.expr()
    if getattr(value, "pending", False):
        conversion, value = value.conversion, value.value
    if spec is not None and not isinstance(spec, ast.JoinedStr):
        if (isinstance(spec, ast.Constant) and isinstance(spec.value, str)) or isinstance(spec, ast.FormattedValue):
            spec = ast.JoinedStr([spec])
        else:
            raise DecompileError("a format specification that is no string")
    piece = ast.FormattedValue(value, conversion, spec)
    m.push(ast.JoinedStr([piece]))


@rule("BUILD_STRING")
def build_string(m: Machine, ins: Ins) -> None:
    pieces: list[Any] = []
    for value in m.exprs(ins.arg):
        if isinstance(value, ast.JoinedStr):
            pieces.extend(value.values)
        else:  # a piece that was restored is a string already
            whole = isinstance(value, (ast.Constant, ast.FormattedValue))
            pieces.append(value if whole else ast.FormattedValue(value, -1, None))
    m.push(ast.JoinedStr(pieces))
