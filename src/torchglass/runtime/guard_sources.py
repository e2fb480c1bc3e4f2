"""Sources evaluated in Python: a source and a scope in, the value out.

The native table does the same walk in C++ (csrc/guard_table.cpp); this one explains failures and is its
oracle in tests:

    >>> from torchglass.records.sources import Item, Local
    >>> reach(Item(Local("xs"), -1), Scope({"xs": [1, 2]}, {}, {}))
    2
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import CO_VARKEYWORDS
from types import CellType, FunctionType, MethodType
from typing import Any

from .. import bytecode
from ..records.sources import (
    Attr,
    Cell,
    Computed,
    Constant,
    DictKey,
    Fixed,
    Global,
    InstanceDict,
    Item,
    Local,
    Module,
    Referent,
    Source,
    StrideOf,
    TypeOf,
)


@dataclass(frozen=True)
class Scope:
    """What sources start from: parameters by name, the function's globals, its closure cells by name. ``keywords`` is
    the name of ``**kwargs``, where the function has such a parameter.
    """

    locals: Mapping[str, Any]
    globals: dict[str, Any]
    cells: Mapping[str, CellType]
    keywords: str | None = None


def parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names in the order of the locals tuple: positional, keyword-only, ``*args``, ``**kwargs``."""
    return bytecode.parameter_names(plain_function(function).__code__)


def scope_of(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Scope:
    """The scope of a call whose parameters have these values, in the order of ``parameter_names``."""
    plain = plain_function(function)
    code, names = plain.__code__, parameter_names(plain)
    cells = dict(zip(code.co_freevars, plain.__closure__ or ()))
    keywords = names[-1] if code.co_flags & CO_VARKEYWORDS else None
    return Scope(dict(zip(names, arguments)), plain.__globals__, cells, keywords)


def plain_function(function: Callable[..., Any]) -> FunctionType:
    """The Python function behind a bound method; TypeError for callables without bytecode."""
    if isinstance(function, MethodType):
        function = function.__func__
    if type(function) is not FunctionType:
        raise TypeError(f"guards need a Python function, not {type(function).__name__}")
    return function


def module_globals(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """The globals that ``Global(..., module=name)`` means; KeyError if that module is not imported."""
    return sys.modules[name].__dict__ if name else plain_function(function).__globals__


def reach(source: Source, scope: Scope) -> Any:
    """The value of a source. Raises what the access raises: KeyError, AttributeError, IndexError, ..."""
    return _REACH[type(source)](source, scope)


def _global(source: Global, scope: Scope) -> Any:
    names = sys.modules[source.module].__dict__ if source.module else scope.globals
    return names[source.name]


def _item(source: Item, scope: Scope) -> Any:
    base = reach(source.of, scope)
    if isinstance(base, dict):
        if not dict.__contains__(base, source.key):
            raise KeyError(source.key)  # no __missing__: a guard must not insert a default
        return dict.__getitem__(base, source.key)
    kind = next((kind for kind in (list, tuple) if isinstance(base, kind)), None)
    return base[source.key] if kind is None else kind.__getitem__(base, source.key)


def _referent(source: Referent, scope: Scope) -> Any:
    reference = reach(source.of, scope)
    if not isinstance(reference, weakref.ref):
        raise TypeError(f"{source.of} is no weak reference")
    return reference()


_REACH: dict[type[Source], Callable[[Any, Scope], Any]] = {
    Local: lambda source, scope: scope.locals[source.name],
    Global: _global,
    Cell: lambda source, scope: scope.cells[source.name].cell_contents,
    Module: lambda source, scope: sys.modules[source.name],
    Attr: lambda source, scope: getattr(reach(source.of, scope), source.name),
    InstanceDict: lambda source, scope: reach(source.of, scope).__dict__,
    Item: _item,
    DictKey: lambda source, scope: list(reach(source.of, scope))[source.index],
    Referent: _referent,
    StrideOf: lambda source, scope: reach(source.of, scope).stride(source.dim),
    TypeOf: lambda source, scope: type(reach(source.of, scope)),
    Fixed: lambda source, scope: source.object,
    Constant: lambda source, scope: source.value,
    Computed: lambda source, scope: source.function(*(reach(part, scope) for part in source.parts)),
}
"""How each kind of source is reached."""
