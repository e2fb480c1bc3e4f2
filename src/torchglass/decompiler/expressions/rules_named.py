"""Rules of the NamingMachine: shuffling the stack, and containers that only the stack knows.

Each falls back to the ordinary rule of its instruction where nothing special is known.
"""

from __future__ import annotations

import ast
from typing import Any

from ...bytecode.canonical import Ins
from ..errors import DecompileError
from .machine import LOAD, RULES
from .naming import Fresh, named
from .values import Marker


# -- the stack ------------------------------------------------------------------------------------------------------
@named("LOAD_FAST")
def _load_fast(m: Any, ins: Ins) -> None:
    name = ast.Name(m.scope.local(ins.arg), LOAD)
    name.is_local = ins.arg not in m.scope.code.co_cellvars  # type: ignore[attr-defined]
    m.push(name)


@named("LOAD_CLOSURE")
def _load_closure(m: Any, ins: Ins) -> None:
    m.push(Marker("cell", ins.arg))


@named("COPY")
def _copy(m: Any, ins: Ins) -> None:
    if len(m.stack) < ins.arg:
        raise DecompileError("stack underflow")
    place = len(m.stack) - ins.arg
    if m.waits(m.stack[place]):
        for n in range(place + 1):
            if m.waits(m.stack[n]):
                m.spill_at(n)
    m.stack.append(m.stack[place])


@named("DUP_TOP_TWO")
def _copy_two(m: Any, ins: Ins) -> None:
    m.spill()
    m.stack.extend(m.stack[-2:])


def _reordered(m: Any, stack: list[Any]) -> None:
    if m.keeps_order(stack):
        m.stack[:] = stack
        return
    before = list(m.stack)
    m.spill()
    now = {id(old): new for old, new in zip(before, m.stack)}
    m.stack[:] = [now.get(id(v), v) for v in stack]


@named("SWAP")
def _swap(m: Any, ins: Ins) -> None:
    if len(m.stack) < ins.arg:
        raise DecompileError("stack underflow")
    stack = list(m.stack)
    stack[-1], stack[-ins.arg] = stack[-ins.arg], stack[-1]
    _reordered(m, stack)


@named("ROT")
def _rotate(m: Any, ins: Ins) -> None:
    if len(m.stack) < ins.arg:
        raise DecompileError("stack underflow")
    stack = list(m.stack)
    stack.insert(len(stack) - ins.arg, stack.pop())
    _reordered(m, stack)


@named("POP_TOP")
def _pop_top(m: Any, ins: Ins) -> None:
    value = m.stack[-1] if m.stack else None
    if value is not None and m.simple(value):
        m.pop()
        return
    RULES["POP_TOP"](m, ins)


# -- containers -----------------------------------------------------------------------------------------------------
@named("BUILD_LIST", "BUILD_TUPLE")
def _build(m: Any, ins: Ins) -> None:
    top = m.stack[len(m.stack) - ins.arg :] if ins.arg else []
    if len(m.stack) < ins.arg or not all(m.simple(v) or _is_cell(v) for v in top):
        RULES[ins.op](m, ins)
        return
    if ins.arg:
        del m.stack[-ins.arg :]
    m.push(Fresh(ast.List if ins.op == "BUILD_LIST" else ast.Tuple, list(top)))


def _is_cell(value: Any) -> bool:
    return isinstance(value, Marker) and value.kind == "cell"


def _index(node: Any) -> Any:
    """The int or slice that ``node`` is, None if it is not constant."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _index(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Slice) and node.step is None:
        ends = [None if part is None else _index(part) for part in (node.lower, node.upper)]
        known = all(part is None or end is not None for part, end in zip((node.lower, node.upper), ends))
        return slice(*ends) if known else None
    return None


def _known(m: Any, depth: int, index: Any) -> tuple[Fresh | None, Any]:
    """The fresh container ``depth`` places below the top and the constant ``index``, if both are known."""
    owner = m.stack[-depth] if len(m.stack) >= depth else None
    where = _index(index)
    if not isinstance(owner, Fresh) or where is None:
        return None, None
    size = len(owner.elements)
    if isinstance(where, int) and not -size <= where < size:
        return None, None
    return owner, where


@named("BINARY_SUBSCR")
def _subscript(m: Any, ins: Ins) -> None:
    owner, where = _known(m, 2, m.stack[-1])
    if owner is None:
        RULES[ins.op](m, ins)
        return
    del m.stack[-2:]
    found = owner.elements[where]
    m.stack.append(Fresh(owner.kind, found) if isinstance(where, slice) else found)


@named("STORE_SUBSCR")
def _store_subscript(m: Any, ins: Ins) -> None:
    if len(m.stack) > 2 and isinstance(m.stack[-2], Fresh) and m.waits(m.stack[-3]):
        m.spill()
    owner, where = _known(m, 2, m.stack[-1])
    value = m.stack[-3] if len(m.stack) > 2 else None
    if owner is None or owner.kind is not ast.List or not (m.simple(value) or _is_cell(value)):
        RULES[ins.op](m, ins)
        return
    if isinstance(where, slice) and not isinstance(value, Fresh):
        RULES[ins.op](m, ins)
        return
    elements = list(owner.elements)
    elements[where] = list(value.elements) if isinstance(where, slice) else value  # type: ignore[union-attr]
    del m.stack[-3:]
    m.substitute(owner, Fresh(ast.List, elements))


@named("BINARY_SLICE")
def _binary_slice(m: Any, ins: Ins) -> None:
    """``x[a:b]`` in one instruction, as Python 3.12 has it."""
    if isinstance(_slice_on_top(m, 3), ast.Slice):
        _subscript(m, Ins(ins.index, ins.offset, "BINARY_SUBSCR", None, ins.pos))
        return
    RULES[ins.op](m, ins)


@named("STORE_SLICE")
def _store_slice(m: Any, ins: Ins) -> None:
    if isinstance(_slice_on_top(m, 3), ast.Slice):
        _store_subscript(m, Ins(ins.index, ins.offset, "STORE_SUBSCR", None, ins.pos))
        return
    RULES[ins.op](m, ins)


def _slice_on_top(m: Any, depth: int) -> ast.Slice | None:
    """Puts the two constant ends on top together as a slice, if what they cut is a fresh container; else None."""
    if len(m.stack) < depth or not isinstance(m.stack[-depth], Fresh):
        return None
    ends = [None if isinstance(e, ast.Constant) and e.value is None else e for e in m.stack[-2:]]
    if not all(e is None or _index(e) is not None for e in ends):
        return None
    del m.stack[-2:]
    both = ast.Slice(*ends)
    m.stack.append(both)
    return both


@named("DELETE_SUBSCR")
def _delete_subscript(m: Any, ins: Ins) -> None:
    owner, where = _known(m, 2, m.stack[-1])
    if owner is None or owner.kind is not ast.List:
        RULES[ins.op](m, ins)
        return
    elements = list(owner.elements)
    del elements[where]
    del m.stack[-2:]
    m.substitute(owner, Fresh(ast.List, elements))


@named("LIST_EXTEND")
def _list_extend(m: Any, ins: Ins) -> None:
    value, into = m.stack[-1], m.stack[-1 - ins.arg]
    if isinstance(into, Fresh) and isinstance(value, Fresh):
        m.pop()
        m.substitute(into, Fresh(ast.List, into.elements + value.elements))
        return
    if isinstance(into, Fresh) and m.uses(into) > 1:
        m.substitute(into, m.assign(m.display(into)))
        into = m.stack[-1 - ins.arg]
    if isinstance(into, ast.Name):
        given = m.expr()
        m.emit(ast.Expr(ast.Call(ast.Attribute(into, "extend", LOAD), [given], [])))
        return
    if isinstance(into, Fresh):
        m.spill()
        given = m.expr()
        display = m.display(into)
        display.when, display.home = m.clock, m.node.id
        display.elts.append(ast.Starred(given, LOAD))
        m.stack[-ins.arg] = display
        return
    if isinstance(into, ast.List) and isinstance(value, Fresh):
        m.pop()
        into.elts.extend(m.as_expr(e) for e in value.elements)
        return
    RULES[ins.op](m, ins)


@named("LIST_TO_TUPLE")
def _list_to_tuple(m: Any, ins: Ins) -> None:
    value = m.stack[-1] if m.stack else None
    if isinstance(value, Fresh):
        m.stack[-1] = Fresh(ast.Tuple, value.elements)
        return
    RULES[ins.op](m, ins)


@named("UNPACK_SEQUENCE")
def _unpack(m: Any, ins: Ins) -> None:
    value = m.stack[-1] if m.stack else None
    if isinstance(value, Fresh) and len(value.elements) == ins.arg:
        m.pop()
        m.stack.extend(reversed(value.elements))
        return
    RULES[ins.op](m, ins)


# -- calls ----------------------------------------------------------------------------------------------------------
@named("CALL_EX")
def _call_ex(m: Any, ins: Ins) -> None:
    args = m.stack[-1] if m.stack else None
    if not ins.arg and isinstance(args, Fresh):
        count = len(args.elements)
        m.pop()
        if m.ends_with_call(ins):
            _forget_below(m)
        m.stack.extend(args.elements)
        values = m.exprs(count)
        m.push(ast.Tuple(values, LOAD))
    RULES[ins.op](m, ins)


def _forget_below(m: Any) -> None:
    """The last call is about to be made: what lies below its function (and NULL) is not needed any more."""
    at = len(m.stack) - 1
    while at > 0 and isinstance(m.stack[at - 1], Marker) and m.stack[at - 1].kind == "null":
        at -= 1
    if isinstance(m.stack[-1], Marker):  # 3.13: NULL lies above the function
        at -= 1
    m.stack[:at] = [v for v in m.stack[:at] if not m.simple(v)]


@named("MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE")
def _make_function(m: Any, ins: Ins) -> None:
    for n, value in enumerate(m.stack):
        if isinstance(value, Fresh) and value.kind is ast.Tuple and not any(_is_cell(e) for e in value.elements):
            m.stack[n] = m.display(value)
    RULES[ins.op](m, ins)
