"""What the library tells of a callable, its signature and type hints: asked while capturing, and the entry relies on
all that they are made of.

def f(x, scale=2): ...
inspect.signature(f)        # f.__code__, f.__defaults__[0] == 2, f.__kwdefaults__ is None, f has no __wrapped__, ...
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Iterable
from types import FunctionType, MethodType
from typing import Any

from ...records.sources import Attr, Fixed, Item, Source
from ..errors import Unsupported
from ..protocol import Machine, Value
from ..values.binding import guard_lacks_attr, home_of, may_change
from ..values.constant import is_constant_object
from ..values.known import KnownV
from ..values.methods import MethodV
from ..values.overlays import Overlays
from .registry import handles

WHY = "its signature was asked for"
CONTENT = ("__defaults__", "__kwdefaults__", "__annotations__")
LEADS_ON = ("__wrapped__", "__signature__")
OF_A_CLASS = ("__signature__", "__new__", "__init__")


@handles(inspect.signature)
def signature_(m, args, kwargs):
    if len(args) > 1:
        raise Unsupported("inspect.signature with `follow_wrapped` and the like by position")
    real = _looked_at(m, args[0], "inspect.signature")
    # which object the method is bound to does not matter: only its first parameter goes
    real = MethodType(real, object()) if isinstance(args[0], MethodV) else real
    return KnownV(m.real(inspect.signature, real, **_constants(kwargs)))


@handles(inspect.getfullargspec)
def getfullargspec_(m, args, kwargs):
    return m.wrap_result(m.real(inspect.getfullargspec, _looked_at(m, args[0], "inspect.getfullargspec")))


@handles(typing.get_type_hints)
def get_type_hints_(m, args, kwargs):
    real = _looked_at(m, args[0], "typing.get_type_hints")
    if isinstance(real, type):
        _rely_on_annotations(m, real)
    return m.fold(typing.get_type_hints, args, kwargs)


def _constants(kwargs: dict[str, Value]) -> dict[str, Any]:
    return {name: value.as_constant() for name, value in kwargs.items()}


def _looked_at(m: Machine, value: Value, asked: str) -> Any:
    """The callable that is looked at, all of which is relied on."""
    value = value.function if isinstance(value, MethodV) else value
    real = getattr(value, "real", None)
    if real is None:
        raise Unsupported(f"{asked} of a function made inside")
    _rely_on(m, real, value.source or Fixed(real))
    return real


def _rely_on(m: Machine, real: Any, source: Source) -> None:
    if m.state(Overlays).names(real):
        raise Unsupported("the signature of a function to which the program has just written")
    if isinstance(real, type):
        _rely_on_class(m, real, OF_A_CLASS)
        _rely_on_class(m, type(real), ("__call__",))
    elif type(real) is FunctionType:
        if not m.is_stable(home_of(real)):
            _rely_on_function(m, real, source)
    elif isinstance(real, functools.partial):
        m.guard(source, "identity", real, WHY)
        _rely_on(m, real.func, Fixed(real.func))
    else:
        _rely_on_class(m, type(real), ("__call__",))


def _rely_on_function(m: Machine, real: FunctionType, source: Source) -> None:
    m.guard(Attr(source, "__code__"), "identity", real.__code__, WHY)
    for name in CONTENT:
        _rely_on_content(m, getattr(real, name), Attr(source, name))
    for name in LEADS_ON:
        if name not in real.__dict__:
            guard_lacks_attr(m, real, source, name)
            continue
        m.guard(Attr(source, name), "identity", real.__dict__[name], WHY)
        if name == "__wrapped__":
            _rely_on(m, real.__dict__[name], Attr(source, name))


def _rely_on_content(m: Machine, held: Any, source: Source) -> None:
    """A tuple or a dictionary, or None: the answer holds the same objects."""
    items: Iterable[tuple[Any, Any]] = ()
    if held is None:
        m.guard(source, "constant", None, WHY)
    elif isinstance(held, tuple):
        m.guard(source, "type", type(held), WHY)
        m.guard(source, "length", len(held), WHY)
        items = enumerate(held)
    else:
        m.guard(source, "dict_keys", list(held), WHY)
        items = held.items()
    for key, item in items:
        m.guard(Item(source, key), "constant" if is_constant_object(item) else "identity", item, WHY)


def _rely_on_class(m: Machine, cls: type, names: tuple[str, ...]) -> None:
    """The functions that stand under ``names`` in a class: which they are, and what they are made of."""
    for name in names:
        found = m.class_lookup(cls, name)
        function = found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
        if type(function) is FunctionType:
            _rely_on(m, function, Fixed(function))


def _rely_on_annotations(m: Machine, cls: type) -> None:
    for base in cls.__mro__:
        if may_change(m, base):
            _rely_on_content(m, inspect.get_annotations(base), Attr(Fixed(base), "__annotations__"))
