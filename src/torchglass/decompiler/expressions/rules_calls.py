"""Rules for calls, functions and classes."""

from __future__ import annotations

import ast
from types import CodeType
from typing import Any

from ...bytecode.canonical import VERSION
from ...bytecode.ins import Ins
from ..errors import DecompileError
from ..scope import COMPREHENSIONS
from .comprehension import build_comprehension, from_loops
from .definitions import generic_definition
from .machine import Machine, rule
from .trees import LOAD
from .values import Class, Function, Iterating, Marker, is_marker


@rule("CALL")
def call(m: Machine, ins: Ins) -> None:
    _call(m, *ins.arg)


@rule("CALL_KW_DYNAMIC")
def call_kw(m: Machine, ins: Ins) -> None:
    """A call (3.13) whose keyword names were not pushed last: other code than a compiler's."""
    names = m.expr()
    if not isinstance(names, ast.Tuple) or not all(_identifier(name) for name in names.elts):
        raise DecompileError("keyword names that are no constant")
    _call(m, ins.arg, tuple(name.value for name in names.elts))  # type: ignore[attr-defined]


def _call(m: Machine, count: int, names: tuple[str, ...] | None) -> None:
    args = m.exprs(count)
    second, first = m.pop(), m.pop()
    if is_marker(first, "null"):
        function = m.as_expr(second)
    elif is_marker(second, "null"):
        function = m.as_expr(first)
    else:
        function = m.as_expr(first)
        args = [m.as_expr(second)] + args
    _finish_call(m, function, args, names)


@rule("CALL_FUNCTION")
def call_function(m: Machine, ins: Ins) -> None:
    count, names = ins.arg
    args = m.exprs(count)
    _finish_call(m, m.expr(), args, names)


def _finish_call(m: Machine, function: Any, args: list[Any], names: Any) -> None:
    keywords = []
    if names:
        keywords = [ast.keyword(name, value) for name, value in zip(names, args[-len(names) :])]
        args = args[: -len(names)]
    m.push(make_call(m, function, args, keywords))


def make_call(m: Machine, function: Any, args: list[Any], keywords: list[ast.keyword]) -> Any:
    if isinstance(function, Function):
        name = function.code.co_name
        if name in COMPREHENSIONS and len(args) == 1:
            return build_comprehension(function, args[0], m.scope)
        if name.startswith("<generic parameters of"):
            return generic_definition(function, args, m.scope)
    if getattr(function, "special", False) and function.id == "__build_class__":
        if len(args) < 2 or not isinstance(args[0], Function) or not isinstance(args[1], ast.Constant):
            raise DecompileError("a class statement of unknown shape")
        return Class(args[0], str(args[1].value), args[2:], keywords)
    if isinstance(function, ast.AST) and any(isinstance(a, Iterating) for a in args):
        raise DecompileError("an iterator passed to a call")
    return ast.Call(function, args, keywords)


@rule("CALL_EX")
def call_ex(m: Machine, ins: Ins) -> None:
    keywords: list[ast.keyword] = []
    if ins.arg:
        keywords = _keywords(m.expr())
    args = _arguments(m.expr())
    function = m.pop()
    if is_marker(function, "null"):
        function = m.pop()
    elif m.stack and is_marker(m.stack[-1], "null"):
        m.pop()
    m.push(make_call(m, m.as_expr(function), args, keywords))


def _arguments(value: Any) -> list[Any]:
    if isinstance(value, ast.Tuple) and not (hasattr(value, "constant_value") and value.elts):
        return list(value.elts)
    return [ast.Starred(value, LOAD)]


def _keywords(value: Any) -> list[ast.keyword]:
    if not isinstance(value, ast.Dict):
        return [ast.keyword(None, value)]
    out: list[ast.keyword] = []
    named = False  # whether the last group was of plain keywords: two of those in a row would have been one
    for key, item in zip(value.keys, value.values):
        if key is None:
            entries = isinstance(item, ast.Dict) and bool(item.keys) and all(_identifier(k) for k in item.keys)
            if isinstance(item, ast.Dict) and entries and not named and out:
                out.extend(ast.keyword(k.value, v) for k, v in zip(item.keys, item.values))  # type: ignore[union-attr]
                named = True
            else:
                out.append(ast.keyword(None, item))
                named = False
        elif _identifier(key):
            out.append(ast.keyword(key.value, item))  # type: ignore[attr-defined]
            named = True
        else:
            return [ast.keyword(None, value)]
    return out


def _identifier(key: Any) -> bool:
    return isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value.isidentifier()


@rule("MAKE_FUNCTION")
def make_function(m: Machine, ins: Ins) -> None:
    flags = ins.arg or 0
    if VERSION < (3, 11):
        m.pop()
    code = m.pop()
    if not isinstance(code, ast.Constant) or not isinstance(code.value, CodeType):
        raise DecompileError("MAKE_FUNCTION of something that is no code")
    function = Function(code.value)
    for flag in (8, 4, 2, 1):
        if flags & flag:
            set_attribute(m, function, flag, m.pop())
    m.push(function)


@rule("SET_FUNCTION_ATTRIBUTE")
def set_function_attribute(m: Machine, ins: Ins) -> None:
    function = m.pop()
    set_attribute(m, function, ins.arg, m.pop())
    m.push(function)


#: what MAKE_FUNCTION's flags stand for; 8 is the closure, which source says by itself
_ATTRIBUTES: dict[int, tuple[str, type]] = {
    1: ("defaults", ast.Tuple), 2: ("keyword defaults", ast.Dict), 4: ("annotations", ast.Tuple),
}  # fmt: skip


def set_attribute(m: Machine, function: Function, flag: int, value: Any) -> None:
    if m.scope.is_generic and isinstance(value, ast.Name):
        return  # defaults handed in from outside
    what, kind = _ATTRIBUTES.get(flag, ("", object))
    if not issubclass(type(value), kind):
        raise DecompileError(f"{what} of unknown shape")
    if flag == 1:
        function.defaults = list(value.elts)
    elif flag == 2:
        function.kwdefaults = {k.value: v for k, v in zip(value.keys, value.values)}
    elif flag == 4:
        function.annotations = {k.value: v for k, v in zip(value.elts[::2], value.elts[1::2])}


# -- inlined comprehensions (3.12) ----------------------------------------------------------------------------------
@rule("COMPREHENSION")
def comprehension(m: Machine, ins: Ins) -> None:
    iterator = m.pop()
    source = iterator.value if isinstance(iterator, Iterating) else m.as_expr(iterator)
    inner = Iterating(source, getattr(iterator, "asynchronous", False))
    m.push(from_loops(m.scope.attempt.decompile_loop(m.scope, ins.arg, [Marker("collector"), inner]), source))


@rule("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(m: Machine, ins: Ins) -> None:
    m.push(Marker("saved"))
