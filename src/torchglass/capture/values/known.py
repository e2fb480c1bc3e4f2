"""Objects taken as they are: functions, classes, modules, builtins. Guarded by identity, never changed here."""

from __future__ import annotations

import enum
from types import BuiltinFunctionType, BuiltinMethodType, FunctionType, MethodDescriptorType, MethodType, ModuleType
from typing import Any

from ...records.sources import Attr, Fixed, InstanceDict, Item, Source
from ..errors import Unsupported
from ..protocol import MISSING, Machine, Value, declared
from ..values.binding import (
    RUN_BY_CALLS,
    bind,
    class_lookup,
    guard_lacks_attr,
    is_data_descriptor,
    may_change,
    rely_on_bases,
)
from ..values.overlays import Overlays
from .constant import ConstantV
from .methods import BuiltinMethodV, MethodV
from .overlays import set_overlay

OF_EVERY_CLASS = frozenset({"__name__", "__qualname__", "__mro__", "__bases__", "__module__", "__doc__", "__class__"})


def _home(real: Any) -> str | None:
    """The module that a function or class is defined in, or that is one; None for other objects."""
    if isinstance(real, ModuleType):
        return real.__name__
    return getattr(real, "__module__", None) if isinstance(real, type) or callable(real) else None


def is_made(value: Any) -> bool:
    """Whether a class that was made inside, or what is made of one, is ``value`` or in that tuple."""
    items = getattr(value, "items", None)
    return hasattr(value, "recipe") or (isinstance(items, list) and any(hasattr(item, "recipe") for item in items))


class KnownV(Value):
    """An existing object whose identity the graph may rely on."""

    def __init__(self, real: Any, source: Source | None = None) -> None:
        self.real = real
        self.source = source

    def __repr__(self) -> str:
        return f"KnownV({getattr(self.real, '__qualname__', self.real)!r})"

    def python_type(self) -> type:
        return type(self.real)

    def as_constant(self) -> Any:
        return self.real

    def describe(self) -> str:
        name = getattr(self.real, "__qualname__", None) or getattr(self.real, "__name__", None)
        kind = type(self.real).__name__
        if isinstance(self.real, FunctionType | BuiltinFunctionType):
            kind = "function"
        elif isinstance(self.real, type):
            kind = "class"
        module = getattr(self.real, "__module__", None)
        full = f"{module}.{name}" if module and name and module != "builtins" else name
        return f"{kind} `{full}`" if full else super().describe()

    def truth(self, m: Machine) -> bool:
        for name in ("__bool__", "__len__"):
            found = self.by_metaclass(m, name)
            if found is not None:
                return m.truth(found)
        return bool(m.real(bool, self.real))

    def call(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return call_known(m, self, args, kwargs)

    def get_attr(self, m: Machine, name: str) -> Value:
        overlay = m.state(Overlays).attribute(self.real, name)
        if overlay is not None:
            return overlay
        if name == "__dict__" and m.state(Overlays).names(self.real):
            raise Unsupported(f"`__dict__` of the {self.describe()} after a write", "read the attributes by name")
        if isinstance(self.real, type):
            overlay = m.state(Overlays).of_class(self.real, name)
            return self._class_attr(m, name) if overlay is None else overlay
        if isinstance(self.real, ModuleType) and name in self.real.__dict__ and name != "__dict__":
            return m.wrap(self.real.__dict__[name], self._global_source(m, name))
        if isinstance(self.real, ModuleType):
            switch = class_lookup(type(self.real), name)  # torch.backends.cudnn.enabled asks a function
            if hasattr(class_lookup(type(switch), "__get__"), "__code__") or isinstance(switch, property):
                return bind(m, switch, self, type(self.real), name)
            fallback = self.real.__dict__.get("__getattr__")
            if switch is MISSING and type(fallback) is FunctionType and not m.is_stable(self.real.__name__):
                return m.call(m.wrap(fallback, self._global_source(m, "__getattr__")), [ConstantV(name)], {})
        value = self._read(m, name)
        if isinstance(value, BuiltinMethodType) and value.__self__ is self.real:
            descriptor = m.class_lookup(type(self.real), name)
            if isinstance(descriptor, MethodDescriptorType):
                # bound anew at each read: there is nothing to guard but the object
                return BuiltinMethodV(descriptor, self)
        if isinstance(value, MethodType) and value.__self__ is self.real:
            return MethodV(KnownV(value.__func__), self)
        return m.wrap(value, Attr(self.source, name) if self.source else None)

    def _global_source(self, m: Machine, name: str) -> Source | None:
        if m.is_stable(self.real.__name__):
            return library_data(m, self.real, name)
        return Item(InstanceDict(self.source), name) if self.source else None

    def _class_attr(self, m: Machine, name: str) -> Value:
        if name == "__dict__":
            return self._class_dict(m)
        if name == "__members__" and isinstance(self.real, enum.EnumMeta):
            return m.wrap(m.real(getattr, self.real, name))
        if name in OF_EVERY_CLASS:
            return self._of_every_class(m, name)
        metaclass = type(self.real)
        by_metaclass = m.class_lookup(metaclass, name)
        if may_change(m, metaclass) and by_metaclass is not MISSING and is_data_descriptor(m, by_metaclass):
            return bind(m, by_metaclass, self, metaclass, name)
        attribute = m.class_lookup(self.real, name)
        if attribute is MISSING and by_metaclass is not MISSING:
            return bind(m, by_metaclass, self, metaclass, name)
        if attribute is MISSING:
            fallback = m.class_lookup(metaclass, "__getattr__")
            if type(fallback) is FunctionType and may_change(m, metaclass):
                return m.call(m.wrap(fallback), [self, ConstantV(name)], {})
            return m.wrap_result(m.real(getattr, self.real, name))
        return bind(m, attribute, self, self.real, name, is_class=True)

    def _of_every_class(self, m: Machine, name: str) -> Value:
        value = m.real(getattr, self.real, name)
        if name in ("__mro__", "__bases__"):
            rely_on_bases(m, self.real)
        elif may_change(m, self.real) and (value is None or isinstance(value, str)):
            m.guard(Attr(Fixed(self.real), name), "constant", value, f"the `{name}` of a class was read")
        return m.wrap_result(value)

    def _class_dict(self, m: Machine) -> Value:
        if self.source is None or m.is_stable(self.real.__module__):
            return KnownV(self.real.__dict__)
        return m.wrap(self.real.__dict__, InstanceDict(self.source))

    def _read(self, m: Machine, name: str) -> Any:
        """The attribute as it is; that there is none may change."""
        if not m.is_stable(_home(self.real)):
            guard_lacks_attr(m, self.real, self.source, name)
        return m.real(getattr, self.real, name)

    def set_attr(self, m: Machine, name: str, value: Value) -> None:
        if type(self.real) is FunctionType and name in RUN_BY_CALLS:
            raise Unsupported(f"writing `{name}` of a function")
        if self.by_metaclass(m, "__setattr__", ConstantV(name), value) is None:
            self.store(m, name, value)

    def store(self, m: Machine, name: str, value: Value) -> None:
        """Write an attribute without asking a metaclass of the user's."""
        set_overlay(m, self, name, value)

    def by_metaclass(self, m: Machine, name: str, *args: Value) -> Value | None:
        """A class's own ``len``, iteration, ...: the metaclass's method in Python, None where there is none."""
        method = m.class_lookup(type(self.real), name)
        counted = isinstance(self.real, enum.EnumMeta) and not name.endswith("attr__")
        if type(method) is not FunctionType or counted:
            return None
        return m.call(m.wrap(method), [self, *args], {})

    def get_item(self, m: Machine, key: Value) -> Value:
        found = self.by_metaclass(m, "__getitem__", key)
        if found is not None:
            return found
        if is_made(self) or is_made(key):
            return made_item(m, self, key)
        if isinstance(self.real, type):
            made_by = getattr(m.class_lookup(self.real, "__class_getitem__"), "__func__", None)
            if type(made_by) is FunctionType and not m.is_stable(made_by.__globals__.get("__name__")):
                return m.call(m.get_attr(self, "__class_getitem__"), [key], {})
        if key.is_constant() and type(self.real) is not FunctionType:
            return m.wrap_result(m.real(lambda: self.real[key.as_constant()]))
        raise Unsupported(f"an item of the {self.describe()}")

    def contains(self, m: Machine, item: Value) -> bool:
        found = self.by_metaclass(m, "__contains__", item)
        if found is not None:
            return m.truth(found)
        if item.is_constant():
            return bool(m.real(lambda: item.as_constant() in self.real))
        raise Unsupported(f"`in` on the {self.describe()}")

    def length(self, m: Machine) -> int:
        found = self.by_metaclass(m, "__len__")
        if found is not None:
            return int(found.as_constant())
        return int(m.real(len, self.real))


# --- what files above define ------------------------------------------------------------------------------------------
@declared
def call_known(m: Machine, function: KnownV, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call an existing function, class or builtin."""
    raise NotImplementedError


@declared
def made_item(m: Machine, owner: Value, key: Value) -> Value:
    """``owner[key]`` with classes that were made inside: ``list[Local]``, ``Local[int]``."""
    raise NotImplementedError


@declared
def library_data(m: Machine, module: ModuleType, name: str) -> Source | None:
    """How to reach what programs change in the modules of a library, where the program reads it: ``sys.argv``."""
    raise NotImplementedError


class CalledAtTheEnd(KnownV):
    """A function without arguments, among what the program wrote to: the entry calls it once."""
