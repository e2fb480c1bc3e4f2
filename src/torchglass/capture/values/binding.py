"""Attribute look-up through classes: the descriptor protocol, symbolically."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any, NoReturn

from ... import _native
from ...bytecode import objects
from ...bytecode.objects import namesake
from ...records.sources import Attr, Fixed, InstanceDict, Item, Source
from ..errors import Unsupported
from .base import Value

if TYPE_CHECKING:
    from ..interp.machine import Machine


class _Missing:
    def __repr__(self) -> str:
        return "<missing>"


MISSING = _Missing()


def lookup_in(mro: Sequence[type], name: str) -> Any:
    """The raw class attribute ``name`` along an MRO, MISSING if there is none."""
    for cls in mro:
        if name in cls.__dict__:
            return cls.__dict__[name]
    return MISSING


def class_lookup(cls: type, name: str) -> Any:
    return lookup_in(cls.__mro__, name)


def is_of_compiled_module(cls: type) -> bool:
    """Whether ``tg.compile`` made this class for one module: it says that it is the class of the original."""
    return "_torchglass_original" in vars(cls)


def is_of_c(attribute: Any) -> bool:
    """Whether a special method is one in C, of a builtin type or of one that pybind11 makes."""
    bound = not isinstance(attribute, (staticmethod, classmethod)) and getattr(attribute, "__func__", None)
    return isinstance(attribute, (WrapperDescriptorType, MethodDescriptorType)) or isinstance(
        bound, BuiltinFunctionType
    )


def is_data_descriptor(attribute: Any) -> bool:
    return hasattr(type(attribute), "__set__") or hasattr(type(attribute), "__delete__")


RUN_BY_CALLS = ("__code__", "__defaults__", "__kwdefaults__")  # attributes of a function


def bind(
    m: Machine, attribute: Any, owner: Value, cls: type, name: str, is_class: bool = False, by_super: bool = False
) -> Value:
    """What reading a class attribute through ``owner`` gives.

    ``is_class``: owner is the class itself. ``by_super``: the look-up started behind the class of owner, so that
    reading the attribute from that class again would find another one.
    """
    from .constant import ConstantV
    from .functions import BuiltinMethodV, MethodV
    from .known import KnownV

    if attribute is MISSING and by_super:
        m.throw_as(getattr, namesake(super), name)
    if attribute is MISSING:
        m.throw_missing(owner, name)
    if is_of_compiled_module(cls) and name == cls.__dict__.get("_torchglass_runs", "forward") and not is_class:
        # inlined like any other: what the original has now
        place = m.class_source(owner, cls)
        original = cls.__dict__["_torchglass_original"]
        return m.get_attr(m.wrap(original, Attr(place, "_torchglass_original") if place else None), name)
    if hasattr(type(attribute), "__get__") and is_data_descriptor(class_lookup(type(cls), name)):
        # what stands in the class under `__class__` or `__name__` is not what reading it from there gives
        by_super = True
    source = _way_to(m, attribute, owner, cls, name, is_class, by_super)
    getter = m.class_lookup(type(attribute), "__get__")
    if type(attribute) is FunctionType:
        function = m.function_on_class(attribute, source)
        return function if is_class else MethodV(function, owner)
    if isinstance(attribute, _native.CompiledFunction):
        compiled = m.wrap_known(attribute, source)
        return compiled if is_class or attribute.bound else MethodV(compiled, owner)
    if isinstance(attribute, staticmethod):
        return m.wrap_known(attribute.__func__, Attr(source, "__func__") if source and by_super else source)
    if isinstance(attribute, classmethod) and _wraps_descriptor(attribute):
        attribute_on_class(m, attribute, owner, cls, name, is_class, by_super)
        of = owner if is_class else m.wrap_known(cls)
        return m.call(m.get_attr(m.wrap(attribute.__func__, None), "__get__"), [of, of], {})
    if isinstance(attribute, classmethod):
        function = m.wrap_known(attribute.__func__, Attr(source, "__func__") if source else None)
        return MethodV(function, owner if is_class else m.wrap_known(cls))
    if isinstance(attribute, (MethodDescriptorType, WrapperDescriptorType)):
        return KnownV(attribute) if is_class else BuiltinMethodV(attribute, owner)
    if isinstance(attribute, ClassMethodDescriptorType):
        return m.wrap_known(attribute.__get__(None, cls))
    library = m.is_stable(type(attribute).__module__) and (is_class or isinstance(attribute, functools.cached_property))
    if type(getter) is FunctionType and not library:
        instance = ConstantV(None) if is_class else owner
        found = attribute_on_class(m, attribute, owner, cls, name, is_class, by_super)
        return m.call(KnownV(getter), [found, instance, m.wrap_known(cls)], {})
    if is_class and not hasattr(type(attribute), "__get__"):
        return m.wrap(attribute, source)
    if is_class:
        return m.wrap_known(attribute.__get__(None, cls))
    if isinstance(attribute, property):
        if attribute.fget is None:
            refuse_access(m, property.__get__, attribute, owner)
        return m.call(m.wrap_known(attribute.fget), [owner], {})
    if isinstance(attribute, functools.cached_property):
        value = m.call(m.wrap_known(attribute.func), [owner], {})
        m.get_attr(owner, "__dict__").set_item(m, ConstantV(name), value)  # past the class's __setattr__
        return value
    if isinstance(attribute, (MemberDescriptorType, GetSetDescriptorType)):
        return _builtin_attribute(m, owner, cls, name)
    if isinstance(attribute, (BuiltinFunctionType, type)):
        return m.wrap_known(attribute)
    if isinstance(attribute, functools._lru_cache_wrapper):
        return MethodV(KnownV(attribute), owner)
    if getter is not MISSING:
        raise Unsupported(f"the descriptor `{cls.__name__}.{name}` of type {type(attribute).__name__}")
    return m.wrap(attribute, source)


def _wraps_descriptor(attribute: classmethod[Any, Any, Any]) -> bool:
    """Whether a class method asks what it wraps, as a property, for its ``__get__``: before Python 3.13."""
    plain = type(attribute.__func__) in (FunctionType, _native.CompiledFunction)
    return sys.version_info < (3, 13) and not plain and hasattr(type(attribute.__func__), "__get__")


def refuse_access(m: Machine, access: Any, attribute: property, owner: Value, *args: Any) -> NoReturn:
    """Raise what a property without that function says: it knows the name that it was given first."""
    real = getattr(owner, "real", None)
    m.real(access, attribute, objects.instance(owner.python_type()) if real is None else real, *args)
    raise AssertionError("the property has such a function")


def _way_to(
    m: Machine, attribute: Any, owner: Value, cls: type, name: str, is_class: bool, by_super: bool
) -> Source | None:
    """How to read ``name`` of a class again; behind the class of ``owner``, where the attribute stands in its base."""
    if not is_class:
        place = m.class_source(owner, cls)
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
    place = owner.source if is_class else m.class_source(owner, cls)
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
        return m.wrap_known(cls)
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
        m.guard_lacks_attr(real, owner.source, name)
        return m.wrap(m.real(getattr, real, name), Attr(owner.source, name))
    elif real is not None:
        return m.wrap_result(m.real(getattr, real, name))
    if slots is not None:
        m.throw_missing(owner, name)
    raise Unsupported(f"attribute `{name}` of {owner.a()}")
