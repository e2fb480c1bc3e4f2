"""Python objects made in parts: instances without their constructors, classes without their hooks."""

from __future__ import annotations

import functools
from collections import OrderedDict
from types import FunctionType
from typing import Any


def is_heap_type(cls: type) -> bool:
    """Whether a class was allocated when it was made, as those of class statements are (Py_TPFLAGS_HEAPTYPE)."""
    return bool(cls.__flags__ & (1 << 9))


def c_base(cls: type) -> Any:
    """The class of C's that ``cls`` is or derives from first."""
    return next(base for base in cls.__mro__ if not is_heap_type(base))


def instance(
    cls: type,
    attributes: dict[str, Any] | None = None,
    *,
    items: Any = None,
    slots: dict[str, Any] | None = None,
) -> Any:
    """An object of ``cls`` made without calling its constructor: capture has already interpreted it.

    ``items`` is the content of a class that is also a dict, list, set, tuple, str or number.
    """
    if issubclass(cls, (tuple, str, int, float, bytes, frozenset)):
        base: Any = next(b for b in (tuple, str, int, float, bytes, frozenset) if issubclass(cls, b))
        made: Any = base.__new__(cls, items)
    elif issubclass(cls, OrderedDict):
        made = OrderedDict.__new__(cls)
        OrderedDict.__init__(made)
    elif issubclass(cls, dict):
        made = dict.__new__(cls)
    elif issubclass(cls, (list, set)):
        made = cls.__new__(cls)
    else:
        # a C base (SimpleNamespace) makes its instances itself
        made = c_base(cls).__new__(cls)
    fill(made, attributes, items=items, slots=slots)
    return made


def fill(
    made: Any, attributes: dict[str, Any] | None = None, *, items: Any = None, slots: dict[str, Any] | None = None
) -> None:
    """Give an instance its content."""
    if items is not None and isinstance(made, dict):
        store = OrderedDict.__setitem__ if isinstance(made, OrderedDict) else dict.__setitem__
        for key, value in items.items():
            store(made, key, value)
    elif items is not None and isinstance(made, list):
        list.extend(made, items)
    elif items is not None and isinstance(made, set):
        set.update(made, items)
    if attributes:
        made.__dict__.update(attributes)
    for name, value in (slots or {}).items():
        object.__setattr__(made, name, value)


def copy_of_function(function: FunctionType) -> FunctionType:
    """Another function of the same code, names and defaults."""
    names = function.__name__, function.__defaults__, function.__closure__
    copy = FunctionType(function.__code__, function.__globals__, *names)
    copy.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(copy, function)
    return copy


def namesake(cls: type, /, **attributes: Any) -> Any:
    """An object that can do nothing, of a class that C calls as it calls ``cls``: errors are worded by types' names."""
    name = cls.__name__ if is_heap_type(cls) or cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"
    return object.__new__(type(name, (), {"__slots__": (), **attributes}))


class _Quiet:
    """A first base under which making a class runs no ``__init_subclass__``."""

    @classmethod
    def __init_subclass__(cls, **keywords: Any) -> None:
        pass


class _QuietSlots:
    """The same for classes whose instances have no ``__dict__``."""

    __slots__ = ()
    __init_subclass__ = _Quiet.__dict__["__init_subclass__"]


def new_class(
    metaclass: Any,
    name: str,
    bases: tuple[Any, ...],
    namespace: dict[str, Any],
    keywords: dict[str, Any],
    quiet: bool = False,
) -> Any:
    """What the class statement does once its body has run.

    With ``quiet`` neither methods of the metaclass nor ``__init_subclass__`` run: the caller has seen to what they do.
    """
    if not quiet:
        prepared = metaclass.__prepare__(name, bases, **keywords) if hasattr(metaclass, "__prepare__") else {}
        for key, value in namespace.items():
            prepared[key] = value
        return metaclass(name, bases, prepared, **keywords)
    if all(base is object for base in bases):
        return type.__new__(metaclass, name, bases, namespace)
    quiet_base = _Quiet if any(getattr(base, "__dictoffset__", 0) for base in bases) else _QuietSlots
    made: Any = type.__new__(metaclass, name, (quiet_base, *bases), namespace)
    made.__bases__ = bases  # a TypeError where the layouts do not allow it
    return made
