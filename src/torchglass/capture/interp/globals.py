"""Names that are not the frame's own: globals, builtins, imports, and the data of library modules."""

from __future__ import annotations

import builtins
import functools
import inspect
import sys
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from ...bytecode import codes_within, decode
from ...records.sources import Attr, Fixed, Global, Item, Module, Source
from ..guarding import class_guards as relied
from ..protocol import Machine, Value
from ..values.consulted import note_data
from ..values.known import KnownV, library_data
from ..values.overlays import UNREACHABLE, Overlays
from ..values.sealing import refuse_when_sealed
from .frame import Frame

# What programs change in modules of the standard library, which are otherwise taken as they are.
OF_PROGRAMS = frozenset(
    {("os", "environ"), ("warnings", "filters"), ("warnings", "defaultaction"), ("warnings", "showwarning")}
    | {("warnings", "_showwarnmsg_impl")}
)


def load_global(m: Machine, frame: Frame, name: str) -> Value:
    written = m.state(Overlays).globals.get((frame.module, name))
    if written is not None:
        return written
    if name in frame.namespace:
        source = _source_of(m, frame, name)
        if source is None and not frame.module.startswith(UNREACHABLE):
            relied.rely_on_name(m, frame.module, name, frame.namespace[name])
            note_data(m, str(frame.namespace.get("__name__")), name, frame.namespace[name])
        return m.wrap(frame.namespace[name], source)
    asked = frame.namespace.get("__builtins__", builtins)
    table = asked if isinstance(asked, dict) else asked.__dict__
    _guard_no_global(m, frame, frame.namespace, name)
    if name not in table:
        _guard_no_global(m, frame, table, name)
        m.raise_real(NameError(f"name '{name}' is not defined", name=name))
    if table is builtins.__dict__:
        relied.rely_on_name(m, "builtins", name, table[name])
    return m.wrap(table[name])


def _guard_no_global(m: Machine, frame: Frame, namespace: dict[str, Any], name: str) -> None:
    """Note that the name was looked for in vain, so that builtins were asked next."""
    if m.is_stable(frame.namespace.get("__name__")):
        return
    reached = m.state(Overlays).sources.get(frame.module) if namespace is frame.namespace else None
    if reached is not None or not frame.module.startswith(UNREACHABLE):
        m.guard(reached or Fixed(namespace), "dict_lacks", name, "a builtin was called by that name")


def _source_of(m: Machine, frame: Frame, name: str) -> Source | None:
    reached = m.state(Overlays).sources.get(frame.module)
    if reached is not None:
        return Item(reached, name)
    stable = m.is_stable(frame.namespace.get("__name__")) or frame.module.startswith(UNREACHABLE)
    if (frame.module, name) in OF_PROGRAMS or (stable and _is_rewritten(frame.namespace, name)):
        return Global(name, frame.module)
    if stable and not isinstance(frame.namespace[name], torch.Tensor) and not _counts_hooks(m, frame, name):
        return None
    return Global(name, frame.module)


def _is_rewritten(namespace: dict[str, Any], name: str) -> bool:
    """Whether a library's module has data under a global name that functions of its own write to, as
    ``torch.nn.utils.parametrize.cached`` does.
    """
    module = str(namespace.get("__name__"))
    at_home = namespace is getattr(sys.modules.get(module), "__dict__", None)
    return at_home and type(namespace[name]) in relied.DATA and _writes_to(module, name)


@functools.cache
def _writes_to(module: str, name: str) -> bool:
    naming = (code for code in _codes_of(module) if name in code.co_names)
    return any(i.opname == "STORE_GLOBAL" and i.argval == name for code in naming for i in decode(code))


@functools.cache
def _codes_of(module: str) -> tuple[CodeType, ...]:
    """The code of a module's functions and methods, with what is defined in them."""
    held = list(vars(sys.modules[module]).values())
    held += [v for cls in held if isinstance(cls, type) and cls.__module__ == module for v in vars(cls).values()]
    functions = [inspect.unwrap(f) for f in held if isinstance(f, FunctionType)]
    return tuple(codes_within({f.__code__: None for f in functions if f.__module__ == module}))


def _counts_hooks(m: Machine, frame: Frame, name: str) -> bool:
    """Whether a global is PyTorch's class that counts hooks, which numbers them. Where the count is another one at
    each call, registering a hook breaks the graph instead.
    """
    counts = frame.namespace[name] is torch.utils.hooks.RemovableHandle
    return counts and not m.changes.get(Attr(Global(name, frame.module), "next_id"))


def store_global(m: Machine, frame: Frame, name: str, value: Value) -> None:
    refuse_when_sealed(m)
    m.state(Overlays).globals[(frame.module, name)] = value


def import_name(m: Machine, frame: Frame, name: str, names: Any, level: int) -> Value:
    namespace = {k: frame.namespace.get(k) for k in ("__name__", "__package__", "__spec__")}
    module = m.real(__import__, name, namespace, None, names, level)
    return KnownV(module, Module(module.__name__))


def import_from(m: Machine, module: Value, name: str) -> Value:
    real = module.as_constant()
    full = f"{real.__name__}.{name}"
    if not hasattr(real, name) and full in sys.modules:
        return KnownV(sys.modules[full], Module(full))
    if not hasattr(real, name):
        m.real(exec, f"from module import {name}", {"__builtins__": {"__import__": lambda *_: real}})
    return m.get_attr(module, name)


@library_data.defined
def _library_data(m: Machine, module: ModuleType, name: str) -> Source | None:
    if m.state(Overlays).module_key(module) != module.__name__:
        return None
    relied.rely_on_name(m, module.__name__, name, module.__dict__[name])
    if (module.__name__, name) in OF_PROGRAMS:
        return Global(name, module.__name__)
    kept = not m.is_stable(m.frames[-1].namespace.get("__name__"))
    value = module.__dict__[name]
    data = type(value) in (bool, int, str, list, dict, type(None))
    if kept and data:
        return Global(name, module.__name__)
    note_data(m, module.__name__, name, value)
    return None
