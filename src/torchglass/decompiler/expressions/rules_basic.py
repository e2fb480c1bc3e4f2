"""Rules for loads, stores, deletes, stack shuffling and imports."""

from __future__ import annotations

import ast
from typing import Any

from ...bytecode.canonical import VERSION
from ...bytecode.expressions import place
from ...bytecode.ins import Ins
from ...bytecode.operators import SHUFFLES, unpacked
from ..errors import DecompileError
from .assign import drop_import, drop_item, unpack
from .constants import constant, constant_tuple
from .definitions import stored_name
from .machine import Machine, rule
from .trees import DEL, LOAD, STORE, is_none, load
from .values import Import, Imported, Item, Iterating, Marker, UnpackItem, is_marker


# -- loads ----------------------------------------------------------------------------------------------------------
@rule("LOAD_CONST")
def load_const(m: Machine, ins: Ins) -> None:
    m.push(constant(ins.arg))


@rule("LOAD_FAST", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_CLOSURE")
def load_name(m: Machine, ins: Ins) -> None:
    m.push(load(m.scope.local(ins.arg)))


@rule("LOAD_GLOBAL")
def load_global(m: Machine, ins: Ins) -> None:
    m.scope.saw_global(ins.arg)
    m.push(load(ins.arg))


@rule("LOAD_FROM_DICT_OR_DEREF", "LOAD_FROM_DICT_OR_GLOBALS")
def load_from_dict(m: Machine, ins: Ins) -> None:
    m.pop()
    m.push(load(ins.arg))


@rule("LOAD_LOCALS")
def load_locals(m: Machine, ins: Ins) -> None:
    m.push(Marker("locals"))


@rule("LOAD_BUILD_CLASS", "LOAD_ASSERTION_ERROR")
def load_special(m: Machine, ins: Ins) -> None:
    name = load("__build_class__" if ins.op == "LOAD_BUILD_CLASS" else "AssertionError")
    name.special = True  # type: ignore[attr-defined]
    m.push(name)


@rule("PUSH_NULL")
def push_null(m: Machine, ins: Ins) -> None:
    m.push(Marker("null"))


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
    if m.stack and is_marker(m.stack[-1], "saved"):
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


@rule("STORE_ATTR", "STORE_SUBSCR", "STORE_SLICE")
def store_place(m: Machine, ins: Ins) -> None:
    target = place(ins.op, ins.arg, STORE, m.exprs)
    if not (m.scope.is_class and isinstance(target, ast.Subscript) and _annotates(m, target.value, target.slice)):
        m.store(target)


def _annotates(m: Machine, owner: Any, index: Any) -> bool:
    """``__annotations__[name] = annotation`` in a class body is an annotated assignment."""
    if not (isinstance(owner, ast.Name) and owner.id == "__annotations__" and isinstance(index, ast.Constant)):
        return False
    name, annotation = str(index.value), m.expr()
    last = m.stmts[-1] if m.stmts else None
    value = last.value if isinstance(last, ast.Assign) and stored_name(last) == name else None
    if value is not None:
        m.stmts.pop()
    m.emit(ast.AnnAssign(ast.Name(name, STORE), annotation, value, 1))
    return True


@rule("DELETE_FAST", "DELETE_NAME", "DELETE_DEREF", "DELETE_GLOBAL")
def delete_name(m: Machine, ins: Ins) -> None:
    if ins.op == "DELETE_DEREF":
        m.scope.stored_free(ins.arg)
    elif ins.op == "DELETE_GLOBAL":
        m.scope.globals.add(ins.arg)
    local = ins.op in ("DELETE_FAST", "DELETE_NAME")
    m.emit(ast.Delete([ast.Name(m.scope.local(ins.arg) if local else ins.arg, DEL)]))


@rule("DELETE_ATTR", "DELETE_SUBSCR")
def delete_place(m: Machine, ins: Ins) -> None:
    m.emit(ast.Delete([place(ins.op, ins.arg, DEL, m.exprs)]))


@rule("UNPACK_SEQUENCE", "UNPACK_EX")
def unpack_sequence(m: Machine, ins: Ins) -> None:
    unpack(m, *unpacked(ins.op, ins.arg))


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


@rule("COPY", "DUP_TOP_TWO", "SWAP", "ROT")
def shuffle(m: Machine, ins: Ins) -> None:
    m.need(ins.arg or 2)
    depth = len(m.stack)
    SHUFFLES[ins.op](m.stack, ins.arg)
    for value in m.stack[depth:]:
        if isinstance(value, ast.AST):
            value.copied = True  # type: ignore[attr-defined]


@rule("BIND_SUBJECT")
def bind_subject(m: Machine, ins: Ins) -> None:
    subject = m.pop()
    if not is_marker(subject, "subject"):
        subject = Marker("subject", m.as_expr(subject))
    m.stack.extend((subject, subject))


# -- imports ------------------------------------------------------------------------------------
@rule("IMPORT_NAME")
def import_name(m: Machine, ins: Ins) -> None:
    names, level = m.pop(), m.pop()
    if not isinstance(level, ast.Constant) or not isinstance(level.value, int):
        raise DecompileError("an import with a computed level")
    value = None if is_none(names) else constant_tuple(names)
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
