"""Rules of the NamingMachine: shuffling the stack, and containers that only the stack knows.

Each says whether it applied; where nothing special is known, the ordinary rule of its instruction runs.
"""

from __future__ import annotations

import ast
from typing import Any

from ...bytecode.ins import Ins
from ...bytecode.operators import SHUFFLES
from .naming import NAMED, named
from .trees import LOAD, is_none, load
from .values import Fresh, Marker, is_marker


# -- the stack ------------------------------------------------------------------------------------------------------
@named("LOAD_FAST")
def _load_fast(m: Any, ins: Ins) -> bool:
    name = load(m.scope.local(ins.arg))
    name.is_local = ins.arg not in m.scope.code.co_cellvars  # type: ignore[attr-defined]
    m.push(name)
    return True


@named("LOAD_CLOSURE")
def _load_closure(m: Any, ins: Ins) -> bool:
    m.push(Marker("cell", ins.arg))
    return True


@named("COPY")
def _copy(m: Any, ins: Ins) -> bool:
    m.need(ins.arg)
    place = len(m.stack) - ins.arg
    if m.waits(m.stack[place]):
        for n in range(place + 1):
            if m.waits(m.stack[n]):
                m.spill_at(n)
    m.stack.append(m.stack[place])
    return True


@named("DUP_TOP_TWO")
def _copy_two(m: Any, ins: Ins) -> bool:
    m.spill()
    m.stack.extend(m.stack[-2:])
    return True


@named("SWAP", "ROT")
def _reorder(m: Any, ins: Ins) -> bool:
    m.need(ins.arg)
    before = list(m.stack)
    stack = list(before)
    SHUFFLES[ins.op](stack, ins.arg)
    if not m.keeps_order(stack):
        m.spill()
        now = {id(old): new for old, new in zip(before, m.stack)}
        stack = [now.get(id(v), v) for v in stack]
    m.stack[:] = stack
    return True


@named("POP_TOP")
def _pop_top(m: Any, ins: Ins) -> bool:
    if not m.stack or not m.simple(m.stack[-1]):
        return False
    m.pop()
    return True


# -- containers -----------------------------------------------------------------------------------------------------
@named("BUILD_LIST", "BUILD_TUPLE")
def _build(m: Any, ins: Ins) -> bool:
    top = m.stack[len(m.stack) - ins.arg :]
    if len(m.stack) < ins.arg or not all(m.simple(v) or is_marker(v, "cell") for v in top):
        return False
    m.push(Fresh(ast.List if ins.op == "BUILD_LIST" else ast.Tuple, m.take(ins.arg)))
    return True


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


def _known(m: Any) -> tuple[Fresh | None, Any]:
    """The fresh container below the top and the constant index on top, if both are known."""
    owner = m.stack[-2] if len(m.stack) > 1 else None
    where = _index(m.stack[-1])
    if not isinstance(owner, Fresh) or where is None:
        return None, None
    size = len(owner.elements)
    if isinstance(where, int) and not -size <= where < size:
        return None, None
    return owner, where


@named("BINARY_SUBSCR")
def _subscript(m: Any, ins: Ins) -> bool:
    owner, where = _known(m)
    if owner is None:
        return False
    found = owner.elements[where]
    m.stack[-2:] = [Fresh(owner.kind, found) if isinstance(where, slice) else found]
    return True


@named("STORE_SUBSCR")
def _store_subscript(m: Any, ins: Ins) -> bool:
    if len(m.stack) > 2 and isinstance(m.stack[-2], Fresh) and m.waits(m.stack[-3]):
        m.spill()
    owner, where = _known(m)
    value = m.stack[-3] if len(m.stack) > 2 else None
    if owner is None or owner.kind is not ast.List or not (m.simple(value) or is_marker(value, "cell")):
        return False
    if isinstance(where, slice) and not isinstance(value, Fresh):
        return False
    elements = list(owner.elements)
    elements[where] = list(value.elements) if isinstance(where, slice) else value  # type: ignore[union-attr]
    del m.stack[-3:]
    m.substitute(owner, Fresh(ast.List, elements))
    return True


@named("BINARY_SLICE", "STORE_SLICE")
def _sliced(m: Any, ins: Ins) -> bool:
    """``x[a:b]`` in one instruction, as Python 3.12 has it: two constant ends on top go together as a slice."""
    ends = [None if is_none(end) else end for end in m.stack[-2:]]
    if len(m.stack) < 3 or not isinstance(m.stack[-3], Fresh) or _index(ast.Slice(*ends)) is None:
        return False
    m.stack[-2:] = [ast.Slice(*ends)]
    whole = ins.op.replace("SLICE", "SUBSCR")
    NAMED[whole](m, Ins(ins.index, ins.offset, whole, None, ins.pos))
    return True


@named("DELETE_SUBSCR")
def _delete_subscript(m: Any, ins: Ins) -> bool:
    owner, where = _known(m)
    if owner is None or owner.kind is not ast.List:
        return False
    elements = list(owner.elements)
    del elements[where]
    del m.stack[-2:]
    m.substitute(owner, Fresh(ast.List, elements))
    return True


@named("LIST_EXTEND")
def _list_extend(m: Any, ins: Ins) -> bool:
    value, into = m.stack[-1], m.stack[-1 - ins.arg]
    if isinstance(into, Fresh) and isinstance(value, Fresh):
        m.pop()
        m.substitute(into, Fresh(ast.List, into.elements + value.elements))
        return True
    if isinstance(into, Fresh) and m.uses(into) > 1:
        m.substitute(into, m.assign(m.display(into)))
        into = m.stack[-1 - ins.arg]
    if isinstance(into, ast.Name):
        given = m.expr()
        m.emit(ast.Expr(ast.Call(ast.Attribute(into, "extend", LOAD), [given], [])))
    elif isinstance(into, Fresh):
        m.spill()
        given = m.expr()
        display = m.display(into)
        display.when, display.home = m.clock, m.node.id
        display.elts.append(ast.Starred(given, LOAD))
        m.stack[-ins.arg] = display
    elif isinstance(into, ast.List) and isinstance(value, Fresh):
        m.pop()
        into.elts.extend(m.as_expr(e) for e in value.elements)
    else:
        return False
    return True


@named("LIST_TO_TUPLE")
def _list_to_tuple(m: Any, ins: Ins) -> bool:
    if not m.stack or not isinstance(m.stack[-1], Fresh):
        return False
    m.stack[-1] = Fresh(ast.Tuple, m.stack[-1].elements)
    return True


@named("UNPACK_SEQUENCE")
def _unpack(m: Any, ins: Ins) -> bool:
    value = m.stack[-1] if m.stack else None
    if not isinstance(value, Fresh) or len(value.elements) != ins.arg:
        return False
    m.stack[-1:] = reversed(value.elements)
    return True


# -- calls: what is prepared here, the ordinary rule finishes -------------------------------------------------------
@named("CALL_EX")
def _call_ex(m: Any, ins: Ins) -> bool:
    args = m.stack[-1] if m.stack else None
    if not ins.arg and isinstance(args, Fresh):
        m.pop()
        if m.ends_with_call(ins):
            _forget_below(m)
        m.stack.extend(args.elements)
        m.push(ast.Tuple(m.exprs(len(args.elements)), LOAD))
    return False


def _forget_below(m: Any) -> None:
    """The last call is about to be made: what lies below its function (and NULL) is not needed any more."""
    at = len(m.stack) - 1
    while at > 0 and is_marker(m.stack[at - 1], "null"):
        at -= 1
    if isinstance(m.stack[-1], Marker):  # 3.13: NULL lies above the function
        at -= 1
    m.stack[:at] = [v for v in m.stack[:at] if not m.simple(v)]


@named("MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE")
def _make_function(m: Any, ins: Ins) -> bool:
    for n, value in enumerate(m.stack):
        if isinstance(value, Fresh) and value.kind is ast.Tuple:
            closure = any(is_marker(e, "cell") for e in value.elements)
            m.stack[n] = value if closure else m.display(value)
    return False
