"""What calling something means: builtins by table, torch operations into the graph, Python functions inlined."""

from __future__ import annotations

import functools
import logging
import re
import weakref
from types import (
    BuiltinFunctionType,
    FunctionType,
    GenericAlias,
    MethodDescriptorType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import torch

from ... import _native, torch_compat
from ...marks.markers import CONSTANT
from ...records.sources import Attr, Fixed, Global, Item, Referent
from ..errors import NeedsData, Shown, Unsupported, fitting
from ..polyfills import scans as polyfill_scans
from ..polyfills import wrappers as polyfill_wrappers
from ..protocol import Machine, Value
from ..torch_api import anomaly_detection as anomalies
from ..torch_api import autograd_function as autograd_functions
from ..torch_api import autograd_grad as gradients
from ..torch_api import checkpoint as checkpoints
from ..torch_api import compiler_functions, foreach, higher_order, optimizers, saved_tensor_hooks, transforms, vjp
from ..torch_api import operations as tensor_ops
from ..torch_api import tensor_attributes as fields
from ..torch_api import torch_checks as checks
from ..torch_api import wrapped_calls as wrappers
from ..values import number
from ..values.arrays import is_numpy_function, numpy_draws
from ..values.constant import ConstantV, is_constant_object
from ..values.containers import CellV
from ..values.function_modes import FunctionModes
from ..values.instance import InstanceV, call_module
from ..values.known import KnownV, call_known
from ..values.methods import call_descriptor
from ..values.sealing import sealed
from . import arity as arguments
from . import builtins as builtin_functions
from . import class_statement as class_bodies
from . import constructors as classes
from . import copying, diagnostics, locks, recursion, signatures
from . import library as standard_library
from . import methods as builtin_methods
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

# Imported for the handlers that they enter.
WITH_HANDLERS = (
    anomalies, autograd_functions, builtin_functions, checkpoints, checks, class_bodies, copying, diagnostics, fields,
    foreach, gradients, higher_order, locks, optimizers, recursion, saved_tensor_hooks, signatures, standard_library,
    transforms, vjp, wrappers,
)  # fmt: skip

# Functions of PyTorch's that are not followed, by name: they are imported by nobody but the program.
for (_module, _name), _polyfill in (polyfill_scans.BY_NAME | polyfill_wrappers.BY_NAME).items():
    named(_module, _name)(Polyfill(_polyfill))

IN_PYTHON = (FunctionType, _native.CompiledFunction)  # methods whose code can be followed
# Whose methods look at nothing else.
CONSTANT_OWNERS = (int, float, complex, str, bytes, bool, range, slice, torch.device, re.Pattern, re.Match)


@call_known.defined
def _call_known(m: Machine, function: KnownV, args: list[Value], kwargs: dict[str, Value]) -> Value:
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
            return m.inline(function, args, kwargs)
        except Unsupported:
            raise error from None


@rule(torch_compat.HigherOrderOperator)
def _higher_order(real: Any) -> Meaning:
    return HIGHER_ORDER.get(real.name()) or Refuse(f"torch.ops.higher_order.{real.name()}")


@rule(torch.library.CustomOpDef)
def _custom(real: Any) -> Meaning:
    return Node(_call_custom)


def _call_custom(m: Machine, function: KnownV, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if m.state(FunctionModes).entered:
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
        return m.call(m.wrap(method), [function, *args], kwargs)
    if numpy_draws(real):
        raise Unsupported(f"`numpy.random.{real.__name__}`, which draws random numbers", "draw them before the call")
    raise Unsupported(f"calling the {function.describe()}")


def _call_cached(m: Machine, function: KnownV, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A function under ``functools.lru_cache``: its author promised that only the arguments matter."""
    real = function.real
    wrapped = real.__wrapped__
    cells = getattr(wrapped, "__closure__", None) or ()
    if any(isinstance(v, CellV) and any(v.real is cell for cell in cells) for v in m.mutated.values()):
        raise Unsupported("a cached function that reads a variable which was set since the call began")
    if all(isinstance(a, ConstantV) for a in (*args, *kwargs.values())):
        result = _call_now(m, real, args, kwargs)
        if is_constant_object(result):
            return ConstantV(result)
    try:
        with sealed(m, f"the cached `{getattr(wrapped, '__qualname__', type(wrapped).__name__)}`"):
            return m.call(m.wrap(wrapped), args, kwargs)
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


NODE, INLINE = Node(_operate), Inline(lambda m, function, args, kwargs: m.inline(function, args, kwargs))
CLASS, OBJECT = OfObject(_construct), OfObject(_call_object)
CLASS_METHOD, BOUND_METHOD, SLOT = OfObject(_class_method), OfObject(_bound_method), OfObject(_call_slot)
DESCRIPTOR = OfObject(lambda m, function, args, kwargs: call_descriptor(m, function.real, args, kwargs))


# --- modules ----------------------------------------------------------------------------------------------------------
@call_module.defined
def _call_module(m: Machine, module: InstanceV, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Straight to ``forward`` when no hook is registered, else through the code of its class: PyTorch's, or what
    somebody put in its place.
    """
    cls = module.cls
    call = m.class_lookup(cls, "__call__")
    if isinstance(call, _native.ModuleCall):
        call = m.class_lookup(type(cls._torchglass_original), "__call__")  # type: ignore[attr-defined]
    assert module.attrs is not None
    standard = torch_compat.is_of_module(call) and torch_compat.is_of_module(m.class_lookup(cls, "_call_impl"))
    if standard and not _has_hooks(m, module):
        return m.call(m.get_attr(module, "forward"), args, kwargs)
    return m.call(m.wrap(call), [module, *args], kwargs)


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
