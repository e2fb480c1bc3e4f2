"""What a function from outside brings: its globals, the cells it closes over, its defaults."""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any

from ...records.sources import Attr, Fixed, Item, Source
from ..protocol import Lazy, Machine
from ..values.containers import CellV
from ..values.dicts import DictV
from ..values.known import KnownV
from ..values.overlays import Overlays


def module_of(m: Machine, function: FunctionType, source: Source | None) -> str:
    """How sources name a function's globals: '' for the compiled function's own."""
    if function.__globals__ is m.function.__globals__:
        return ""
    name = function.__globals__.get("__name__", "")
    module = sys.modules.get(name)
    if module is not None and module.__dict__ is function.__globals__:
        return str(name)
    return m.state(Overlays).pin(function, None if m.is_stable(name) else source)


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


def cells_of(m: Machine, function: KnownV) -> dict[str, CellV]:
    real = function.real
    return dict(zip(real.__code__.co_freevars, closure_of(m, real, source_of(m, function))))
