"""Attributes of existing objects and globals that the program wrote: reading finds them, the entry writes them once."""

from __future__ import annotations

import sys
from types import FunctionType, ModuleType
from typing import Any

from ...records.sources import Attr, Source
from ..errors import Unsupported
from ..protocol import Machine, Value
from ..values.binding import is_data_descriptor
from ..values.sealing import refuse_when_sealed

UNREACHABLE = "!"  # begins the names of namespaces that belong to no imported module


class Overlays:
    """``function`` is the one that is compiled: a source's module '' names its globals."""

    def __init__(self, function: FunctionType) -> None:
        self.function = function
        self.attributes: dict[tuple[int, str], tuple[Any, Value]] = {}  # by owner's id and name: the owner, its value
        self.globals: dict[tuple[str, str], Value] = {}  # by module and name
        self.sources: dict[str, Source] = {}  # of globals that are reached through a function
        self._pinned: dict[int, dict[str, Any]] = {}

    def attribute(self, real: Any, name: str) -> Value | None:
        if isinstance(real, ModuleType) and self.globals:
            key = self.module_key(real)
            return self.globals.get((key, name)) if key is not None else None
        found = self.attributes.get((id(real), name))
        return found[1] if found is not None else None

    def names(self, real: Any) -> list[str]:
        """The names of the attributes that the program wrote to an object."""
        return [name for key, name in self.attributes if key == id(real)]

    def of_class(self, cls: type, name: str) -> Value | None:
        """What the program wrote to the class attribute that a look-up through ``cls`` finds, None if it did not."""
        if not self.attributes:
            return None
        for base in cls.__mro__:
            found = self.attributes.get((id(base), name))
            if found is not None:
                return found[1]
            if name in base.__dict__:
                return None
        return None

    def module_key(self, module: ModuleType) -> str | None:
        """How sources name a module's globals: '' for the compiled function's own; None if it is not to be imported."""
        if module.__dict__ is self.function.__globals__:
            return ""
        return module.__name__ if sys.modules.get(module.__name__) is module else None

    def pin(self, function: FunctionType, source: Source | None) -> str:
        """The module name of globals that belong to no imported module: they are reached through ``function``."""
        namespace = function.__globals__
        name = f"{UNREACHABLE}{id(namespace)}"
        self._pinned[id(namespace)] = namespace
        if source is not None:
            self.sources.setdefault(name, Attr(source, "__globals__"))
        return name

    def namespace_of(self, module: str) -> dict[str, Any]:
        """The globals that a Global source's ``module`` names."""
        if module == "":
            return self.function.__globals__
        if module.startswith(UNREACHABLE):
            return self._pinned[int(module.removeprefix(UNREACHABLE))]
        return sys.modules[module].__dict__


def set_overlay(m: Machine, owner: Any, name: str, value: Value) -> None:
    """The program writes an attribute of an existing object; one that nothing leads to ends the graph."""
    overlays = m.state(Overlays)
    key = overlays.module_key(owner.real) if isinstance(owner.real, ModuleType) else None
    if owner.source is None and key is None:
        raise Unsupported(f"writing attribute `{name}` of the {owner.describe()}")
    if isinstance(owner.real, type):
        written = getattr(value, "real", None)
        special = name.startswith("__") or is_data_descriptor(m, m.class_lookup(owner.real, name))
        binds = (written is not None and hasattr(type(written), "__get__")) or value.python_type() is FunctionType
        if special or binds:
            raise Unsupported(f"writing attribute `{name}` of the {owner.describe()}")
    refuse_when_sealed(m)
    if key is not None:
        overlays.globals[(key, name)] = value
    else:
        overlays.attributes[(id(owner.real), name)] = (owner, value)
