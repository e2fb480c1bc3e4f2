"""What calling something means: builtins by table, torch operations into the graph, Python functions inlined."""

from __future__ import annotations

import functools
import logging
import operator
import re
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from types import (
    BuiltinFunctionType,
    FunctionType,
    GenericAlias,
    MethodDescriptorType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any

import torch

from ... import _native, torch_compat
from ...marks.markers import CONSTANT
from ...records.sources import Attr, Fixed, Global, Item, Referent, Source
from ..errors import NeedsData, Shown, Unsupported, fitting
from ..interp.binding import bind_arguments
from ..interp.frame import Frame
from ..polyfills import dicts as polyfill_dicts
from ..polyfills import scans as polyfill_scans
from ..polyfills import wrappers as polyfill_wrappers
from ..torch_api import autograd_function as autograd_functions
from ..torch_api import autograd_grad as gradients
from ..torch_api import checkpoint as checkpoints
from ..torch_api import compiler_functions, foreach, higher_order, optimizers, transforms, vjp
from ..torch_api import operations as tensor_ops
from ..torch_api import tensor_attributes as fields
from ..torch_api import torch_checks as checks
from ..torch_api import wrapped_calls as wrappers
from ..values import number
from ..values import symbolic_strings as texts
from ..values.arrays import ArrayV, is_numpy_function, numpy_draws
from ..values.base import Lazy, Value, home_of
from ..values.binding import MISSING, bind, is_of_c
from ..values.constant import ConstantV, is_constant_object
from ..values.containers import CellV, ListV, SequenceV, SetV, combined
from ..values.deques import DequeV
from ..values.dicts import DictV, DictViewV
from ..values.functions import FunctionV
from ..values.instance import InstanceV
from ..values.iterators import GeneratorV
from ..values.known import KnownV
from ..values.number import NumberV
from ..values.tensor import TensorV
from . import arity as arguments
from . import builtins as builtin_functions
from . import class_statement as class_bodies
from . import constructors as classes
from . import copying, diagnostics, equality
from . import library as standard_library
from . import methods as builtin_methods
from .of_types.lists import MOST_ITEMS, grow
from .registry import (
    BY_CODE,
    BY_MODULE,
    HIGHER_ORDER,
    METHODS,
    Fold,
    Inline,
    Meaning,
    Node,
    OfObject,
    Polyfill,
    Refuse,
    entered,
    meaning_of,
    named,
    rule,
    ruled,
)

if TYPE_CHECKING:
    from ..interp.machine import Machine

# Imported for the handlers that they enter.
WITH_HANDLERS = (
    autograd_functions, builtin_functions, checkpoints, checks, class_bodies, copying, diagnostics, fields, foreach,
    gradients, higher_order, optimizers, standard_library, transforms, vjp, wrappers,
)  # fmt: skip

# Functions of PyTorch's that are not followed, by name: they are imported by nobody but the program.
for (_module, _name), _polyfill in (polyfill_scans.BY_NAME | polyfill_wrappers.BY_NAME).items():
    named(_module, _name)(Polyfill(_polyfill))

IN_PYTHON = (FunctionType, _native.CompiledFunction)  # methods whose code can be followed
CODE_COROUTINE = 0x80 | 0x200
# Whose methods look at nothing else.
CONSTANT_OWNERS = (int, float, complex, str, bytes, bool, range, slice, torch.device, re.Pattern, re.Match)


def call_known(m: Machine, function: KnownV, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call an existing function, class or builtin."""
    real = function.real
    said = said_by_program(real)
    if said is not None:
        return said.call(m, function, args, kwargs)
    if id(real) in number.FUNCTIONS and not kwargs:
        found = number.called(m, real, args)
        if found is not None:
            return found
    row = entered(real)
    if row is not None:
        arguments.check(m, real, args, kwargs)
        return fitting(getattr(real, "__name__", "a builtin"), row.apply, m, args, kwargs)
    return ruled(real).call(m, function, args, kwargs)


def said_by_program(real: Any) -> Meaning | None:
    """What the program says that calling ``real`` means, which goes before what we say."""
    if type(real) is FunctionType:
        reason = tensor_ops.disabled(real)
        if reason is not None:
            return Refuse(reason)
        if real.__dict__.get(CONSTANT):
            return OfObject(_assumed_constant)
    substitute = compiler_functions.substitute_of(real)
    return None if substitute is None else Polyfill(substitute)


def _assumed_constant(m: Machine, function: KnownV, args: list[Value], kwargs: dict[str, Value]) -> Value:
    found = compiler_functions.constant_result(m, function.real, args, kwargs)
    return meaning_of(function.real).call(m, function, args, kwargs) if found is None else found


# --- what things mean that have no row of their own -------------------------------------------------------------------
@rule(FunctionType)
def _function(real: FunctionType) -> Meaning:
    if is_numpy_function(real):
        return Fold(real)
    return NODE if tensor_ops.is_operation(real) else _by_code(real)


def _by_code(real: FunctionType) -> Meaning:
    plain = torch_compat.untagged(real)
    if plain is not real:
        return Polyfill(plain)
    made_by = BY_CODE.get(real.__code__)
    if made_by is not None:
        return made_by
    refusal = tensor_ops.refused(real)
    return INLINE if refusal is None else Refuse(*refusal)


@rule(BuiltinFunctionType)
def _builtin(real: Any) -> Meaning:
    owner = real.__self__
    if is_numpy_function(real):
        return Fold(real)
    if tensor_ops.is_operation(real):
        return NODE
    if isinstance(owner, CONSTANT_OWNERS) and not isinstance(owner, type):
        pure = (type(owner), real.__name__) not in METHODS
    else:
        pure = BY_MODULE.get(real.__module__) is Fold
    if pure:
        return Fold(real)
    if isinstance(owner, type):  # a class method of a C type: dict.fromkeys, int.from_bytes, object.__new__
        return CLASS_METHOD
    if owner is not None and not isinstance(owner, ModuleType):
        method = getattr(type(owner), real.__name__, None)
        if isinstance(method, (MethodDescriptorType, WrapperDescriptorType)):
            return BOUND_METHOD
    hint = "call it outside the compiled function, or let the graph break"
    return Refuse(f"calling the builtin {KnownV(real).describe()}", hint)


def _class_method(m: Machine, function: KnownV, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return builtin_methods.call_class_method(m, function.real.__self__, function.real, args, kwargs)


def _bound_method(m: Machine, function: KnownV, args: list[Value], kwargs: dict[str, Value]) -> Value:
    real = function.real
    owner = m.wrap(real.__self__, Attr(function.source, "__self__") if function.source else None)
    return call_descriptor(m, getattr(type(real.__self__), real.__name__), [owner, *args], kwargs)


@rule(MethodWrapperType)
def _slot(real: Any) -> Meaning:
    return SLOT


def _call_slot(m: Machine, function: KnownV, args: list[Value], kwargs: dict[str, Value]) -> Value:
    real = function.real
    owner = m.wrap(real.__self__, None)
    return call_descriptor(m, getattr(type(real.__self__), real.__name__), [owner, *args], kwargs)


@rule(MethodDescriptorType, WrapperDescriptorType)
def _descriptor(real: Any) -> Meaning:
    return DESCRIPTOR


@rule(torch_compat.OpOverload, torch_compat.OpOverloadPacket)
def _operator(real: Any) -> Meaning:
    return NODE


def _operate(m: Machine, function: KnownV, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A node; PyTorch's function in Python is followed where it gets what no node takes, or asks for data."""
    real = function.real
    if tensor_ops.takes_code(real, [*args, *kwargs.values()]):
        return _by_code(real).call(m, function, args, kwargs)
    try:
        return tensor_ops.call_function(m, real, args, kwargs)
    except NeedsData as error:
        if tensor_ops.is_opaque(real):
            raise
        try:  # what it asks of data may be a check that can wait
            return inline(m, function, args, kwargs)
        except Unsupported:
            raise error from None


@rule(torch_compat.HigherOrderOperator)
def _higher_order(real: Any) -> Meaning:
    return HIGHER_ORDER.get(real.name()) or Refuse(f"torch.ops.higher_order.{real.name()}")


@rule(torch.library.CustomOpDef)
def _custom(real: Any) -> Meaning:
    return Node(_call_custom)


def _call_custom(m: Machine, function: KnownV, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if m.function_modes:
        raise Unsupported("a custom operator under a TorchFunctionMode")
    return tensor_ops.call_function(m, function.real._opoverload, args, kwargs)


@rule(_native.CompiledFunction)
def _compiled(real: Any) -> Meaning:
    return Inline(_call_compiled)


def _call_compiled(m: Machine, function: KnownV, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A compiled function called from compiled code is inlined like any other."""
    real = function.real
    base = Attr(function.source, "bound") if function.source else None
    bound = [m.wrap(b, Item(base, i) if base else None) for i, b in enumerate(real.bound)]
    inner = Attr(function.source, "function") if function.source else None
    return m.call(m.wrap(real.function, inner), [*bound, *args], kwargs)


@rule(weakref.ref)
def _reference(real: Any) -> Meaning:
    return OfObject(_call_reference)


def _call_reference(m: Machine, function: KnownV, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return m.wrap(function.real(), Referent(function.source) if function.source else None)


@rule(type)
def _class(real: type) -> Meaning:
    return CLASS


def _construct(m: Machine, function: KnownV, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return classes.construct(m, function.real, args, kwargs)


@rule(GenericAlias)
def _alias(real: Any) -> Meaning:
    """Instances that have a ``__dict__`` keep what they were made of."""
    return _object(real) if getattr(real.__origin__, "__dictoffset__", 1) else Polyfill(real.__origin__)


@rule(functools._lru_cache_wrapper)
def _cached(real: Any) -> Meaning:
    return _object(real) if getattr(real, "__wrapped__", None) is None else OfObject(_call_cached)


@rule(torch.jit.ScriptFunction)
def _scripted(real: Any) -> Meaning:
    """Before its class, whose ``__call__`` torch.testing puts a function of its own on."""
    scripted = _scripted_from(real)
    return _object(real) if scripted is None else Polyfill(scripted)


@rule(object)
def _object(real: Any) -> Meaning:
    return Fold(real) if is_numpy_function(real) else OBJECT


def _call_object(m: Machine, function: KnownV, args: list[Value], kwargs: dict[str, Value]) -> Value:
    real = function.real
    method = m.class_lookup(type(real), "__call__")
    if isinstance(method, IN_PYTHON):
        return m.call(m.wrap_known(method), [function, *args], kwargs)
    if numpy_draws(real):
        raise Unsupported(f"`numpy.random.{real.__name__}`, which draws random numbers", "draw them before the call")
    raise Unsupported(f"calling the {function.describe()}")


def _call_cached(m: Machine, function: KnownV, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A function under ``functools.lru_cache``: its author promised that only the arguments matter."""
    real = function.real
    wrapped = real.__wrapped__
    cells = getattr(wrapped, "__closure__", None) or ()
    written = any(isinstance(v, CellV) and any(v.real is cell for cell in cells) for v in m.mutated.values())
    if not written and all(isinstance(a, ConstantV) for a in (*args, *kwargs.values())):
        result = _call_now(m, real, args, kwargs)
        if is_constant_object(result):
            return ConstantV(result)
    try:
        with m.sealed(f"the cached `{getattr(wrapped, '__qualname__', type(wrapped).__name__)}`"):
            return m.call(m.wrap_known(wrapped), args, kwargs)
    except Shown:  # once, as transformers' `logger.warning_once` does: now
        for logger in (a for a in args if isinstance(a, InstanceV) and isinstance(a.real, logging.Logger)):
            m.guard(logger.source or Fixed(logger.real), "identity", logger.real, "was written to")
        result = _call_now(m, real, args, kwargs)
        if not is_constant_object(result):
            raise
        return ConstantV(result)


def _call_now(m: Machine, real: Any, args: list[Value], kwargs: dict[str, Value]) -> Any:
    def given(value: Value) -> Any:
        logger = getattr(value, "real", None)
        return logger if isinstance(logger, logging.Logger) else m.settle(value).as_constant()

    return m.real(real, *map(given, args), **{k: given(v) for k, v in kwargs.items()})


def _scripted_from(real: Any) -> FunctionType | None:
    """The Python function that ``torch.jit.script`` made this one from, if it did. What ``torch.jit.trace`` made is not
    its function any more: the branches that were taken are all it has.
    """
    if not isinstance(real, torch.jit.ScriptFunction) or "__qualname__" not in real.__dict__:
        return None
    original = real.__dict__.get("_torchdynamo_inline")
    return original if type(original) is FunctionType else None


def call_descriptor(m: Machine, descriptor: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call a method of a C type with the object as first argument."""
    return builtin_methods.call(m, descriptor, args, kwargs)


def calls_arguments(function: Any) -> bool:
    """Whether a function may call one that it is given, as ``re.Pattern.sub`` does."""
    return getattr(function, "__module__", None) not in ("builtins", "_operator", "typing")


# --- inlining ---------------------------------------------------------------------------------------------------------
def inline(m: Machine, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Interpret a Python function's body."""
    if isinstance(function, FunctionV):
        code, namespace, module = function.code, function.namespace, function.module_source
        closure = function.closure
        variables = bind_arguments(m, code, function.called(m), args, kwargs, function.defaults, function.kwdefaults)
    else:
        real = function.real
        code, namespace = real.__code__, real.__globals__
        source = source_of(m, function)
        module = module_of(m, real, source)
        if source is not None and not m.is_stable(home_of(real)):
            m.guard(Attr(source, "__code__"), "identity", code, "it was called")
        closure = closure_of(m, real, source)
        variables = bind_arguments(m, code, real.__qualname__, args, kwargs, *defaults_of(m, real, source))
    if code.co_flags & CODE_COROUTINE:
        raise Unsupported(f"calling the coroutine function `{code.co_qualname}`")
    frame = Frame(code, namespace, module, variables, closure)
    _, value = m.run_frame(frame)
    if isinstance(value, GeneratorV) and value.frame is frame:
        value.names = {name: _name_of(m, function, name) for name in value.names}
    return value


def _name_of(m: Machine, function: Any, name: str) -> str:
    if isinstance(function, FunctionV):
        return function.called(m, name)
    written = m.overlays.attribute(function.real, name)
    return str(getattr(function.real, name) if written is None else written.as_constant())


def module_of(m: Machine, function: FunctionType, source: Source | None) -> str:
    """How sources name a function's globals: '' for the compiled function's own."""
    if function.__globals__ is m.function.__globals__:
        return ""
    import sys

    name = function.__globals__.get("__name__", "")
    module = sys.modules.get(name)
    if module is not None and module.__dict__ is function.__globals__:
        return str(name)
    return m.overlays.pin(function, None if m.is_stable(name) else source)


def source_of(m: Machine, function: KnownV) -> Source | None:
    """How to reach what a function closes over: by itself where it was found without a way that leads to it."""
    stable = m.is_stable(function.real.__globals__.get("__name__"))
    return function.source if function.source is not None or stable else Fixed(function.real)


def closure_of(m: Machine, function: FunctionType, source: Source | None) -> list[CellV]:
    cells = function.__closure__ or ()
    base: Source | None = Attr(source, "__closure__") if source else None
    result = []
    for n, cell in enumerate(cells):
        value = m.wrap(cell, Item(base, n) if base else None)
        assert isinstance(value, CellV)
        result.append(value)
    return result


def defaults_of(m: Machine, function: FunctionType, source: Source | None) -> tuple[list[Any], dict[str, Any]]:
    base = Attr(source, "__defaults__") if source else None
    defaults = [Lazy(v, Item(base, n) if base else None) for n, v in enumerate(function.__defaults__ or ())]
    kwbase = Attr(source, "__kwdefaults__") if source else None
    _, written = m.wrapped.get(id(function.__kwdefaults__), (None, None))
    if isinstance(written, DictV) and id(written) in m.mutated:
        return defaults, {key.as_constant(): value for key, value in written.pairs(m)}
    kwdefaults = {k: Lazy(v, Item(kwbase, k) if kwbase else None) for k, v in (function.__kwdefaults__ or {}).items()}
    return defaults, kwdefaults


NODE, INLINE = Node(_operate), Inline(inline)
CLASS, OBJECT = OfObject(_construct), OfObject(_call_object)
CLASS_METHOD, BOUND_METHOD, SLOT = OfObject(_class_method), OfObject(_bound_method), OfObject(_call_slot)
DESCRIPTOR = OfObject(lambda m, function, args, kwargs: call_descriptor(m, function.real, args, kwargs))


# --- modules ----------------------------------------------------------------------------------------------------------
def call_module(m: Machine, module: InstanceV, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call an nn.Module: straight to ``forward`` when no hook is registered, else through PyTorch's own code."""
    call = m.class_lookup(module.cls, "__call__")
    assert module.attrs is not None
    standard = call is torch.nn.Module.__dict__["__call__"] or isinstance(call, _native.ModuleCall)
    if standard and not _has_hooks(m, module):
        return m.call(m.get_attr(module, "forward"), args, kwargs)
    if standard:
        inner = m.wrap_known(torch.nn.Module.__dict__["_call_impl"])
        return m.call(inner, [module, *args], kwargs)
    return m.call(m.wrap_known(call), [module, *args], kwargs)


def _has_hooks(m: Machine, module: InstanceV) -> bool:
    found = False
    for name in torch_compat.SHARED_HOOKS:
        real = getattr(torch.nn.modules.module, name)
        _, known = m.wrapped.get(id(real), (None, None))
        if known is not None and id(known) in m.mutated:
            found = found or m.truth(known)
            continue
        m.guard(Global(name, "torch.nn.modules.module"), "length", len(real), "a hook for all modules would run")
        found = found or bool(real)
    assert module.attrs is not None
    for name in torch_compat.OWN_HOOKS:
        hooks = module.attrs.lookup(m, name)
        if hooks is not None and hooks.truth(m):
            found = True
    compiled = module.attrs.lookup(m, "_compiled_call_impl")
    if compiled is not None and compiled.truth(m):
        raise Unsupported("a module on which `.compile()` was called", "drop the inner `.compile()`")
    return found


# --- operators --------------------------------------------------------------------------------------------------------
REFLECTED = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.truediv: "truediv",
    operator.matmul: "matmul",
    operator.floordiv: "floordiv", operator.mod: "mod", operator.pow: "pow", operator.lshift: "lshift",
    operator.rshift: "rshift", operator.and_: "and", operator.or_: "or", operator.xor: "xor",
}  # fmt: skip
KEPT_BY_OR = (OrderedDict, defaultdict)  # the first of these decides what `|` of dictionaries makes
INPLACE = {getattr(operator, "i" + name): function for function, name in REFLECTED.items()}
SWAPPED = {
    operator.lt: "gt", operator.gt: "lt", operator.le: "ge", operator.ge: "le", operator.eq: "eq", operator.ne: "ne",
}  # fmt: skip


def binary(m: Machine, function: Callable[..., Any], left: Value, right: Value) -> Value:
    """``left <operator> right``; ``function`` is the one of the operator module."""
    left, right = m.forced(left), m.forced(right)
    if isinstance(left, TensorV) and isinstance(right, InstanceV):
        result = m.overridden(function, [left, right], {})
        if result is not None:
            return result
    if isinstance(left, InstanceV) or isinstance(right, InstanceV):
        result = _by_methods(m, function, left, right)
        if result is not None:
            return result
        result = _merged(m, function, left, right) or _of_payloads(m, function, left, right)
        return left if function in INPLACE and isinstance(left, InstanceV) and result is left.payload else result
    return _of_payloads(m, function, left, right)


def _merged(m: Machine, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
    """``left | right`` and ``left |= right`` of dictionaries where one is of a class that does it in its own way."""
    if function is operator.ior and isinstance(left, InstanceV) and issubclass(left.cls, OrderedDict):
        m.call(m.wrap_known(polyfill_dicts.update_of_ordered), [left, right], {})
        return left
    if function is not operator.or_ or not all(issubclass(v.python_type(), dict) for v in (left, right)):
        return None
    of_kind = [v for v in (left, right) if issubclass(v.python_type(), KEPT_BY_OR)]
    return m.call(m.wrap_known(polyfill_dicts.merged), [of_kind[0], left, right], {}) if of_kind else None


def _of_payloads(m: Machine, function: Callable[..., Any], left: Value, right: Value) -> Value:
    """The operator as builtin types know it."""
    left, right = _payload(left), _payload(right)
    plain = INPLACE.get(function, function)
    if isinstance(left, TensorV):
        left.rely_on(m, _special_name(function))
        return m.torch_call(function, [left, right], {})
    if isinstance(right, TensorV) and issubclass(left.python_type(), (str, bytes)):
        raise Unsupported("formatting a tensor", "print tensors outside the compiled function")
    if isinstance(right, TensorV) and not isinstance(left, SequenceV):
        right.rely_on(m, _special_name(plain, reflected=True))
        # numbers have no in-place operators: `n += tensor` makes a new tensor
        return m.torch_call(plain, [left, right], {})
    if isinstance(left, NumberV) or isinstance(right, NumberV):
        found = number.binary(m, plain, left, right)
        if found is not None:
            return found
    if plain is operator.mod and (text := texts.filled_in(m, left, right)) is not None:
        return text
    for kinds, implementation in _CONTAINER_OPERATORS:
        if isinstance(left, kinds) or isinstance(right, kinds):
            result = implementation(m, function, plain, left, right)
            if result is not None:
                return result
    left, right = m.settle(left), m.settle(right)
    if plain in (operator.eq, operator.ne):
        same = equality.equal(m, left, right)
        if same is not None:
            return ConstantV(same == (plain is operator.eq))
    if isinstance(left, ArrayV) and function is not plain:
        left.refuse_when_sealed(m)
    return m.fold(function if isinstance(left, (ConstantV, ArrayV)) else plain, [left, right], {})


def _payload(value: Value) -> Value:
    return value.payload if isinstance(value, InstanceV) and value.payload is not None else value


def _by_methods(m: Machine, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
    """The special methods of user classes; None when no side defines one (builtin bases may still)."""
    plain = INPLACE.get(function)
    if plain is not None:
        result = _try_method(m, left, _special_name(function), right)
        if result is not None:
            return result
        function = plain
    names = _special_name(function), _special_name(function, reflected=True)
    tries = [(left, names[0], right), (right, names[1], left)]
    if _goes_first(m, function, left.python_type(), right.python_type(), names[1]):
        tries.reverse()
    elif function not in SWAPPED and left.python_type() is right.python_type():
        tries.pop()
    for owner, name, other in tries:
        result = _try_method(m, owner, name, other)
        if result is None and function is operator.ne and m.class_lookup(owner.python_type(), name) is object.__ne__:
            equal = _try_method(m, owner, "__eq__", other)
            result = None if equal is None else ConstantV(not m.truth(equal))
        if result is not None:
            return result
    return None


def _special_name(function: Callable[..., Any], reflected: bool = False) -> str:
    """The special method of an operator, of its left operand or the right one's."""
    if function in SWAPPED:
        return f"__{SWAPPED[function] if reflected else function.__name__}__"
    if function in INPLACE:
        return f"__i{REFLECTED[INPLACE[function]]}__"
    return f"__{'r' if reflected else ''}{REFLECTED[function]}__"


def _goes_first(m: Machine, function: Callable[..., Any], left: type, right: type, name: str) -> bool:
    """Whether the right operand is asked before the left: its class derives from the left's and has its own answer."""
    if left is right or left not in right.__mro__:
        return False
    return function in SWAPPED or m.class_lookup(right, name) is not m.class_lookup(left, name)


def _try_method(m: Machine, owner: Value, name: str, other: Value) -> Value | None:
    if not isinstance(owner, InstanceV):
        return None
    attribute = m.class_lookup(owner.cls, name)
    if attribute is MISSING or is_of_c(attribute):
        return None
    if attribute is None:
        m.throw(TypeError, "'NoneType' object is not callable")
    result = m.call(bind(m, attribute, owner, owner.cls, name), [other], {})
    if isinstance(result, ConstantV) and result.value is NotImplemented:
        return None
    return result


def _sequence_operator(m: Machine, function: Any, plain: Any, left: Value, right: Value) -> Value | None:
    if plain is operator.mul:
        if isinstance(left, SequenceV):
            return _times(m, left, right, in_place=function is not plain)
        assert isinstance(right, SequenceV)
        if issubclass(left.python_type(), (str, bytes)):
            m.throw(TypeError, f"can't multiply sequence by non-int of type '{right.python_type().__name__}'")
        return _times(m, right, left, in_place=False)
    if function is operator.iadd and isinstance(left, ListV):
        grow(m, left, right)
        return left
    if not (isinstance(left, SequenceV) and isinstance(right, SequenceV)):
        return None
    if plain is operator.add and type(left) is type(right):
        for one, other in ((left, right), (right, left)):
            if one.cls is tuple is other.cls and not one.items:
                return other
        if isinstance(left, DequeV):
            return DequeV.of(left.all(m) + right.all(m), left.maxlen)
        cls = list if isinstance(left, ListV) else _sum_class(left.cls, right.cls)
        return type(left)(left.all(m) + right.all(m), cls)
    asked = plain in (operator.eq, operator.ne)
    if asked and (type(left) is not type(right) or len(left.items) != len(right.items)):
        return ConstantV(plain is operator.ne)
    left.all(m), right.all(m)
    if not asked and (plain not in SWAPPED or type(left) is not type(right)):
        return None
    if not asked and left.is_constant() and right.is_constant():
        return None
    position = 0
    while position < min(len(left.items), len(right.items)):  # comparing items may change the lists
        mine, theirs = left.at(m, position), right.at(m, position)
        if not m.equal(mine, theirs):
            break
        position += 1
    if position >= min(len(left.items), len(right.items)):
        return ConstantV(plain(len(left.items), len(right.items)))
    return ConstantV(plain is operator.ne) if asked else m.binary(plain, mine, theirs)


def _times(m: Machine, repeated: SequenceV, number: Value, in_place: bool) -> Value:
    """``repeated * number``; a list's ``*=`` changes the list."""
    if not isinstance(number, TensorV) and m.class_lookup(number.python_type(), "__index__") is MISSING:
        m.throw(TypeError, f"can't multiply sequence by non-int of type '{number.python_type().__name__}'")
    count = m.as_index(number)
    if repeated.cls is tuple and count == 1:
        return repeated
    if len(repeated.items) * count > MOST_ITEMS:
        raise Unsupported(f"a sequence of over {MOST_ITEMS:,} items")
    items = repeated.all(m) * count
    if isinstance(repeated, DequeV):
        if in_place:
            repeated.replace(m, items)
        return repeated if in_place else DequeV.of(items, repeated.maxlen)
    if in_place and isinstance(repeated, ListV):
        m.mutate(repeated)
        repeated.items = items
        return repeated
    return type(repeated)(items, repeated.cls if repeated.cls in (list, torch.Size) else None)


def _sum_class(left: type, right: type) -> type:
    """The class of the sum of two tuples: torch.Size has rules of its own."""
    if torch.Size in (left, right):
        return type((torch.Size if left is torch.Size else tuple)() + (torch.Size if right is torch.Size else tuple)())
    return tuple


def _dict_operator(m: Machine, function: Any, plain: Any, left: Value, right: Value) -> Value | None:
    if not (isinstance(left, DictV) and isinstance(right, DictV)):
        return None
    if plain is operator.or_:
        if function is operator.ior:
            for key, value in right.pairs(m):
                left.set_item(m, key, value)
            return left
        result = DictV.of(left.pairs(m) + right.pairs(m))
        model = next((v for v in (left, right) if issubclass(v.cls, KEPT_BY_OR)), None)
        if model is not None:
            result.cls, result.default_factory = model.cls, model.default_factory
        return result
    if plain in (operator.eq, operator.ne):
        right.fill(m)
        mine = left.pairs(m)
        same = len(mine) == len(right.items) and all(
            right.contains(m, k) and m.equal(v, right.get_item(m, k)) for k, v in mine
        )
        if issubclass(left.cls, OrderedDict) and issubclass(right.cls, OrderedDict):
            same = same and list(left.items) == list(right.items)
        return ConstantV(same == (plain is operator.eq))
    return None


def _set_operator(m: Machine, function: Any, plain: Any, left: Value, right: Value) -> Value | None:
    left_set = as_set(m, left)
    right_set = as_set(m, right)
    if left_set is None or right_set is None:
        return None
    a, b = left_set.items, right_set.items
    if plain in (operator.eq, operator.ne):
        return ConstantV((a.keys() == b.keys()) == (plain is operator.eq))
    if plain in (operator.le, operator.lt, operator.ge, operator.gt):
        return ConstantV(plain(a.keys(), b.keys()))
    if plain not in _SET_RULES:
        return None
    made = combined(_SET_RULES[plain], left.cls if isinstance(left, SetV) else set, a, b)
    if function is not plain and isinstance(left, SetV) and left.cls is set:
        m.mutate(left)
        left.items, left.order = made.items, made.order
        return left
    return made


_SET_RULES = {
    operator.or_: "union",
    operator.and_: "intersection",
    operator.sub: "difference",
    operator.xor: "symmetric_difference",
}


def as_set(m: Machine, value: Value) -> SetV | None:
    if isinstance(value, SetV):
        return value
    if isinstance(value, DictViewV) and value.kind in ("keys", "items"):
        return SetV(value.listed(m))
    return None


_CONTAINER_OPERATORS: tuple[tuple[Any, Callable[..., Value | None]], ...] = (
    (SequenceV, _sequence_operator),
    (DictV, _dict_operator),
    ((SetV, DictViewV), _set_operator),
)

UNARY_METHODS = {operator.neg: "__neg__", operator.invert: "__invert__", operator.pos: "__pos__", abs: "__abs__"}


def unary(m: Machine, function: Callable[..., Any], value: Value) -> Value:
    if isinstance(value, TensorV):
        value.rely_on(m, UNARY_METHODS[function])
        return m.torch_call(function, [value], {})
    if isinstance(value, InstanceV):
        method = value.method(m, UNARY_METHODS[function])
        if method is not None:
            return m.call(method, [], {})
    found = number.unary(m, function, value) if isinstance(value, NumberV) else None
    return m.fold(function, [value], {}) if found is None else found
