"""A digest of a function with all that it reads: what ran as it is while a program was captured, or is traced anew.

Its code, defaults and closure, and what its global names stand for: functions of the program likewise, plain values by
themselves, modules by the digests of their files. PyTorch and the standard library have versions.
"""

from __future__ import annotations

import enum
import hashlib
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from ..records.kept_graph import NotKept
from .modules import is_versioned, module_digest
from .objects import code_digest, described

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


def deep_digest(function: Any) -> str:
    """Raises NotKept where it reads an object that no text describes."""
    return hashlib.sha256(repr(_facts(function, {})).encode("utf-8", "surrogateescape")).hexdigest()[:24]


def _facts(value: Any, seen: dict[int, int]) -> Any:
    if isinstance(value, _PLAIN):
        return type(value).__name__, repr(value)
    if id(value) in seen:
        return "seen", seen[id(value)]
    seen[id(value)] = len(seen)
    if isinstance(value, FunctionType):
        return _of_function(value, seen)
    if isinstance(value, MethodType):
        return "method", _facts(value.__func__, seen), _facts(value.__self__, seen)
    if isinstance(value, ModuleType):
        return "module", value.__name__, "" if is_versioned(value.__name__) else module_digest(value.__name__)
    if isinstance(value, (tuple, list, set, frozenset)):
        parts = [_facts(item, seen) for item in value]
        return type(value).__name__, sorted(map(repr, parts)) if isinstance(value, (set, frozenset)) else parts
    if isinstance(value, dict):
        return "dict", [(_facts(k, seen), _facts(v, seen)) for k, v in value.items()]
    if isinstance(value, enum.Enum):
        return "enum", described(type(value)), value.name
    if isinstance(value, type):
        home = value.__module__
        return "class", described(value), "" if is_versioned(home) else module_digest(home)
    if isinstance(value, BuiltinFunctionType):
        return described(value)
    if isinstance(value, torch.Tensor):
        raise NotKept("a function that ran while the program was captured reads a tensor")
    wrapped = getattr(value, "__wrapped__", None) or getattr(value, "func", None)
    if isinstance(wrapped, FunctionType):
        return "wrapper", type(value).__qualname__, _facts(wrapped, seen)
    return described(value)


def _of_function(function: FunctionType, seen: dict[int, int]) -> Any:
    home = str(function.__globals__.get("__name__"))
    if is_versioned(home):
        return "function", home, function.__qualname__
    read = {
        name: function.__globals__[name] for name in sorted(_names(function.__code__)) if name in function.__globals__
    }
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(_facts(cell.cell_contents, seen))
        except ValueError:
            cells.append("empty")
    held = function.__defaults__, function.__kwdefaults__
    return (
        code_digest(function.__code__), [_facts(one, seen) for one in held], cells,
        [(name, _facts(value, seen)) for name, value in read.items()],
    )  # fmt: skip


def _names(code: CodeType) -> set[str]:
    return set(code.co_names).union(*(_names(one) for one in code.co_consts if isinstance(one, CodeType)))
