"""Builtin and library functions with a meaning of their own here: one table, keyed by the function itself."""

from __future__ import annotations

import _thread
import functools
import json
import math
import operator
import os
import sys
import typing
from types import FunctionType
from typing import Any

import torch

from ... import torch_compat
from ...bytecode.objects import namesake
from ...bytecode.operators import BY_FUNCTION
from ...marks import markers
from ...operators.traced_arrays import TRACED_METHODS
from ..errors import Unsupported, UserError
from ..guarding import class_guards as relied
from ..guarding.class_guards import as_class, is_subclass
from ..guarding.wrap import KNOWN_TYPES
from ..polyfills import POLYFILLS
from ..polyfills import builtins as polyfills
from ..protocol import MISSING, Machine, Value
from ..values import number, symbolic_strings
from ..values.binding import may_change, rely_on_bases
from ..values.constant import NONE, ConstantV, is_none
from ..values.containers import ListV, SequenceV, TupleV
from ..values.converted_branches import refuse_identity
from ..values.exceptions import handled
from ..values.functions import SuperV
from ..values.instance import ExceptionV, InstanceV, check_given, is_own_access
from ..values.iterators import IteratorV
from ..values.known import KnownV
from ..values.methods import CallableV
from ..values.number import NumberV
from ..values.opaque import OpaqueV
from ..values.overlays import Overlays
from ..values.tensor import TensorV
from .proxies import Proxy, calling, compared, fed, in_order, proxies, run, summed
from .registry import Answer, Apply, Fold, Polyfill, answers, folded, handles, means, named, of_modules, refuses

# --- computed from constants -----------------------------------------------------------------------------------------
of_modules(
    Fold, "math", "cmath", "_operator", "operator", "_struct", "re", "_sre", "fnmatch", "string", "_string", "zlib"
)
folded(
    str.maketrans, bytes.maketrans, sys.intern, os.fspath, ascii, bin, chr, format, hex, oct, ord, pow, round,
    operator.index, json.loads, json.dumps, *TRACED_METHODS.values(),
)  # fmt: skip


# --- types and attributes ---------------------------------------------------------------------------------------------
@handles(isinstance)
def isinstance_(m, args, kwargs):
    value, wanted = args
    return ConstantV(_isinstance(m, value, wanted))


def _isinstance(m: Machine, value: Value, wanted: Value) -> bool:
    if isinstance(wanted, TupleV):
        return any(_isinstance(m, value, w) for w in wanted.all(m))
    real = as_class(m, wanted)
    existing = getattr(value, "real", None)
    answers = m.class_lookup(type(real), "__instancecheck__") if isinstance(real, type) else type.__instancecheck__
    custom = answers is not type.__instancecheck__
    if type(answers) is FunctionType and may_change(m, type(real)):
        return m.truth(m.call(m.wrap(answers), [m.wrap(real), value], {}))
    if isinstance(value, TensorV) and existing is None:
        # made inside: a plain torch.Tensor, of which metaclasses ask the dtype (torch.FloatTensor) or attributes
        existing = torch.empty(0, dtype=value.fake.dtype, device=value.fake.device)
    found = _is_one(m, value, real, existing, custom)
    if custom:
        relied.rely_on_kind(m, value, value.python_type(), real, found)
    return found


def _is_one(m: Machine, value: Value, real: Any, existing: Any, custom: bool) -> bool:
    if isinstance(value, (KnownV, TensorV)) or (custom and existing is not None):
        return bool(m.real(isinstance, existing, real))
    if isinstance(value, NumberV):
        return bool(m.real(isinstance, value.known, real))
    if isinstance(value, ConstantV):
        return bool(m.real(isinstance, value.value, real))
    rely_on_bases(m, value.python_type())
    if m.real(issubclass, value.python_type(), real):
        return True
    pretended = pretended_class(m, value)
    return pretended is not None and bool(m.real(issubclass, pretended, real))


def pretended_class(m: Machine, value: Value) -> type | None:
    """What an object says of its class by itself, as proxies and mocks do; the bases of that are relied on."""
    if isinstance(value, OpaqueV) and value.python_type().__getattribute__ is not object.__getattribute__:
        raise Unsupported(f"what {value.a()} says is its class")
    if not isinstance(value, InstanceV):
        return None
    plain = is_own_access(m.class_lookup(value.cls, "__getattribute__"), "__getattribute__")
    if plain and m.class_lookup(value.cls, "__class__") is object.__dict__["__class__"]:
        return None
    found = m.get_attr(value, "__class__")
    if not isinstance(found, KnownV) or not isinstance(found.real, type):
        return None
    rely_on_bases(m, found.real)
    return found.real


@handles(issubclass)
def issubclass_(m, args, kwargs):
    return ConstantV(is_subclass(m, as_class(m, args[0]), args[1]))


def _attribute_name(value: Value) -> str:
    if isinstance(value, ConstantV) and isinstance(value.value, str):
        return value.value
    raise Unsupported("an attribute whose name is no constant string")


@handles(getattr)
def getattr_(m, args, kwargs):
    owner, name = args[0], _attribute_name(args[1])
    try:
        return m.get_attr(owner, name)
    except UserError as error:
        if len(args) == 3 and issubclass(error.value.python_type(), AttributeError):
            return args[2]
        raise


@handles(hasattr)
def hasattr_(m, args, kwargs):
    try:
        m.get_attr(args[0], _attribute_name(args[1]))
    except UserError as error:
        if issubclass(error.value.python_type(), AttributeError):
            return ConstantV(False)
        raise
    return ConstantV(True)


@handles(setattr)
def setattr_(m, args, kwargs):
    args[0].set_attr(m, _attribute_name(args[1]), args[2])
    return NONE


@handles(delattr)
def delattr_(m, args, kwargs):
    args[0].del_attr(m, _attribute_name(args[1]))
    return NONE


@handles(callable)
def callable_(m, args, kwargs):
    value = args[0]
    if isinstance(value, CallableV):
        return ConstantV(True)
    if isinstance(value, KnownV):
        return ConstantV(callable(value.real))
    return ConstantV(m.class_lookup(value.python_type(), "__call__") is not MISSING)


@handles(id)
def id_(m, args, kwargs):
    value = args[0]
    refuse_identity(m, [value])
    constant = isinstance(value, ConstantV) and not isinstance(value, NumberV)
    real = value.value if constant else getattr(value, "real", None)
    if real is None or value.source is None:
        # made inside: the number is as arbitrary as eager's, and unique while this capture lasts
        m.kept.append(value)
        return ConstantV(id(value if real is None else real))
    if not isinstance(value, KnownV):
        m.guard(value.source, "identity", real, "its id() was taken")
    return ConstantV(id(real))


@handles(vars)
def vars_(m, args, kwargs):
    return m.get_attr(args[0], "__dict__")


for _builtin in (dir, globals, eval, exec, compile, input, open, breakpoint, memoryview):
    refuses(_builtin, f"`{_builtin.__name__}()`, which looks at or changes what no graph holds")
refuses(markers.graph_break, "tg.graph_break()")


# --- numbers and truth ------------------------------------------------------------------------------------------------
@handles(len)
def len_(m, args, kwargs):
    value = args[0]
    return value.changing_length(m) or ConstantV(value.length(m))


@handles(abs, operator.abs)
def abs_(m, args, kwargs):
    return m.unary(abs, args[0])


@handles(divmod)
def divmod_(m, args, kwargs):
    if any(isinstance(value, NumberV) for value in args):
        parts = [number.operation(m, function, *args) for function in (operator.floordiv, operator.mod)]
        if None not in parts:
            return TupleV(parts)
    return m.fold(divmod, args, kwargs)


def _extreme(function: Any, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given: Any = [fed(m, args[0])] if len(args) == 1 else compared(m, args)
    if len(args) == 1 and isinstance(args[0], SequenceV):
        items = args[0].all(m)
        changing = number.called(m, function, items) if not kwargs and len(items) > 1 else None
        if changing is not None:
            return changing
        given = [compared(m, items)]
    options: dict[str, Any] = {name: Proxy(m, value) for name, value in kwargs.items()}
    if "key" in kwargs:
        options["key"] = None if is_none(kwargs["key"]) else calling(m, kwargs["key"])
    return run(m, function, *given, **options)


def _summed(function: Any, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    iterable, *start = args
    options = {name: summed(m, value) for name, value in kwargs.items()}
    return run(m, function, fed(m, iterable, summed), *(summed(m, value) for value in start), **options)


def _asked(function: Any, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What goes through an iterable and looks at the items: ``any(values)``, ``operator.indexOf(values, value)``."""
    return run(m, function, fed(m, args[0]), *proxies(m, args[1:]))


_RUN_BY_C: dict[Any, tuple[Any, ...]] = {
    _extreme: (min, max),
    _summed: (sum, math.prod),
    _asked: (any, all, operator.countOf, operator.indexOf),
}
for _meaning, _functions in _RUN_BY_C.items():
    for _function in _functions:
        handles(_function)(functools.partial(_meaning, _function))


@handles(functools.reduce)
def reduce_(m, args, kwargs):
    function, iterable, *initial = args
    return run(m, functools.reduce, calling(m, function), fed(m, iterable), *proxies(m, initial))


@handles(repr)
def repr_(m, args, kwargs):
    value = args[0]
    if isinstance(value, InstanceV):
        return check_given(m, "__repr__", value.cls, m.call(m.wrap(value.cls.__repr__), [value], {}))
    lasting = isinstance(getattr(value, "real", None), (type, *KNOWN_TYPES))
    if isinstance(value, KnownV) and not lasting and (m.mutated or m.state(Overlays).attributes):
        raise Unsupported(f"repr() of {value.a()}, which may show what the program has written")
    changing = symbolic_strings.shown(m, value)
    return m.fold(repr, args, kwargs) if changing is None else changing


@handles(hash)
def hash_(m, args, kwargs):
    value = args[0]
    given = value.special(m, "__hash__") if isinstance(value, InstanceV) else None
    if given is None:
        return m.fold(hash, args, kwargs)
    return m.wrap_result(_as_hash(given.value)) if isinstance(given, ConstantV) else given


def _as_hash(number: int) -> int:
    """What ``hash()`` makes of the number that ``__hash__`` gave."""
    if not -sys.maxsize <= number + 1 <= sys.maxsize + 1:
        return hash(number)
    return -2 if number == -1 else int(number)


# --- iteration --------------------------------------------------------------------------------------------------------
@handles(iter)
def iter_(m, args, kwargs):
    if len(args) == 2:
        return m.call(m.wrap(polyfills.iterate_until), args, {})
    return m.iterate(args[0])


@handles(next)
def next_(m, args, kwargs):
    if not isinstance(args[0], (IteratorV, InstanceV, OpaqueV)):
        m.throw_as(next, namesake(args[0].python_type()))
    method = args[0].method(m, "__next__") if isinstance(args[0], InstanceV) else None
    if method is not None and len(args) == 1:
        return m.call(method, [], {})
    value = args[0].next(m)
    if value is not None:
        return m.forced(value)
    if len(args) == 2:
        return args[1]
    if isinstance(args[0], IteratorV):
        args[0].stop(m)
    m.throw(StopIteration)


@handles(sorted)
def sorted_(m, args, kwargs):
    return ListV(in_order(m, m.listed(args[0]), kwargs))


@handles(operator.getitem)
def getitem_(m, args, kwargs):
    return m.forced(args[0].get_item(m, args[1]))


@handles(operator.setitem)
def setitem_(m, args, kwargs):
    args[0].set_item(m, args[1], args[2])
    return NONE


@handles(operator.delitem)
def delitem_(m, args, kwargs):
    args[0].del_item(m, args[1])
    return NONE


@handles(operator.call)
def call_(m, args, kwargs):
    return m.call(args[0], args[1:], kwargs)


@handles(operator.contains)
def contains_(m, args, kwargs):
    return ConstantV(args[0].contains(m, m.settled_key(args[1])))


handles(operator.is_)(lambda m, args, kwargs: ConstantV(m.identical(*args)))
handles(operator.is_not)(lambda m, args, kwargs: ConstantV(not m.identical(*args)))
handles(operator.not_)(lambda m, args, kwargs: ConstantV(not m.truth(args[0])))
handles(operator.truth)(lambda m, args, kwargs: ConstantV(m.truth(args[0])))


def _binary(function: Any) -> Apply:
    return lambda m, args, kwargs: m.binary(function, args[0], args[1])


def _unary(function: Any) -> Apply:
    return lambda m, args, kwargs: m.unary(function, args[0])


for _operator in BY_FUNCTION:
    handles(_operator)(_binary(_operator))
for _operator in (operator.neg, operator.invert, operator.pos):
    handles(_operator)(_unary(_operator))

for _real, _polyfill in POLYFILLS:
    means(Polyfill(_polyfill), _real)


# --- questions about torch ---------------------------------------------------------------------
answers(False, torch.jit.is_scripting, torch.jit.is_tracing)
named("traceback", "clear_frames")(Answer(None))  # what they hold here lives no longer for it
named("torch.onnx", "is_in_onnx_export")(Answer(False))
answers(0, torch_compat.dispatch_mode_count)  # nothing is compiled under a dispatch mode
answers(None, torch_compat.tracing_state, torch_compat.log_api_usage)


@handles(sys.exc_info)
def exc_info_(m, args, kwargs):
    value = handled(m)
    if value is None:
        return TupleV([NONE, NONE, NONE])
    trace = value.traceback() if isinstance(value, ExceptionV) else NONE
    return TupleV([m.wrap(value.python_type()), value, trace])


@handles(sys.exception)
def exception_(m, args, kwargs):
    return handled(m) or NONE


@handles(_thread.get_ident)
def get_ident_(m, args, kwargs):
    # reprlib and dataclasses take it as part of a key that lives as long as one call
    return ConstantV(_thread.get_ident())


@handles(torch.is_tensor)
def is_tensor_(m, args, kwargs):
    return ConstantV(isinstance(args[0], TensorV))


@handles(torch.is_floating_point)
def is_floating_point_(m, args, kwargs):
    return ConstantV(args[0].fake.is_floating_point())


@handles(typing.cast)
def cast_(m, args, kwargs):
    return args[1]


# --- closures, super --------------------------------------------------------------------------------------------------
def make_super(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``super()`` and ``super(cls, obj)``."""
    if not args:
        frame = m.frames[-1]
        cell = frame.cells.get("__class__")
        first = frame.code.co_varnames[0] if frame.code.co_argcount else None
        owner = frame.locals.get(first) if first else None
        if owner is None and first in frame.cells:
            owner = frame.cells[first].get(m)
        if cell is None or owner is None:
            m.throw(RuntimeError, "super(): no arguments")
        found = cell.get(m)
        if found is None:
            m.throw(RuntimeError, "super(): empty __class__ cell")
        args = [m.forced(found), m.forced(owner)]
    if len(args) != 2 or kwargs or not isinstance(args[0], KnownV) or not isinstance(args[0].real, type):
        raise Unsupported("`super` called with these arguments")
    cls_value, owner = args
    real_cls = cls_value.as_constant()
    if isinstance(owner, KnownV) and isinstance(owner.real, type) and real_cls in owner.real.__mro__:
        return SuperV(real_cls, owner, owner.real)
    of = owner.python_type()
    if real_cls not in of.__mro__:
        pretended = pretended_class(m, owner)
        if pretended is None or real_cls not in pretended.__mro__:
            real = getattr(owner, "real", None)
            like = type(namesake(real)) if isinstance(real, type) else namesake(of)
            m.throw_as(super, type(namesake(real_cls)), like)
        of = pretended
    return SuperV(real_cls, owner, of)
