"""``copy.copy`` and ``copy.deepcopy``: which values are their own copies, and how tensors are copied."""

from __future__ import annotations

import copy
import datetime
import decimal
import re
import weakref
from types import ModuleType
from typing import Any

import torch

from ..errors import Unsupported
from ..guarding.wrap import KNOWN_TYPES
from ..polyfills import copies as polyfills
from ..values.arrays import ArrayV
from ..values.constant import ConstantV
from ..values.containers import SequenceV, SetV, SliceV
from ..values.converted_branches import refuse_identity
from ..values.dicts import DictV
from ..values.functions import FunctionV, PartialV, WeakRefV
from ..values.instance import InstanceV
from ..values.known import KnownV
from ..values.made import MadeV
from ..values.methods import CallableV, MethodV
from ..values.tensor import TensorV
from .registry import handles

# Objects that never change, so that their copies may be themselves; modules cannot be copied.
UNCHANGING: tuple[Any, ...] = (
    type, *(kind for kind in KNOWN_TYPES if kind is not ModuleType), weakref.ref, re.Pattern, re.Match, decimal.Decimal,
    datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo,
)  # fmt: skip
BUILTIN = (tuple, frozenset, torch.Size)  # beside those that may change


@handles(copy.copy)
def copy_(m, args, kwargs):
    if isinstance(args[0], TensorV):
        raise Unsupported("copy.copy of a tensor")
    return m.call(m.wrap(polyfills.copy), args, kwargs)


@handles(copy.deepcopy)
def deepcopy_(m, args, kwargs):
    return m.call(m.wrap(polyfills.deepcopy), args[:2], kwargs)


@handles(polyfills.is_atomic)
def is_atomic_(m, args, kwargs):
    value = args[0]
    if isinstance(value, (MethodV, PartialV, InstanceV, TensorV, ArrayV, SliceV)):
        return ConstantV(False)
    if isinstance(value, (SequenceV, SetV, DictV)):
        if value.python_type() not in (*BUILTIN, *polyfills.EMPTY) and not hasattr(value.python_type(), "_fields"):
            raise Unsupported(f"copying {value.a()}")
        return ConstantV(value.python_type() in (frozenset, torch.Size))
    if isinstance(value, (ConstantV, FunctionV, WeakRefV, MadeV)):
        return ConstantV(True)
    known = isinstance(value, KnownV) and isinstance(value.real, UNCHANGING)
    if not known and not (isinstance(value, CallableV) and hasattr(value, "code")):
        raise Unsupported(f"copying {value.a()}")
    return ConstantV(True)


@handles(polyfills.identity)
def identity_(m, args, kwargs):
    m.kept.append(args[0])
    return ConstantV(id(args[0]))


@handles(polyfills.copy_of_tensor)
def copy_of_tensor_(m, args, kwargs):
    value = args[0]
    if isinstance(value, ArrayV):
        return m.call(m.get_attr(value, "copy"), [], {})
    if not isinstance(value, TensorV):
        return ConstantV(NotImplemented)
    refuse_identity(m, [value])
    if value.fake.requires_grad or not torch.empty_like(value.fake, device="meta").stride() == value.fake.stride():
        raise Unsupported("copy.deepcopy of a tensor that requires grad or is not dense")
    return m.torch_method(value, "clone", [], {})


@handles(polyfills.attributes)
def attributes_(m, args, kwargs):
    return DictV.of([(ConstantV(name), value) for name, value in args[0].all_attributes(m).items()])


@handles(polyfills.slot_names)
def slot_names_(m, args, kwargs):
    names = []
    for cls in args[0].as_constant().__mro__:
        own = cls.__dict__.get("__slots__", ())
        for name in (own,) if isinstance(own, str) else own:
            private = name.startswith("__") and not name.endswith("__")
            if name not in ("__dict__", "__weakref__"):
                names.append(f"_{cls.__name__.lstrip('_')}{name}" if private else name)
    return m.wrap_result(names)
