"""Jumps, loops, calls, generators, exceptions, with."""

from __future__ import annotations

import sys

from ....bytecode.objects import namesake
from ...errors import Unsupported, UserError
from ...guarding.class_guards import is_subclass
from ...meanings import exception_groups
from ...protocol import MISSING, NULL, HandledV
from ...torch_api import deferred_asserts as checked
from ...values.constant import NONE, ConstantV, is_none
from ...values.containers import TupleV
from ...values.exceptions import chain, exception_from, handled
from ...values.instance import ExceptionV, InstanceV
from ...values.iterators import GeneratorV
from ..if_conversion import converted
from .containers import called_like, is_iterable
from .registry import BEFORE_312, BEFORE_313, SINCE_312, SINCE_313, handler

PREP_RERAISE_STAR = 1  # of CALL_INTRINSIC_2's functions


# --- jumps ------------------------------------------------------------------------------------------------------------
@handler("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
def jump(m, f, i):
    f.jump(i)


def _jump_if(wanted):
    def step(m, f, i):
        condition = f.pop()
        if not converted(m, f, i, condition, not wanted) and checked.truth(m, f, condition) is wanted:
            f.jump(i)

    return step


def _jump_if_none(wanted):
    def step(m, f, i):
        if m.identical(f.pop(), ConstantV(None)) is wanted:
            f.jump(i)

    return step


for _name, _step in (
    ("IF_TRUE", _jump_if(True)),
    ("IF_FALSE", _jump_if(False)),
    ("IF_NONE", _jump_if_none(True)),
    ("IF_NOT_NONE", _jump_if_none(False)),
):
    handler(f"POP_JUMP_FORWARD_{_name}", f"POP_JUMP_BACKWARD_{_name}", versions=BEFORE_312)(_step)
    handler(f"POP_JUMP_{_name}", versions=SINCE_312)(_step)


@handler("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP", versions=BEFORE_312)
def jump_or_pop(m, f, i):
    if m.truth(f.stack[-1]) is (i.opname == "JUMP_IF_TRUE_OR_POP"):
        f.jump(i)
    else:
        f.pop()


# --- loops ------------------------------------------------------------------------------------------------------------
@handler("GET_ITER")
def get_iter(m, f, i):
    f.push(m.iterate(f.pop()))


@handler("FOR_ITER")
def for_iter(m, f, i):
    value = f.stack[-1].next(m)
    if value is not None:
        f.push(m.forced(value))
        return
    f.jump(i)
    if sys.version_info < (3, 12):
        f.pop()
    elif sys.version_info < (3, 13):
        # 3.12 jumps to END_FOR, which pops the iterator and the value that never came: skip it
        f.pop()
        f.pc += 1
    else:
        # 3.13 jumps to END_FOR POP_TOP: END_FOR pops the missing value, POP_TOP the iterator
        f.pc += 1


# --- calls ------------------------------------------------------------------------------------------------------------
@handler("KW_NAMES", versions=BEFORE_313)
def kw_names(m, f, i):
    f.kw_names = f.code.co_consts[i.arg]


def call_parts(f, i):
    """Pop a call's function, arguments and those by keyword (on the stack: function and self, or function and NULL)."""
    names, f.kw_names = f.pop().as_constant() if i.opname == "CALL_KW" else f.kw_names, ()
    values = f.pop_n(i.arg)
    function, *bound = [part for part in f.pop_n(2) if part is not NULL]
    values = bound + values
    split = len(values) - len(names)
    return function, values[:split], dict(zip(names, values[split:]))


def ex_parts(f, i):
    """Pop the function, the arguments and the keywords (None: there are none) of CALL_FUNCTION_EX."""
    kwargs = f.pop() if i.arg & 1 else None
    args = f.pop()
    (function,) = (part for part in f.pop_n(2) if part is not NULL)
    return function, args, kwargs


@handler("CALL_KW", versions=SINCE_313)
@handler("CALL")
def call(m, f, i):
    f.push(m.call(*call_parts(f, i)))


@handler("CALL_FUNCTION_EX")
def call_function_ex(m, f, i):
    function, args, named = ex_parts(f, i)
    kwargs = {} if named is None else {k.as_constant(): v for k, v in named.mapping_pairs(m)}
    if not all(isinstance(name, str) for name in kwargs):
        m.throw_as(lambda: dict(**{0: None}))
    if isinstance(args, (ConstantV, InstanceV)) and not is_iterable(args):
        called = called_like(m, function)
        m.throw_as(lambda: called(*namesake(args.python_type())))
    f.push(m.call(function, m.listed(args), kwargs))


# --- generators -------------------------------------------------------------------------------------------------------
@handler("RETURN_GENERATOR")
def return_generator(m, f, i):
    # The creating call returns at once; the frame goes on from here at the first next().
    f.push(ConstantV(None))
    f.finished = ("return", GeneratorV(f))


@handler("YIELD_VALUE")
def yield_value(m, f, i):
    f.finished = ("yield", f.pop())


@handler("GET_YIELD_FROM_ITER")
def get_yield_from_iter(m, f, i):
    f.push(m.iterate(f.pop()))


def _sent(m, receiver, value):
    """The next item of what a ``yield from`` waits for, or None and the value of its end."""
    if isinstance(receiver, GeneratorV):
        return receiver.send(m, value), receiver.result()
    if not isinstance(receiver, InstanceV):
        return receiver.next(m), NONE
    plain = is_none(value)
    try:
        if plain:
            return m.call(m.wrap(next), [receiver], {}), NONE
        return m.call(m.get_attr(receiver, "send"), [value], {}), NONE
    except UserError as error:
        if not issubclass(error.value.python_type(), StopIteration):
            raise
        return None, m.get_attr(error.value, "value")


@handler("SEND")
def send(m, f, i):
    value, receiver = f.pop(), f.stack[-1]
    result, end = _sent(m, receiver, value)
    if result is not None:
        f.push(result)
        return
    if sys.version_info < (3, 12):
        f.pop()
    f.push(end)
    f.jump(i)


@handler("GET_AWAITABLE", "GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH", "END_ASYNC_FOR")
def asynchronous(m, f, i):
    raise Unsupported("async code inside a compiled function")


# --- exceptions -------------------------------------------------------------------------------------------------------
def _raising_from(cause):
    raise Exception from cause


@handler("RAISE_VARARGS")
def raise_varargs(m, f, i):
    if i.arg == 0:
        error = handled(m)
        if error is None:
            m.throw(RuntimeError, "No active exception to reraise")
        raise UserError(error)
    cause = f.pop() if i.arg == 2 else None
    value = exception_from(m, f.pop())
    if cause is not None:
        if not is_none(cause):
            cause = exception_from(m, cause, _raising_from)
        m.mutate(value)
        value.slots["__cause__"] = cause
        value.slots["__suppress_context__"] = ConstantV(True)
    chain(m, value, anew=True)
    if isinstance(value, ExceptionV):
        value.trace = object()
    raise UserError(value)


@handler("PUSH_EXC_INFO")
def push_exc_info(m, f, i):
    value = f.pop()
    f.push(HandledV(value))
    f.push(value)


@handler("CHECK_EXC_MATCH")
def check_exc_match(m, f, i):
    wanted = f.pop()
    for one in wanted.all(m) if isinstance(wanted, TupleV) else [wanted]:
        real = one.as_constant() if one.is_constant() else None
        if not (isinstance(real, type) and issubclass(real, BaseException)):
            m.raise_real(TypeError("catching classes that do not inherit from BaseException is not allowed"))
    f.push(ConstantV(is_subclass(m, f.stack[-1].python_type(), wanted)))


@handler("POP_EXCEPT")
def pop_except(m, f, i):
    over = f.pop()  # of which cleaning up leaves a copy on the stack that means nothing any more
    f.stack[:] = [ConstantV(None) if slot is over else slot for slot in f.stack]


@handler("RERAISE")
def reraise(m, f, i):
    value = f.pop()
    if i.arg:
        f.stack.pop(-i.arg)
    raise UserError(value)


@handler("CHECK_EG_MATCH")
def check_eg_match(m, f, i):
    wanted, error = f.pop(), f.pop()
    f.stack.extend(exception_groups.match(m, f, error, wanted))


@handler("PREP_RERAISE_STAR", versions=BEFORE_312)
def prep_reraise_star(m, f, i):
    raised, original = f.pop(), f.pop()
    f.push(exception_groups.prepare(m, f, original, raised))


@handler("CALL_INTRINSIC_2", versions=SINCE_312)
def call_intrinsic_2(m, f, i):
    if i.arg != PREP_RERAISE_STAR:
        raise Unsupported("type parameters with bounds")
    prep_reraise_star(m, f, i)


@handler("CLEANUP_THROW", versions=SINCE_312)
def cleanup_throw(m, f, i):
    """Behind a ``yield from`` that an exception was thrown into: a StopIteration ends it with its value."""
    error = f.stack[-1]
    if not issubclass(error.python_type(), StopIteration):
        raise UserError(error)
    del f.stack[-3:]
    f.push(NONE)
    f.push(m.get_attr(error, "value"))


# --- with -------------------------------------------------------------------------------------------------------------
def _entering(manager):
    with manager:
        pass


def _special(m, owner, name):
    method = owner.method(m, name) if isinstance(owner, InstanceV) else None
    cls = owner.python_type()
    if method is None and (isinstance(owner, InstanceV) or m.class_lookup(cls, name) is MISSING):
        m.throw_as(_entering, namesake(cls, **({} if name == "__enter__" else {"__enter__": None})))
    return method or m.get_attr(owner, name)


@handler("BEFORE_WITH")
def before_with(m, f, i):
    manager = f.pop()
    enter = _special(m, manager, "__enter__")
    f.push(_special(m, manager, "__exit__"))
    f.push(m.call(enter, [], {}))


@handler("WITH_EXCEPT_START")
def with_except_start(m, f, i):
    value = f.stack[-1]
    leave = f.stack[-4]
    trace = value.traceback() if isinstance(value, ExceptionV) else ConstantV(None)
    args = [m.wrap(value.python_type()), value, trace]
    f.push(m.call(leave, args, {}))
