"""Rules for loads, stores, operators, containers, formatting and stack shuffling."""

from __future__ import annotations

import ast
import re
from typing import Any

from ..bytecode.canonical import VERSION, Ins
from .assign import drop_import, drop_item, unpack
from .constants import constant, starred_elements
from .errors import DecompileError
from .machine import DEL, LOAD, STORE, Machine, rule
from .values import (
    Awaitable,
    Chained,
    Class,
    Collected,
    Function,
    Import,
    Imported,
    Inplace,
    Item,
    Iterating,
    Marker,
    UnpackItem,
)

_OPERATORS: dict[str, type[ast.operator]] = {
    "+": ast.Add, "-": ast.Sub, "*": ast.Mult, "/": ast.Div, "//": ast.FloorDiv, "%": ast.Mod, "**": ast.Pow, "@": ast.MatMult,
    "<<": ast.LShift, ">>": ast.RShift, "&": ast.BitAnd, "|": ast.BitOr, "^": ast.BitXor,
}  # fmt: skip
_COMPARISONS: dict[str, type[ast.cmpop]] = {
    "<": ast.Lt, "<=": ast.LtE, "==": ast.Eq, "!=": ast.NotEq, ">": ast.Gt, ">=": ast.GtE,
    "is": ast.Is, "is not": ast.IsNot, "in": ast.In, "not in": ast.NotIn,
}  # fmt: skip


# -- loads ----------------------------------------------------------------------------------------------------------
@rule("LOAD_CONST")
def load_const(m: Machine, ins: Ins) -> None:
    m.push(constant(ins.arg))


@rule("LOAD_FAST", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_CLOSURE")
def load_name(m: Machine, ins: Ins) -> None:
    m.push(ast.Name(m.scope.local(ins.arg), LOAD))


@rule("LOAD_GLOBAL")
def load_global(m: Machine, ins: Ins) -> None:
    m.scope.saw_global(ins.arg)
    m.push(ast.Name(ins.arg, LOAD))


@rule("LOAD_FROM_DICT_OR_DEREF", "LOAD_FROM_DICT_OR_GLOBALS")
def load_from_dict(m: Machine, ins: Ins) -> None:
    m.pop()
    m.push(ast.Name(ins.arg, LOAD))


@rule("LOAD_LOCALS")
def load_locals(m: Machine, ins: Ins) -> None:
    m.push(Marker("locals"))


@rule("LOAD_BUILD_CLASS", "LOAD_ASSERTION_ERROR")
def load_special(m: Machine, ins: Ins) -> None:
    name = ast.Name("__build_class__" if ins.op == "LOAD_BUILD_CLASS" else "AssertionError", LOAD)
    name.special = True  # type: ignore[attr-defined]
    m.push(name)


@rule("PUSH_NULL")
def push_null(m: Machine, ins: Ins) -> None:
    m.push(Marker("null"))


@rule("LOAD_ATTR")
def load_attr(m: Machine, ins: Ins) -> None:
    top = m.stack[-1] if m.stack else None
    m.push(ast.Attribute(m.expr(), ins.arg, LOAD)) if top is not None else m.pop()


@rule("LOAD_METHOD")
def load_method(m: Machine, ins: Ins) -> None:
    value = m.expr()
    m.push(Marker("null"))
    m.push(ast.Attribute(value, ins.arg, LOAD))


@rule("LOAD_SUPER_ATTR")
def load_super(m: Machine, ins: Ins) -> None:
    name, method, two = ins.arg
    this, owner, function = m.expr(), m.expr(), m.expr()
    call = ast.Call(function, [owner, this] if two else [], [])
    if method:
        m.push(Marker("null"))
    m.push(ast.Attribute(call, name, LOAD))


# -- stores and deletes ---------------------------------------------------------------------------------------------
@rule("STORE_FAST", "STORE_NAME")
def store_name(m: Machine, ins: Ins) -> None:
    if m.stack and isinstance(m.stack[-1], Marker) and m.stack[-1].kind == "saved":
        m.pop()  # an inlined comprehension gives a variable its old value back
        return
    m.store(ast.Name(m.scope.local(ins.arg), STORE))


@rule("STORE_DEREF")
def store_deref(m: Machine, ins: Ins) -> None:
    if ins.arg == "__classdict__" and m.stack and isinstance(m.stack[-1], Marker):
        m.pop()  # a class that has type parameters in it keeps its own namespace
        return
    m.scope.stored_free(ins.arg)
    m.store(ast.Name(ins.arg, STORE))


@rule("STORE_GLOBAL")
def store_global(m: Machine, ins: Ins) -> None:
    m.scope.globals.add(ins.arg)
    m.store(ast.Name(ins.arg, STORE))


@rule("STORE_ATTR")
def store_attr(m: Machine, ins: Ins) -> None:
    m.store(ast.Attribute(m.expr(), ins.arg, STORE))


@rule("STORE_SUBSCR")
def store_subscr(m: Machine, ins: Ins) -> None:
    index, owner = m.expr(), m.expr()
    if m.scope.is_class and m.scope.annotate(m, owner, index):
        return
    m.store(ast.Subscript(owner, _slice(index), STORE))


@rule("STORE_SLICE")
def store_slice(m: Machine, ins: Ins) -> None:
    upper, lower, owner = m.expr(), m.expr(), m.expr()
    m.store(ast.Subscript(owner, _bounds(lower, upper), STORE))


@rule("DELETE_FAST", "DELETE_NAME")
def delete_name(m: Machine, ins: Ins) -> None:
    m.emit(ast.Delete([ast.Name(m.scope.local(ins.arg), DEL)]))


@rule("DELETE_DEREF")
def delete_deref(m: Machine, ins: Ins) -> None:
    m.scope.stored_free(ins.arg)
    m.emit(ast.Delete([ast.Name(ins.arg, DEL)]))


@rule("DELETE_GLOBAL")
def delete_global(m: Machine, ins: Ins) -> None:
    m.scope.globals.add(ins.arg)
    m.emit(ast.Delete([ast.Name(ins.arg, DEL)]))


@rule("DELETE_ATTR")
def delete_attr(m: Machine, ins: Ins) -> None:
    m.emit(ast.Delete([ast.Attribute(m.expr(), ins.arg, DEL)]))


@rule("DELETE_SUBSCR")
def delete_subscr(m: Machine, ins: Ins) -> None:
    index, owner = m.expr(), m.expr()
    m.emit(ast.Delete([ast.Subscript(owner, _slice(index), DEL)]))


@rule("UNPACK_SEQUENCE")
def unpack_sequence(m: Machine, ins: Ins) -> None:
    unpack(m, ins.arg, None)


@rule("UNPACK_EX")
def unpack_ex(m: Machine, ins: Ins) -> None:
    before, after = ins.arg & 255, ins.arg >> 8
    unpack(m, before + 1 + after, before)


# -- the stack ------------------------------------------------------------------------------------------------------
@rule("POP_TOP")
def pop_top(m: Machine, ins: Ins) -> None:
    value = m.pop()
    if isinstance(value, Import):
        drop_import(m, value)
    elif isinstance(value, UnpackItem):
        drop_item(m, value)
    elif isinstance(value, (Marker, Item, Iterating)) or (isinstance(value, Imported) and value.owner.names is None):
        return
    elif getattr(value, "copied", False) or any(other is value for other in m.stack):
        return  # the other copy was used: this ends a chained comparison or a value kept for later
    elif isinstance(value, ast.Name) and value.id in m.scope.constants:
        return  # a temporary or a restored stack value that is no longer needed
    else:
        m.emit(ast.Expr(m.as_expr(value)))


@rule("COPY")
def copy(m: Machine, ins: Ins) -> None:
    if len(m.stack) < ins.arg:
        raise DecompileError("stack underflow")
    value = m.stack[-ins.arg]
    if isinstance(value, ast.AST):
        value.copied = True  # type: ignore[attr-defined]
    m.stack.append(value)


@rule("BIND_SUBJECT")
def bind_subject(m: Machine, ins: Ins) -> None:
    subject = m.pop()
    if not (isinstance(subject, Marker) and subject.kind == "subject"):
        subject = Marker("subject", m.as_expr(subject))
    m.stack.extend((subject, subject))


@rule("DUP_TOP_TWO")
def dup_top_two(m: Machine, ins: Ins) -> None:
    for value in m.stack[-2:]:
        value.copied = True
    m.stack.extend(m.stack[-2:])


@rule("SWAP")
def swap(m: Machine, ins: Ins) -> None:
    if len(m.stack) < ins.arg:
        raise DecompileError("stack underflow")
    m.stack[-1], m.stack[-ins.arg] = m.stack[-ins.arg], m.stack[-1]


@rule("ROT")
def rotate(m: Machine, ins: Ins) -> None:
    if len(m.stack) < ins.arg:
        raise DecompileError("stack underflow")
    m.stack.insert(len(m.stack) - ins.arg, m.stack.pop())


# -- operators ------------------------------------------------------------------------------------------------------
@rule("BINARY")
def binary(m: Machine, ins: Ins) -> None:
    right, left = m.expr(), m.pop()
    text = ins.arg
    if text[-1] == "=":
        m.push(Inplace(m.as_expr(left), _OPERATORS[text[:-1]](), right))
    else:
        left = m.as_expr(left)
        if text == "%" and would_become_fstring(left, right):
            left = ast.JoinedStr([left])
        m.push(ast.BinOp(left, _OPERATORS[text](), right))


_PLAIN_FORMAT = re.compile(r"%(?:%|[-+ #0]*\d{0,2}(?:\.\d{0,2})?([sra]))")


def would_become_fstring(left: Any, right: Any) -> bool:
    """The compiler turns ``"%s" % (a,)`` into an f-string; where it did not, the left side was no plain constant."""
    if not isinstance(left, ast.Constant) or not isinstance(left.value, str) or not isinstance(right, ast.Tuple):
        return False
    if any(isinstance(e, ast.Starred) for e in right.elts) or all(isinstance(e, ast.Constant) for e in right.elts):
        return False
    rest = _PLAIN_FORMAT.sub("", left.value)
    return "%" not in rest and sum(bool(m.group(1)) for m in _PLAIN_FORMAT.finditer(left.value)) == len(right.elts)


@rule("BINARY_SUBSCR")
def binary_subscr(m: Machine, ins: Ins) -> None:
    index, owner = m.expr(), m.expr()
    m.push(ast.Subscript(owner, _slice(index), LOAD))


@rule("BINARY_SLICE")
def binary_slice(m: Machine, ins: Ins) -> None:
    upper, lower, owner = m.expr(), m.expr(), m.expr()
    m.push(ast.Subscript(owner, _bounds(lower, upper), LOAD))


@rule("BUILD_SLICE")
def build_slice(m: Machine, ins: Ins) -> None:
    parts = m.exprs(ins.arg)
    piece = _bounds(parts[0], parts[1])
    if ins.arg == 3:
        piece.step = parts[2]
    m.push(piece)


def _bounds(lower: Any, upper: Any) -> ast.Slice:
    return ast.Slice(None if _is_none(lower) else lower, None if _is_none(upper) else upper)


def _is_none(value: Any) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _slice(index: Any) -> Any:
    return index


@rule("UNARY_NOT")
def unary_not(m: Machine, ins: Ins) -> None:
    m.push(ast.UnaryOp(ast.Not(), m.expr()))


@rule("UNARY_NEGATIVE")
def unary_negative(m: Machine, ins: Ins) -> None:
    m.push(ast.UnaryOp(ast.USub(), m.expr()))


@rule("UNARY_POSITIVE")
def unary_positive(m: Machine, ins: Ins) -> None:
    m.push(ast.UnaryOp(ast.UAdd(), m.expr()))


@rule("UNARY_INVERT")
def unary_invert(m: Machine, ins: Ins) -> None:
    m.push(ast.UnaryOp(ast.Invert(), m.expr()))


@rule("COMPARE")
def compare(m: Machine, ins: Ins) -> None:
    right, left = m.expr(), m.expr()
    if isinstance(right, ast.Constant) and isinstance(right.value, frozenset):
        right = ast.Set([constant(v) for v in sorted(right.value, key=repr)])
    m.push(ast.Compare(left, [_COMPARISONS[ins.arg]()], [right]))


# -- containers -----------------------------------------------------------------------------------------------------
@rule("BUILD_TUPLE")
def build_tuple(m: Machine, ins: Ins) -> None:
    m.push(ast.Tuple(m.exprs(ins.arg), LOAD))


def _starts_comprehension(m: Machine, ins: Ins) -> bool:
    """In a comprehension's function the first empty display is what the elements go into."""
    if not m.scope.is_comprehension or m.scope.collector is not None or ins.arg or m.scope.is_generator_expression:
        return False
    m.scope.collector = Marker("collector")
    m.push(m.scope.collector)
    return True


@rule("BUILD_LIST")
def build_list(m: Machine, ins: Ins) -> None:
    if _starts_comprehension(m, ins):
        return
    m.push(ast.List(m.exprs(ins.arg), LOAD))


@rule("BUILD_SET")
def build_set(m: Machine, ins: Ins) -> None:
    if _starts_comprehension(m, ins):
        return
    m.push(ast.Set(m.exprs(ins.arg)))


@rule("BUILD_MAP")
def build_map(m: Machine, ins: Ins) -> None:
    if _starts_comprehension(m, ins):
        return
    values = m.exprs(2 * ins.arg)
    m.push(ast.Dict(values[::2], values[1::2]))


@rule("BUILD_CONST_KEY_MAP")
def build_const_key_map(m: Machine, ins: Ins) -> None:
    keys = m.pop()
    values = m.exprs(ins.arg)
    m.push(ast.Dict([constant(k) for k in _constant_tuple(keys)], values))


def _constant_tuple(value: Any) -> tuple[Any, ...]:
    if isinstance(value, ast.Constant) and isinstance(value.value, tuple):
        return value.value
    if hasattr(value, "constant_value"):
        return value.constant_value
    raise DecompileError("keys that are no constant tuple")


@rule("LIST_EXTEND", "SET_UPDATE")
def list_extend(m: Machine, ins: Ins) -> None:
    value = m.expr()
    into = m.stack[-ins.arg]
    if not isinstance(into, (ast.List, ast.Set)):
        raise DecompileError(f"{ins.op} into something that is no display")
    into.elts.extend(starred_elements(value, not into.elts))


@rule("LIST_TO_TUPLE")
def list_to_tuple(m: Machine, ins: Ins) -> None:
    value = m.expr()
    if not isinstance(value, ast.List):
        raise DecompileError("LIST_TO_TUPLE of something that is no display")
    m.push(ast.Tuple(value.elts, LOAD))


@rule("DICT_UPDATE", "DICT_MERGE")
def dict_update(m: Machine, ins: Ins) -> None:
    value = m.expr()
    into = m.stack[-ins.arg]
    if not isinstance(into, ast.Dict):
        raise DecompileError(f"{ins.op} into something that is no display")
    if ins.op == "DICT_UPDATE" and _continues_display(into, value):
        into.keys.extend(value.keys)
        into.values.extend(value.values)
        into.group = len(value.keys)  # type: ignore[attr-defined]
        return
    into.keys.append(None)
    into.values.append(value)
    into.group = 0  # type: ignore[attr-defined]


def _continues_display(into: ast.Dict, value: Any) -> bool:
    """Whether ``value`` is a further run of entries: after ``**x`` or a full run; a short run would have taken them in."""
    if not isinstance(value, ast.Dict) or not value.keys or None in value.keys or not into.keys:
        return False
    run = getattr(into, "group", len(into.keys))
    return run == 0 or run >= 15


@rule("LIST_APPEND", "SET_ADD")
def list_append(m: Machine, ins: Ins) -> None:
    value = m.expr()
    into = m.stack[-ins.arg]
    if isinstance(into, Marker) and into.kind == "collector":
        m.emit(Collected(ins.op, value))
        return
    if not isinstance(into, (ast.List, ast.Set)):
        raise DecompileError(f"{ins.op} into something that is no display")
    into.elts.append(value)


@rule("MAP_ADD")
def map_add(m: Machine, ins: Ins) -> None:
    value, key = m.expr(), m.expr()
    into = m.stack[-ins.arg]
    if isinstance(into, Marker) and into.kind == "collector":
        m.emit(Collected(ins.op, value, key))
        return
    if not isinstance(into, ast.Dict):
        raise DecompileError("MAP_ADD into something that is no display")
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
        pieces.extend(value.values if isinstance(value, ast.JoinedStr) else [value])
    m.push(ast.JoinedStr(pieces))


# -- iteration, waiting, raising ------------------------------------------------------------------------------------
@rule("GET_ITER")
def get_iter(m: Machine, ins: Ins) -> None:
    if m.scope.named_iterators:
        m.push(ast.Call(ast.Name("iter", LOAD), [m.expr()], []))
        m.spill_at(len(m.stack) - 1)
        return
    m.push(Iterating(m.expr()))


@rule("GET_AITER")
def get_aiter(m: Machine, ins: Ins) -> None:
    m.push(Iterating(m.expr(), True))


@rule("GET_AWAITABLE")
def get_awaitable(m: Machine, ins: Ins) -> None:
    value = m.pop()
    m.push(value if isinstance(value, (Marker, Item)) else Awaitable(m.as_expr(value), True))


@rule("GET_YIELD_FROM_ITER")
def get_yield_from_iter(m: Machine, ins: Ins) -> None:
    m.push(Awaitable(m.expr(), False))


@rule("YIELD_FROM")
def yield_from(m: Machine, ins: Ins) -> None:
    m.pop()
    value = m.pop()
    if isinstance(value, (Marker, Item)):
        m.push(value)
    elif isinstance(value, Awaitable):
        if value.is_await and getattr(value.value, "awaited", False):
            m.push(value.value)  # an asynchronous comprehension is awaited without saying so
        else:
            m.push((ast.Await if value.is_await else ast.YieldFrom)(value.value))
    else:
        m.push(ast.YieldFrom(m.as_expr(value)))


@rule("YIELD_VALUE")
def yield_value(m: Machine, ins: Ins) -> None:
    value = m.expr()
    if m.scope.is_generator_expression:
        m.emit(Collected("YIELD", value))
        m.push(Marker("sent"))
        return
    m.push(ast.Yield(None if _is_none(value) else value))


@rule("RETURN_VALUE")
def return_value(m: Machine, ins: Ins) -> None:
    if m.stack and m.stack[-1] is m.scope.collector and m.scope.collector is not None:
        m.pop()
        m.emit(ast.Return(None))
        return
    value = m.pop() if m.scope.is_generic else m.expr()
    if m.scope.is_generic:
        m.stack.clear()
    m.emit(ast.Return(None if _is_none(value) else value))


@rule("RAISE")
def raise_statement(m: Machine, ins: Ins) -> None:
    parts = m.exprs(ins.arg)
    m.emit(ast.Raise(parts[0] if parts else None, parts[1] if len(parts) > 1 else None))


@rule("RERAISE")
def reraise(m: Machine, ins: Ins) -> None:
    stmt = ast.Raise(None, None)
    stmt.implicit = m.stack[-1] if m.stack else True  # type: ignore[attr-defined]
    m.stmts.append(stmt)


@rule("PUSH_EXC_INFO")
def push_exc_info(m: Machine, ins: Ins) -> None:
    exception = m.pop()
    m.push(Marker("previous"))
    m.push(exception)


@rule("CHECK_EXC_MATCH")
def check_exc_match(m: Machine, ins: Ins) -> None:
    from .values import Match

    m.push(Match(m.expr()))


@rule("POP_EXCEPT")
def pop_except(m: Machine, ins: Ins) -> None:
    for _ in range(m.scope.exception_width):
        for n in range(len(m.stack) - 1, -1, -1):
            value = m.stack[n]
            if (isinstance(value, Marker) and value.kind in ("previous", "exception")) or isinstance(value, Item):
                del m.stack[n]
                break


@rule("BEFORE_WITH", "SETUP_WITH", "BEFORE_ASYNC_WITH")
def before_with(m: Machine, ins: Ins) -> None:
    manager = m.expr()
    m.push(Marker("exit", manager, ins.op == "BEFORE_ASYNC_WITH"))
    m.push(Item("with"))


@rule("WITH_END")
def with_end(m: Machine, ins: Ins) -> None:
    for n in range(len(m.stack) - 1, -1, -1):
        value = m.stack[n]
        if isinstance(value, Marker) and value.kind == "exit":
            del m.stack[n]
            return
    raise DecompileError("the end of a with statement without its start")


@rule("SETUP_FINALLY", "SETUP_ASYNC_WITH", "POP_BLOCK", "RETURN_GENERATOR", "UNREACHABLE", "NOP", "JUMP")
def nothing(m: Machine, ins: Ins) -> None:
    if ins.op == "RETURN_GENERATOR":
        m.push(Marker("generator"))


# -- imports, functions, classes ------------------------------------------------------------------------------------
@rule("IMPORT_NAME")
def import_name(m: Machine, ins: Ins) -> None:
    names, level = m.pop(), m.pop()
    if not isinstance(level, ast.Constant) or not isinstance(level.value, int):
        raise DecompileError("an import with a computed level")
    value = None if _is_none(names) else _constant_tuple(names)
    m.push(Import(ins.arg, level.value, value))


@rule("IMPORT_FROM")
def import_from(m: Machine, ins: Ins) -> None:
    owner = m.stack[-1]
    if isinstance(owner, Imported):
        owner = owner.owner
    if not isinstance(owner, Import):
        raise DecompileError("IMPORT_FROM something that is no import")
    m.push(Imported(owner, ins.arg))


@rule("IMPORT_STAR")
def import_star(m: Machine, ins: Ins) -> None:
    owner = m.pop()
    if VERSION >= (3, 12):
        m.push(Marker("nothing"))
    m.emit(ast.ImportFrom(owner.module or None, [ast.alias("*", None)], owner.level))


__all__ = ["Chained", "Class", "Function"]
