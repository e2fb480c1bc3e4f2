"""Real objects in, symbolic values out: one table by type decides the kind, the guard, and how deep to look.

wrap(m, model, Local("self"))  ->  InstanceV(BertModel)   and a guard on its type
"""

from __future__ import annotations

import functools
import gc
import logging
import math
import operator
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import Any

import torch
import torch.library

from ... import torch_compat
from ...bytecode.objects import is_heap_type
from ...operators.traced_arrays import is_traced
from ...records.guards import TensorMeta
from ...records.sources import Attr, Computed, Constant, Fixed, Source
from ..errors import Unsupported
from ..graph.builder import GraphBuilder
from ..graph.symbolic_layouts import symbolic_layout
from ..protocol import Machine, Value
from ..values import number
from ..values.arrays import ArrayV, TracedArrayV, is_array
from ..values.closure import ClosureV, is_made_anew
from ..values.constant import ConstantV, is_constant_object
from ..values.containers import KINDS, CellV, ListV, SetV, TupleV
from ..values.dicts import DictV
from ..values.functions import PartialV
from ..values.instance import ExceptionV, InstanceV, source_of_dict
from ..values.known import KnownV
from ..values.methods import BuiltinMethodV, MethodV
from ..values.opaque import OpaqueV, is_opaque
from ..values.sizes import of_symbolic
from ..values.tensor import TensorV
from . import no_alias_guards as told_apart

Wrapper = Callable[["Machine", Any, Source | None], Value]

KNOWN_TYPES: tuple[type, ...] = (
    FunctionType, BuiltinFunctionType, ModuleType, MethodDescriptorType, WrapperDescriptorType, MethodWrapperType,
    GetSetDescriptorType, MemberDescriptorType, ClassMethodDescriptorType, staticmethod, classmethod, property,
    torch_compat.OpOverload, torch_compat.OpOverloadPacket, torch.library.CustomOpDef,
)  # fmt: skip


def wrap(m: Machine, real: Any, source: Source | None) -> Value:
    """A value for an existing object. The same object reached twice is one value (and a guard that it stays so)."""
    if is_constant_object(real):
        changing = number.outside(m, real, source)
        if changing is not None:
            return changing
        if source is not None:
            _guard_constant(m, real, source)
        return ConstantV(real, source)
    known = m.wrapped.get(id(real))
    if known is not None:
        value = known[1]
        if source is not None and value.source is None and not isinstance(value, TensorV):
            value.source = source
            if isinstance(real, type):
                m.guard(source, "identity", real, "was called or read")
                m.class_sources.setdefault(real, source)
        elif source is not None and value.source is not None and source != value.source:
            if isinstance(value, ClosureV) or not isinstance(value, KnownV):
                m.guard(source, "same", value.source, "both names reached one object")
            else:
                m.guard(source, "identity", real, "was called or read")
        return value
    value = _wrap_new(m, real, source)
    # the object is kept with its value: an id must not be used again while this capture lasts
    m.wrapped[id(real)] = (real, value)
    return value


def _guard_constant(m: Machine, real: Any, source: Source) -> None:
    m.guard(source, "constant", real, "its value was used")
    for name in ("start", "stop", "step") if type(real) is range else ():  # ranges of the same numbers are equal
        m.guard(Attr(source, name), "constant", getattr(real, name), "its value was used")


def _wrap_new(m: Machine, real: Any, source: Source | None) -> Value:
    cls = type(real)
    if source is None and isinstance(real, OF_THE_PROCESS):
        source = Fixed(real)
    if isinstance(real, torch.Tensor):
        return _tensor(m, real, source)
    exact = _list if cls in KINDS else EXACT.get(cls)
    if exact is not None:
        return exact(m, real, source)
    # asked of the class: it is abstract, and an object whose `__class__` is none would raise
    if isinstance(real, (*KNOWN_TYPES, type)) or issubclass(cls, torch_compat.HigherOrderOperator):
        return _known(m, real, source)
    if isinstance(real, tuple) and (hasattr(cls, "_fields") or cls is torch.Size or hasattr(cls, "n_fields")):
        return _sequence(m, real, source)
    if isinstance(real, BaseException):
        _guard_class(m, real, source, "it was raised or handled")
        return ExceptionV.existing(real, source)
    if is_python_class(cls):
        if source is not None:
            m.guard(source, "type", cls, "its class decides what runs")
            _guard_content(m, real, source)
        value = InstanceV(cls, real, source)
        if issubclass(cls, (set, frozenset)):
            value.payload = _members(m, real, source)
        elif isinstance(value.payload, DictV):
            _guard_own_dict(m, value)
        if value.attrs is not None and type(value.attrs.real) is dict:
            value.attrs = _own_dict(m, value.attrs)
        return value
    if is_opaque(real):
        _guard_class(m, real, source, "was passed on")
        return OpaqueV(real, source)
    return _known(m, real, source)


def _guard_class(m: Machine, real: Any, source: Source | None, why: str) -> None:
    if source is not None:
        m.guard(source, "type", type(real), why)


def _own_dict(m: Machine, attributes: DictV) -> DictV:
    """The dictionary of an object's attributes: the program may have it as such (``vars(self)``)."""
    known = m.wrapped.setdefault(id(attributes.real), (attributes.real, attributes))[1]
    if known is attributes or not isinstance(known, DictV):
        return attributes
    if attributes.source is not None and known.source is not None:
        m.guard(attributes.source, "same", known.source, "both names reached one object")
    return known


def _guard_own_dict(m: Machine, value: InstanceV) -> None:
    """Whether the items of a dictionary are also its attributes (``self.__dict__ = self``)."""
    if value.source is None or value.attrs is None:
        return
    if value.attrs is value.payload:
        m.guard(source_of_dict(value.real, value.source), "same", value.source, "its items are its attributes")
    else:
        told_apart.guard_distinct(m, [value.attrs, value], "its items are not its attributes")


def _guard_content(m: Machine, real: Any, source: Source) -> None:
    """What an instance of a builtin's subclass holds as one of the builtin, whatever its class answers."""
    base = next((base for base in (list, tuple, int, float, str, bytes) if issubclass(type(real), base)), None)
    if base in (list, tuple):
        if type(real).__len__ is not base.__len__:
            raise Unsupported(f"a {base.__name__} whose class has a `__len__` of its own")
        m.guard(source, "length", len(real), "its length was relied on")
    elif base in CONTENT:
        function, text, more = CONTENT[base]
        computed = Computed(function, text, (source, *more))
        m.guard(computed, "constant", function(real, *(part.value for part in more)), "its value was used")
    elif base is bytes:
        m.guard(source, "identity", real, "its value was used")


# The plain value of a subclass's instance: a builtin function that gives it, as an expression, and what else it takes.
CONTENT: dict[Any, tuple[Callable[..., Any], str, tuple[Constant, ...]]] = {
    int: (operator.index, "operator.index({})", ()),
    float: (math.ldexp, "math.ldexp({}, {})", (Constant("0", 0),)),
    str: ("".join, "''.join({})", ()),
}


def is_python_class(cls: type) -> bool:
    """Whether ``cls`` was made by a class statement: a heap type whose methods are not C functions of its own."""
    if not is_heap_type(cls) or "__module__" not in cls.__dict__ or cls.__module__ in _C_MODULES:
        return False
    found = _python_classes.get(cls)
    if found is None:
        found = not any(
            isinstance(v, (MethodDescriptorType, WrapperDescriptorType)) and v.__objclass__ is cls
            for v in list(cls.__dict__.values())
        )
        _python_classes[cls] = found
    return found


_C_MODULES = frozenset({"_thread", "_contextvars", "re", "_io", "_abc", "torch._C"})
_python_classes: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def _function(m: Machine, real: FunctionType, source: Source | None) -> Value:
    if source is not None and is_made_anew(m, real, source):
        return ClosureV(m, real, source)
    return _known(m, real, source)


def _known(m: Machine, real: Any, source: Source | None) -> Value:
    if source is not None:
        m.guard(source, "identity", real, "was called or read")
        if isinstance(real, type):
            m.class_sources.setdefault(real, source)
    return KnownV(real, source)


def _sequence(m: Machine, real: Any, source: Source | None) -> Value:
    if source is not None:
        m.guard(source, "type", type(real), "its items were read")
        m.guard(source, "length", len(real), "its length was relied on")
    return TupleV.existing(real, source)


def _list(m: Machine, real: Any, source: Source | None) -> Value:
    kind = KINDS[type(real)]
    if source is None:
        return kind.existing(real, None)
    m.guard(source, "type", type(real), "its items were read or added to")
    return kind.unread(m, real, source)


def _dict(m: Machine, real: Any, source: Source | None) -> Value:
    _guard_class(m, real, source, "its keys were looked up")
    value = DictV(type(real), real, source)
    if isinstance(real, defaultdict):
        value.default_factory = m.wrap(real.default_factory, Attr(source, "default_factory") if source else None)
    return value


def _members(m: Machine, real: Any, source: Source | None) -> SetV:
    """A set or frozenset as it is now, or that part of an object of a subclass."""
    members = list(set.__iter__(real) if isinstance(real, set) else frozenset.__iter__(real))
    if not all(is_constant_object(v) or isinstance(v, type) for v in members):
        raise Unsupported("a set whose members are no constants")
    cls = set if isinstance(real, set) else frozenset
    if source is not None:
        exact = type(real) is cls
        place = source if exact else Computed(cls, f"{cls.__name__}({{}})", (source,))
        m.guard(place, "constant", cls(members), "its members were looked up")
    return SetV([m.wrap_result(v) for v in members], cls, real, source)


def _method(m: Machine, real: MethodType, source: Source | None) -> Value:
    def at(name: str) -> Source | None:
        return Attr(source, name) if source else None

    return MethodV(m.wrap(real.__func__, at("__func__")), m.wrap(real.__self__, at("__self__")), source)


def _builtin(m: Machine, real: BuiltinFunctionType | MethodWrapperType, source: Source | None) -> Value:
    """A bound method of a C type is made anew whenever it is read: it is known by its owner and name."""
    owner = real.__self__
    method = getattr(type(owner), real.__name__, None)
    known = owner is None or isinstance(owner, (type, ModuleType, torch.Tensor))
    if source is None or known or not isinstance(method, (MethodDescriptorType, WrapperDescriptorType)):
        return _known(m, real, source)
    m.guard(source, "type", type(real), "was called or read")
    m.guard(Attr(source, "__name__"), "constant", real.__name__, "was called or read")
    return BuiltinMethodV(method, m.wrap(owner, Attr(source, "__self__")), real, source)


def _partial(m: Machine, real: Any, source: Source | None) -> Value:
    _guard_class(m, real, source, "was called")
    return PartialV.existing(m, real, source)


def _proxy(m: Machine, real: Any, source: Source | None) -> Value:
    mapping = gc.get_referents(real)[0]
    if type(mapping) not in (dict, OrderedDict, defaultdict):
        raise Unsupported(f"a mappingproxy of a {type(mapping).__name__}")
    _guard_class(m, real, source, "its keys were looked up")
    return DictV(MappingProxyType, real, source)


def _namespace(m: Machine, real: SimpleNamespace, source: Source | None) -> Value:
    _guard_class(m, real, source, "its attributes were read")
    return InstanceV(SimpleNamespace, real, source)


def _generator(m: Machine, real: Any, source: Source | None) -> Value:
    """A ``torch.Generator`` is held by the graph; one that proved to be another at each call ends it."""
    if source is None or m.fullgraph or not m.changes.get(source):
        return _known(m, real, source)
    m.guard(source, "type", type(real), "was passed on")
    return OpaqueV(real, source)


def _inference_guard(m: Machine, real: Any, source: Source | None) -> Value:
    raise Unsupported("leaving a torch.inference_mode that was entered before the call")


# Objects that last, and whose attributes programs change wherever they are found.
OF_THE_PROCESS = (logging.Logger, logging.Manager)

EXACT: dict[type, Wrapper] = {
    torch_compat.InferenceMode: _inference_guard,
    tuple: _sequence,
    dict: _dict,
    OrderedDict: _dict,
    defaultdict: _dict,
    set: _members,
    frozenset: _members,
    FunctionType: _function,
    MethodType: _method,
    BuiltinFunctionType: _builtin,
    MethodWrapperType: _builtin,
    CellType: lambda m, real, source: CellV.existing(real, source),
    functools.partial: _partial,
    weakref.ref: _known,
    torch.Generator: _generator,
    MappingProxyType: _proxy,
    SimpleNamespace: _namespace,
}

TENSOR_CLASSES = (torch.Tensor, torch.nn.Parameter)


def _tensor(m: Machine, real: torch.Tensor, source: Source | None) -> Value:
    if type(real) not in TENSOR_CLASSES:
        raise Unsupported(f"a tensor subclass, {type(real).__module__}.{type(real).__qualname__}")
    if real.layout is not torch.strided:
        raise Unsupported(f"a tensor of layout {real.layout}")
    if real.is_nested or real.is_quantized:
        raise Unsupported("a nested or quantized tensor")
    if torch_compat.is_zero_tensor(real):
        raise Unsupported("a zero tensor, which has no memory", "clone it")
    if not _is_readable(real):
        raise Unsupported("a view whose base was written to, which autograd lets nobody read", "compute a new tensor")
    if source is None:
        return m.state(GraphBuilder).constant(real)
    layout = symbolic_layout(m, real, source)
    meta = TensorMeta.of(real)
    m.guard(source, "tensor", meta if layout is None else layout.meta(meta), "was an input of the graph")
    return m.state(GraphBuilder).placeholder(real, source, layout)


def _is_readable(real: torch.Tensor) -> bool:
    """Whether autograd finds what a view was computed by (one of several views of a base that was written to has lost
    it).
    """
    try:
        real.grad_fn  # noqa: B018
    except RuntimeError:
        return False
    return True


# Mutable classes whose new objects become symbolic containers.
REBUILT = frozenset({list, dict, OrderedDict, set})


def wrap_result(m: Machine, real: Any) -> Value:
    """A value for an object that a real call just made: containers are new ones."""
    if is_constant_object(real):
        return ConstantV(real)
    cls = type(real)
    if cls is torch.SymInt:
        return of_symbolic(m, real)
    if isinstance(real, tuple):
        return TupleV([wrap_result(m, v) for v in real], cls)
    if cls is list:
        return ListV([wrap_result(m, v) for v in real])
    if cls in (dict, OrderedDict):
        result = DictV.of([(wrap_result(m, k), wrap_result(m, v)) for k, v in real.items()])
        result.cls = cls
        return result
    if cls in (set, frozenset):
        return SetV([wrap_result(m, v) for v in real], cls)
    if is_array(real):
        return ArrayV.of(m, real)
    if is_traced(real):
        return TracedArrayV(real)
    return m.wrap(real, None)
