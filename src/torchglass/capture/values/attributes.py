"""What reading an attribute that stands in a class gives: the descriptor protocol, symbolically."""

from __future__ import annotations

import functools
import sys
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
from typing import Any, NoReturn

from ... import _native
from ...bytecode import objects
from ...bytecode.objects import namesake
from ...records.sources import Attr, Fixed, InstanceDict, Item, Source, TypeOf
from ..errors import Unsupported
from ..protocol import MISSING, Machine, Value
from ..values.binding import bind, class_lookup, guard_lacks_attr, is_of_compiled_module, throw_missing
from ..values.functions import FunctionV
from .constant import ConstantV
from .known import KnownV
from .methods import BuiltinMethodV, MethodV


@bind.defined
def _bind(
    m: Machine, attribute: Any, owner: Value, cls: type, name: str, is_class: bool = False, by_super: bool = False
) -> Value:
    if attribute is MISSING and by_super:
        m.throw_as(getattr, namesake(super), name)
    if attribute is MISSING:
        throw_missing(m, owner, name)
    if is_of_compiled_module(cls) and name == cls.__dict__.get("_torchglass_runs", "forward") and not is_class:
        # inlined like any other: what the original has now
        place = class_source(m, owner, cls)
        original = cls.__dict__["_torchglass_original"]
        return m.get_attr(m.wrap(original, Attr(place, "_torchglass_original") if place else None), name)
    if hasattr(type(attribute), "__get__") and _sets_or_deletes(class_lookup(type(cls), name)):
        # what stands in the class under `__class__` or `__name__` is not what reading it from there gives
        by_super = True
    source = _way_to(m, attribute, owner, cls, name, is_class, by_super)
    getter = m.class_lookup(type(attribute), "__get__")
    if type(attribute) is FunctionType:
        function = _function_on_class(m, attribute, source)
        return function if is_class else MethodV(function, owner)
    if isinstance(attribute, _native.CompiledFunction):
        compiled = m.wrap(attribute, source)
        return compiled if is_class or attribute.bound else MethodV(compiled, owner)
    if isinstance(attribute, staticmethod):
        return m.wrap(attribute.__func__, Attr(source, "__func__") if source and by_super else source)
    if isinstance(attribute, classmethod) and _wraps_descriptor(attribute):
        attribute_on_class(m, attribute, owner, cls, name, is_class, by_super)
        of = owner if is_class else m.wrap(cls)
        return m.call(m.get_attr(m.wrap(attribute.__func__, None), "__get__"), [of, of], {})
    if isinstance(attribute, classmethod):
        function = m.wrap(attribute.__func__, Attr(source, "__func__") if source else None)
        return MethodV(function, owner if is_class else m.wrap(cls))
    if isinstance(attribute, (MethodDescriptorType, WrapperDescriptorType)):
        return KnownV(attribute) if is_class else BuiltinMethodV(attribute, owner)
    if isinstance(attribute, ClassMethodDescriptorType):
        return m.wrap(attribute.__get__(None, cls))
    library = m.is_stable(type(attribute).__module__) and (is_class or isinstance(attribute, functools.cached_property))
    if type(getter) is FunctionType and not library:
        instance = ConstantV(None) if is_class else owner
        found = attribute_on_class(m, attribute, owner, cls, name, is_class, by_super)
        return m.call(KnownV(getter), [found, instance, m.wrap(cls)], {})
    if is_class and not hasattr(type(attribute), "__get__"):
        return m.wrap(attribute, source)
    if is_class:
        return m.wrap(attribute.__get__(None, cls))
    if isinstance(attribute, property):
        if attribute.fget is None:
            refuse_access(m, property.__get__, attribute, owner)
        return m.call(m.wrap(attribute.fget), [owner], {})
    if isinstance(attribute, functools.cached_property):
        value = m.call(m.wrap(attribute.func), [owner], {})
        m.get_attr(owner, "__dict__").set_item(m, ConstantV(name), value)  # past the class's __setattr__
        return value
    if isinstance(attribute, (MemberDescriptorType, GetSetDescriptorType)):
        return _builtin_attribute(m, owner, cls, name)
    if isinstance(attribute, (BuiltinFunctionType, type)):
        return m.wrap(attribute)
    if isinstance(attribute, functools._lru_cache_wrapper):
        return MethodV(KnownV(attribute), owner)
    if getter is not MISSING:
        raise Unsupported(f"the descriptor `{cls.__name__}.{name}` of type {type(attribute).__name__}")
    return m.wrap(attribute, source)


def _sets_or_deletes(attribute: Any) -> bool:
    return hasattr(type(attribute), "__set__") or hasattr(type(attribute), "__delete__")


def _wraps_descriptor(attribute: classmethod[Any, Any, Any]) -> bool:
    """Whether a class method asks what it wraps, as a property, for its ``__get__``: before Python 3.13."""
    plain = type(attribute.__func__) in (FunctionType, _native.CompiledFunction)
    return sys.version_info < (3, 13) and not plain and hasattr(type(attribute.__func__), "__get__")


def refuse_access(m: Machine, access: Any, attribute: property, owner: Value, *args: Any) -> NoReturn:
    """Raise what a property without that function says: it knows the name that it was given first."""
    real = getattr(owner, "real", None)
    m.real(access, attribute, objects.instance(owner.python_type()) if real is None else real, *args)
    raise AssertionError("the property has such a function")


def _function_on_class(m: Machine, real: FunctionType, source: Source | None) -> Value:
    """A function found on a class that is guarded already; the symbolic one where ``real`` stands for such."""
    known = m.wrapped.get(id(real))
    return known[1] if known is not None and isinstance(known[1], FunctionV) else KnownV(real, source)


def class_source(m: Machine, owner: Value, cls: type) -> Source | None:
    """How to reach the class of ``owner``; None for one that is taken as it is, or was made inside."""
    if m.is_stable(cls.__module__) and not is_of_compiled_module(cls):
        return None
    if owner.source is not None:
        return m.class_sources.setdefault(cls, TypeOf(owner.source))
    return m.class_sources.get(cls)


def _way_to(
    m: Machine, attribute: Any, owner: Value, cls: type, name: str, is_class: bool, by_super: bool
) -> Source | None:
    """How to read ``name`` of a class again; behind the class of ``owner``, where the attribute stands in its base."""
    if not is_class:
        place = class_source(m, owner, cls)
    elif m.is_stable(cls.__module__) and hasattr(type(attribute), "__get__"):
        place = None  # the functions of a library stay, the numbers that it counts in do not
    else:
        place = owner.source or m.class_sources.get(cls)
    if place is None or not by_super:
        return Attr(place, name) if place is not None else None
    depth = next(n for n, base in enumerate(cls.__mro__) if base.__dict__.get(name) is attribute)
    if m.is_stable(cls.__mro__[depth].__module__):
        return None
    return Item(InstanceDict(Item(Attr(place, "__mro__"), depth)), name)


def attribute_on_class(
    m: Machine, attribute: Any, owner: Value, cls: type, name: str, is_class: bool = False, by_super: bool = False
) -> Value:
    """The object that stands in a class's dictionary, as it is: reading it as an attribute calls its ``__get__``."""
    place = owner.source if is_class else class_source(m, owner, cls)
    if place is None or by_super:
        return m.wrap(attribute, None)
    if m.is_stable(type(attribute).__module__):
        return m.wrap(attribute, Fixed(attribute))
    depth = next(n for n, base in enumerate(cls.__mro__) if name in base.__dict__)
    if depth:
        place = Item(Attr(place, "__mro__"), depth)
    return m.wrap(attribute, Item(InstanceDict(place), name))


def _builtin_attribute(m: Machine, owner: Value, cls: type, name: str) -> Value:
    """A slot or a C attribute: what is known of the symbolic value, else read from the real object."""

    if name == "__class__":
        return m.wrap(cls)
    slots = getattr(owner, "slots", None)
    if slots is not None and name in slots:
        value = slots[name]
        assert isinstance(value, Value)
        return value
    real = getattr(owner, "real", None)
    if name == "__dict__":
        attrs = getattr(owner, "attrs", None)
        if attrs is not None:
            return attrs
    elif real is not None and owner.source is not None:
        guard_lacks_attr(m, real, owner.source, name)
        return m.wrap(m.real(getattr, real, name), Attr(owner.source, name))
    elif real is not None:
        return m.wrap_result(m.real(getattr, real, name))
    if slots is not None:
        throw_missing(m, owner, name)
    raise Unsupported(f"attribute `{name}` of {owner.a()}")
