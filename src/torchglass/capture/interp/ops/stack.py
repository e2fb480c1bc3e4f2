"""Instructions that only move values on the stack, or do nothing here."""

from __future__ import annotations

from ....bytecode.operators import SHUFFLES
from ...protocol import NULL
from .registry import BEFORE_312, SINCE_312, SINCE_313, handler


@handler("RESUME", "NOP", "COPY_FREE_VARS")
def skip(m, f, i):
    pass


@handler("PRECALL", versions=BEFORE_312)
def precall(m, f, i):
    pass


@handler("CACHE")
def cache(m, f, i):
    pass


@handler("POP_TOP")
def pop_top(m, f, i):
    f.pop()


@handler("PUSH_NULL")
def push_null(m, f, i):
    f.push(NULL)


@handler("COPY", "SWAP")
def shuffle(m, f, i):
    SHUFFLES[i.opname](f.stack, i.arg)


@handler("LOAD_CONST")
def load_const(m, f, i):
    f.push(m.wrap_result(f.code.co_consts[i.arg]))


@handler("RETURN_CONST", versions=((3, 12), (3, 14)))
def return_const(m, f, i):
    f.finished = ("return", m.wrap_result(f.code.co_consts[i.arg]))


@handler("RETURN_VALUE")
def return_value(m, f, i):
    f.finished = ("return", f.pop())


@handler("LOAD_ASSERTION_ERROR")
def load_assertion_error(m, f, i):
    f.push(m.wrap(AssertionError))


@handler("END_FOR", versions=((3, 12), (3, 13)))
def end_for(m, f, i):
    f.pop_n(2)


@handler("END_FOR", versions=SINCE_313)
def end_for_13(m, f, i):
    f.pop()


@handler("END_SEND", versions=SINCE_312)
def end_send(m, f, i):
    value = f.pop()
    f.pop()
    f.push(value)
