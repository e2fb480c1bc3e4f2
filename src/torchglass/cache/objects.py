"""Objects of programs and libraries by their paths, and what they are as a text that another process compares.

    name_of(torch.nn.Linear.forward)        # ["torch.nn.modules.linear", "Linear", "forward"]
    found(name_of(x)) is x
    described(model.forward.__func__)       # ["function", "models", "Net.forward", "3f5a..."]: code by its digest

A path is tried when it is made: an object that it does not lead to has none. A description is of what an entry relies
on of an object that a guard holds to be the same: of a function its code, of a class its name (what is used of it has
guards of its own).
"""

from __future__ import annotations

import enum
import functools
import hashlib
import importlib
import inspect
import logging
import re
import sys
import types
import weakref
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, NoReturn

import torch

from ..records.kept_graph import NotKept
from ..torch_compat import OpOverload, OpOverloadPacket


# --- by path ----------------------------------------------------------------------------------------------------------
def name_of(value: Any) -> list[str]:
    """Module and names that lead to an object. Raises NotKept where there are none."""
    path = _paths.get(id(value))
    if path is None or not _is_at(path, value):  # perhaps of an object that was there before it
        if len(_paths) >= MOST_PATHS:
            _paths.clear()
        path = _paths[id(value)] = _sought(value)
    return path


MOST_PATHS = 4096
_paths: dict[int, list[str]] = {}
"""Paths that were found, by the objects' identities: a hundred guards name the same few classes."""


def _sought(value: Any) -> list[str]:
    if isinstance(value, CodeType):  # modules hold none, and looking through them takes its time
        _nowhere(value)
    if isinstance(value, ModuleType):
        if sys.modules.get(value.__name__) is value:
            return [value.__name__]
        raise NotKept(f"the module {value.__name__} is not in sys.modules under its name")
    if type(value) is dict and isinstance(name := value.get("__name__"), str):
        # torch.backends puts another object in its place in sys.modules, whose `m` is the module
        paths = ([name, ":globals"], [name, "m", ":globals"])
        return next((path for path in paths if _is_at(path, value)), None) or _nowhere(value)
    module = getattr(value, "__module__", None) or getattr(getattr(value, "__objclass__", None), "__module__", None)
    qualname = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if isinstance(module, str) and isinstance(qualname, str):
        for steps in _candidates(module, qualname.split(".")):
            if _is_at(steps, value):
                return steps
    if isinstance(value, logging.Logger):
        return ["logging", f":logger {value.name}"]
    if isinstance(value, logging.Manager) and value is logging.Logger.manager:
        return ["logging", "Logger", "manager"]
    for home in (module, "builtins", "types", "_operator", "math", "torch"):
        place = sys.modules.get(home) if isinstance(home, str) else None
        key = next((k for k, v in list(vars(place).items()) if v is value), None) if place is not None else None
        if key is not None:
            assert isinstance(home, str)
            return [home, key]
    return _nowhere(value)


def _nowhere(value: Any) -> NoReturn:
    raise NotKept(f"no path leads to {_brief(value)}")


def _candidates(module: str, names: list[str]) -> Iterator[list[str]]:
    yield [module, *names]
    try:
        start = found([module, *names])
    except NotKept:
        return
    waiting, seen = [([module, *names], start)], {id(start)}
    while waiting and len(seen) < 50:
        path, value = waiting.pop(0)
        for step, part in _parts(value):
            if id(part) not in seen:
                seen.add(id(part))
                waiting.append(([*path, step], part))
                yield [*path, step]


def _is_at(path: list[str], value: Any) -> bool:
    try:
        return found(path) is value
    except NotKept:
        return False


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object that stands for a function, or around one, is made of."""
    for name in ("fget", "fset", "fdel", "__func__", "func", "__wrapped__", "_torchdynamo_inline"):
        if not isinstance(value, type) and (part := inspect.getattr_static(value, name, None)) is not None:
            part = getattr(value, name, None)
            if callable(part):
                yield f":{name}", part
    if type(value) is FunctionType:
        for index, cell in enumerate(value.__closure__ or ()):
            try:
                part = cell.cell_contents
            except ValueError:
                continue
            if callable(part) or isinstance(part, (staticmethod, classmethod, property)):
                yield f":cell {index}", part


def found(path: list[str]) -> Any:
    """What a path leads to. Raises NotKept if it is not there."""
    value: Any = sys.modules.get(path[0])
    if value is None:
        try:
            value = importlib.import_module(path[0])
        except Exception as error:
            raise NotKept(f"there is no module {path[0]}: {type(error).__name__}") from None
    for step in path[1:]:
        value = _after(value, step, path)
    return value


def _after(value: Any, step: str, path: list[str]) -> Any:
    try:
        if step == ":globals":
            return vars(value)
        if step.startswith(":cell "):
            return value.__closure__[int(step.removeprefix(":cell "))].cell_contents
        if step.startswith(":logger "):
            return logging.getLogger(step.removeprefix(":logger "))
        if step.startswith(":"):
            return getattr(value, step[1:])
        if isinstance(value, type):
            return next(vars(base)[step] for base in value.__mro__ if step in vars(base))
        return vars(value)[step] if isinstance(value, ModuleType) and step in vars(value) else getattr(value, step)
    except (AttributeError, KeyError, IndexError, ValueError, TypeError, StopIteration):
        raise NotKept(f"{'.'.join(path)} is not there") from None


# --- by description ---------------------------------------------------------------------------------------------------
_BUILTIN = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.ClassMethodDescriptorType, types.MethodWrapperType,
)  # fmt: skip
_VALUES = (
    bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.Size,
    types.GenericAlias, types.UnionType, types.NotImplementedType, types.EllipsisType,
)  # fmt: skip


_OF_VALUES = ("typing", "datetime", "decimal", "fractions", "uuid", "pathlib")
"""Modules of the standard library whose objects do not change, and say in their texts what they are."""


def described(value: Any) -> list[Any]:
    """What a later process must find in the place of ``value``, for ``json``. Raises NotKept for an object that is
    itself and nothing else.
    """
    if isinstance(value, type):
        return ["class", value.__module__, value.__qualname__, *_made_of(value)]
    if isinstance(value, FunctionType):
        return ["function", value.__module__, value.__qualname__, code_digest(value.__code__)]
    if isinstance(value, CodeType):
        return ["code", code_digest(value)]
    if isinstance(value, ModuleType):
        return ["module", value.__name__]
    if isinstance(value, _BUILTIN):
        owner = getattr(value, "__objclass__", None) or getattr(value, "__self__", None)
        home = owner.__qualname__ if isinstance(owner, type) else getattr(owner, "__name__", type(owner).__qualname__)
        return ["builtin", type(value).__name__, str(home), value.__name__]
    if isinstance(value, property):
        return ["property", *(None if f is None else described(f) for f in (value.fget, value.fset, value.fdel))]
    if isinstance(value, (staticmethod, classmethod)):
        return [type(value).__name__, described(value.__func__)]
    if isinstance(value, functools.cached_property):
        return ["cached_property", described(value.func)]
    if isinstance(value, functools.partial):
        return ["partial", described(value.func), len(value.args), sorted(value.keywords)]
    if isinstance(value, (OpOverload, OpOverloadPacket, torch.library.CustomOpDef)):
        return ["operator", str(value)]  # what it does: operators.py
    if isinstance(value, (logging.Logger, logging.Manager)) or type(value).__module__ == "numpy":
        return ["object", *name_of(value)]
    if isinstance(value, re.Pattern):
        return ["pattern", repr(value.pattern), value.flags]
    if isinstance(value, weakref.ref):
        return ["weakref", type(value()).__qualname__]  # what it refers to has guards of its own
    if isinstance(value, types.DynamicClassAttribute):
        return [type(value).__qualname__, *(None if f is None else described(f) for f in (value.fget, value.fset))]
    if isinstance(value, _VALUES) or type(value).__module__ in _OF_VALUES:
        return ["value", type(value).__name__, repr(value)]
    if type(value) is dict and isinstance(name := value.get("__name__"), str):
        return ["globals", name]
    scripted = getattr(value, "_torchdynamo_inline", None)
    if isinstance(scripted, FunctionType):
        return ["script", described(scripted)]  # of TorchScript, interpreted as Python
    wrapped = getattr(value, "__wrapped__", None)
    if isinstance(wrapped, FunctionType) and type(value).__module__ in ("functools", "contextlib"):
        return ["wrapper", type(value).__qualname__, described(wrapped)]
    raise NotKept(f"a guard holds {_brief(value)} to be the same object")


def _made_of(cls: type) -> list[Any]:
    """What classes are that a call makes and no body: the fields of named tuples, the members of enumerations."""
    if isinstance(cls, enum.EnumMeta):
        members: Any = cls.__members__.items()
        return [[name, member.name, type(member.value).__name__, repr(member.value)] for name, member in members]
    fields = cls.__dict__.get("_fields")
    if issubclass(cls, tuple) and isinstance(fields, tuple):
        defaults = cls.__dict__.get("_field_defaults", {})
        return [list(map(str, fields)), [[name, type(value).__name__, repr(value)] for name, value in defaults.items()]]
    return []


@functools.lru_cache(maxsize=4096)
def code_digest(code: CodeType) -> str:
    """A digest of all that a code object does, and of its lines; not of where its file lies."""
    said = (
        code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags,
        code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_firstlineno, code.co_linetable,
        getattr(code, "co_exceptiontable", b""), [_constant(value) for value in code.co_consts],
    )  # fmt: skip
    return hashlib.sha256(repr(said).encode("utf-8", "surrogateescape")).hexdigest()[:24]


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return code_digest(value)
    if isinstance(value, (tuple, frozenset)):
        parts = [_constant(item) for item in value]
        return type(value).__name__, sorted(parts, key=repr) if isinstance(value, frozenset) else parts
    return type(value).__name__, repr(value)


def _brief(value: Any) -> str:
    kind = type(value)
    name = getattr(value, "__qualname__", None)
    of = f" {value.__module__}.{name}" if isinstance(name, str) else ""
    return f"the {kind.__qualname__}{of}" if of else f"an object of {kind.__module__}.{kind.__qualname__}"
