"""Look-up through classes, and what binds what is found there (``attributes.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
from typing import Any, NoReturn

from ...bytecode.objects import namesake
from ...records.sources import Source
from ..protocol import MISSING, Machine, Value, declared


def home_of(function: Any) -> str | None:
    """The module that a function stands in. Its ``__module__`` is another one where ``functools.wraps`` copied it."""
    if type(function) is FunctionType:
        return function.__globals__.get("__name__")
    return getattr(function, "__module__", None)


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


def is_data_descriptor(m: Machine, attribute: Any) -> bool:
    return any(m.class_lookup(type(attribute), name) is not MISSING for name in ("__set__", "__delete__"))


RUN_BY_CALLS = ("__code__", "__defaults__", "__kwdefaults__")  # attributes of a function


# --- what files above define ------------------------------------------------------------------------------------------
@declared
def bind(
    m: Machine, attribute: Any, owner: Value, cls: type, name: str, is_class: bool = False, by_super: bool = False
) -> Value:
    """What reading a class attribute through ``owner`` gives.

    ``is_class``: owner is the class itself. ``by_super``: the look-up started behind the class of owner, so that
    reading the attribute from that class again would find another one.
    """
    raise NotImplementedError


@declared
def may_change(m: Machine, cls: type) -> bool:
    """Whether a class is the program's, which may give it other attributes than those its entry saw."""
    raise NotImplementedError


@declared
def rely_on_bases(m: Machine, cls: type) -> None:
    """Guard what a class derives from."""
    raise NotImplementedError


@declared
def look_up_behind(m: Machine, cls: type, behind: type, name: str) -> Any:
    """What ``super(behind, ...)`` finds in the bases of ``cls``."""
    raise NotImplementedError


def class_attr(m: Machine, owner: Value, name: str) -> Value:
    """An attribute found on the class of a builtin kind of value."""
    cls = owner.python_type()
    if name == "__class__":
        return m.wrap(cls)
    return bind(m, m.class_lookup(cls, name), owner, cls, name)


def throw_missing(m: Machine, owner: Value, name: str) -> NoReturn:
    """Raise the AttributeError of an object without such an attribute."""
    m.throw_as(getattr, namesake(owner.python_type()), name, of=owner)


def guard_lacks_attr(m: Machine, real: Any, source: Source | None, name: str) -> None:
    """Note that ``real`` was asked for an attribute in vain; one that got it inside has none to guard."""
    if source is not None and not hasattr(real, name):
        m.guard(source, "lacks_attr", name, f"asked for attribute `{name}`")
