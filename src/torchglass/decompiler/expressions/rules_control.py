"""Rules for iteration, waiting, returning, raising, and for entering and leaving blocks."""

from __future__ import annotations

import ast

from ...bytecode.ins import Ins
from ..errors import DecompileError
from .machine import Machine, rule
from .trees import is_none, load
from .values import Awaitable, Collected, Item, Iterating, Marker, Match


# -- iteration, waiting, raising ------------------------------------------------------------------------------------
@rule("GET_ITER")
def get_iter(m: Machine, ins: Ins) -> None:
    if m.scope.named_iterators:
        m.push(ast.Call(load("iter"), [m.expr()], []))
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
    m.push(ast.Yield(None if is_none(value) else value))


@rule("RETURN_VALUE")
def return_value(m: Machine, ins: Ins) -> None:
    if m.stack and m.stack[-1] is m.scope.collector and m.scope.collector is not None:
        m.pop()
        m.emit(ast.Return(None))
        return
    value = m.pop() if m.scope.is_generic else m.expr()
    if m.scope.is_generic:
        m.stack.clear()
    m.emit(ast.Return(None if is_none(value) else value))


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
    m.push(Match(m.expr()))


def _drop_topmost(m: Machine, *kinds: str) -> bool:
    """Take the topmost marker of one of ``kinds`` (``item``: bound value) off the stack; whether there was one."""
    for n in range(len(m.stack) - 1, -1, -1):
        value = m.stack[n]
        if ("item" in kinds and isinstance(value, Item)) or (isinstance(value, Marker) and value.kind in kinds):
            del m.stack[n]
            return True
    return False


@rule("POP_EXCEPT")
def pop_except(m: Machine, ins: Ins) -> None:
    for _ in range(m.scope.exception_width):
        _drop_topmost(m, "previous", "exception", "item")


@rule("BEFORE_WITH", "SETUP_WITH", "BEFORE_ASYNC_WITH")
def before_with(m: Machine, ins: Ins) -> None:
    manager = m.expr()
    m.push(Marker("exit", manager, ins.op == "BEFORE_ASYNC_WITH"))
    m.push(Item("with"))


@rule("WITH_END")
def with_end(m: Machine, ins: Ins) -> None:
    if not _drop_topmost(m, "exit"):
        raise DecompileError("the end of a with statement without its start")


@rule("SETUP_FINALLY", "SETUP_ASYNC_WITH", "POP_BLOCK", "RETURN_GENERATOR", "UNREACHABLE", "NOP", "JUMP")
def nothing(m: Machine, ins: Ins) -> None:
    if ins.op == "RETURN_GENERATOR":
        m.push(Marker("generator"))
