"""Types written inside the function: ``List[Tensor]``, ``Optional[int]``, ``Mine[T]`` are made by ``typing`` itself.

What typing's code looks at (the frames that call it, its caches) is no part of the program.
"""

from __future__ import annotations

import operator
from types import ClassMethodDescriptorType, GenericAlias
from typing import Any

import torch

from ..errors import Unsupported
from ..protocol import Machine, Value
from ..values.binding import class_lookup
from ..values.constant import ConstantV
from ..values.containers import ListV, TupleV
from ..values.instance import InstanceV
from ..values.known import KnownV, is_made, made_item
from .registry import handles

MODULES = ("typing", "typing_extensions")


def is_generic(value: Value) -> bool:
    """Whether ``value[...]`` is a type by typing's own code."""
    real = value.real if isinstance(value, (KnownV, InstanceV)) else None
    if isinstance(real, type):
        made_by = class_lookup(real, "__class_getitem__")
        function = getattr(made_by, "__func__", None)
        by_alias = isinstance(function, type) and issubclass(function, GenericAlias)  # of collections.abc
        by_c = real is type or isinstance(made_by, ClassMethodDescriptorType)  # of builtins
        return by_alias or by_c or getattr(function, "__module__", None) in MODULES
    return type(real).__module__ in MODULES


def item(m: Machine, generic: Value, key: Value) -> Value:
    """``generic[key]``."""
    if is_made(generic) or is_made(key):
        return made_item(m, generic, key)
    return m.wrap(m.real(operator.getitem, _type(m, generic), _type(m, key)), None)


@handles(torch.jit.annotate)
def annotate(m, args, kwargs):
    """``torch.jit.annotate(a_type, value)``, which means something to TorchScript alone."""
    return args[1]


def _type(m: Machine, value: Value) -> Any:
    value = m.forced(value)
    if isinstance(value, ConstantV):
        return value.value
    if isinstance(value, (TupleV, ListV)):
        return (list if isinstance(value, ListV) else tuple)([_type(m, part) for part in value.all(m)])
    if isinstance(value, KnownV):
        return value.real
    if isinstance(value, InstanceV) and value.real is not None:
        if value.source is not None:
            m.guard(value.source, "identity", value.real, "is part of a type")
        return value.real
    raise Unsupported(f"a type made of {value.a()}")
