"""Calling a method of a C type: the handler of its table, a protocol that all kinds answer, or a call on constants."""

from __future__ import annotations

import datetime
import decimal
import functools
import itertools
import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from types import GenericAlias, MappingProxyType, UnionType
from typing import Any

import torch

from ...bytecode.operators import BINARY, COMPARE, Operator
from ..errors import Unsupported, fitting
from ..guarding.wrap import KNOWN_TYPES
from ..polyfills import dicts as polyfill_dicts
from ..protocol import Machine, Value
from ..values.constant import NONE, NUMPY_CONSTANTS, ConstantV
from ..values.containers import KINDS, ListV, SetV
from ..values.dicts import DictV
from ..values.hashing import hash_key
from ..values.instance import InstanceV
from ..values.iterators import IteratorV
from ..values.known import KnownV
from ..values.methods import call_descriptor
from . import arity as arguments
from . import of_types as methods
from .registry import METHODS, OF_DERIVED, PROTOCOLS, of_derived, protocols

READ_ONLY = frozenset(["__repr__", "__str__", "__format__", "__sizeof__", "__class_getitem__", "__dir__", "__hash__"])
# Classes whose objects never change and whose methods only look at them.
PURE_OWNERS: tuple[Any, ...] = (
    type, *KNOWN_TYPES, re.Pattern, re.Match, datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo,
    decimal.Decimal, torch.dtype, torch.device, torch.finfo, torch.iinfo, *NUMPY_CONSTANTS,
    MappingProxyType, functools.partial, GenericAlias, UnionType,
)  # fmt: skip
# Classes whose class methods depend on their arguments alone (``datetime.now`` does not).
PURE_CLASSES = frozenset({int, float, complex, bool, str, bytes, object, type, tuple, frozenset, torch.Size})
CONTAINERS = (dict, OrderedDict, defaultdict, tuple, set, frozenset, *KINDS)

of_derived({
    (OrderedDict, "__init__"): polyfill_dicts.update_of_ordered,
    (OrderedDict, "update"): polyfill_dicts.update_of_ordered,
    (OrderedDict, "setdefault"): polyfill_dicts.setdefault_of_ordered,
    (OrderedDict, "copy"): polyfill_dicts.copy_of_ordered,
    (OrderedDict, "__copy__"): polyfill_dicts.copy_of_ordered,
    (defaultdict, "copy"): polyfill_dicts.copy_of_defaulting,
    (defaultdict, "__copy__"): polyfill_dicts.copy_of_defaulting,
    (defaultdict, "__init__"): polyfill_dicts.start_of_defaulting,
    (defaultdict, "__missing__"): polyfill_dicts.default_of,
})  # fmt: skip

# The package is imported for the handlers that it enters.
WITH_HANDLERS = methods


@call_descriptor.defined
def _call(m: Machine, descriptor: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    owner_class, name = getattr(descriptor, "__objclass__", None), descriptor.__name__
    if owner_class is None or not args:
        raise Unsupported(f"calling `{name}`")
    owner, rest = args[0], [m.settled_key(a) for a in args[1:]]
    if issubclass(torch.Tensor, owner_class) and owner_class is not object:
        return m.torch_method(owner, name, rest, kwargs)
    if isinstance(owner, InstanceV) and owner_class in CONTAINERS:
        if owner.payload is None:
            raise Unsupported(f"`{owner_class.__name__}.{name}` of {owner.a()}")
        if (owner_class, name) in OF_DERIVED:
            return m.call(m.wrap(OF_DERIVED[owner_class, name]), args, kwargs)
        if name == "__getitem__" and isinstance(owner.payload, DictV):
            return _item_or_missing(m, owner, owner.payload, rest[0])
        owner = owner.payload
    if isinstance(owner, KnownV) and type(owner.real) is MappingProxyType:  # of a class
        owner = DictV(MappingProxyType, owner.real, owner.source)
    if issubclass(owner_class, BaseException):
        of_groups = issubclass(owner_class, BaseExceptionGroup) and (BaseExceptionGroup, name) in METHODS
        owner_class = BaseExceptionGroup if of_groups else BaseException
    handler = METHODS.get((owner_class, name))
    if handler is not None:
        if owner_class in CONTAINERS:
            arguments.check(m, descriptor, args, kwargs)
        return fitting(f"{owner_class.__name__}.{name}", handler, m, owner, *rest, **kwargs)
    protocol = PROTOCOLS.get(name)
    if protocol is not None and not isinstance(owner, InstanceV):
        return fitting(f"{owner_class.__name__}.{name}", protocol, m, owner, *rest)
    if isinstance(owner, InstanceV) and isinstance(owner.payload, ConstantV) and owner_class is not object:
        owner = owner.payload
    if isinstance(owner, KnownV) and name not in READ_ONLY and not isinstance(owner.real, PURE_OWNERS):
        raise Unsupported(f"`{owner_class.__name__}.{name}()`, which may change the object")
    changing = isinstance(owner, (ListV, DictV)) or (isinstance(owner, SetV) and owner.cls is set)
    if changing and name not in READ_ONLY:
        # a constant copy would take the change, not the object
        raise Unsupported(f"`{owner_class.__name__}.{name}()`")
    return m.fold(descriptor, [owner, *rest], kwargs)


def _item_or_missing(m: Machine, owner: InstanceV, payload: DictV, key: Value) -> Value:
    """An item of a dictionary's subclass, which may have ``__missing__`` (Counter)."""
    value = payload.lookup(m, hash_key(key))
    if value is not None:
        return value
    missing = owner.method(m, "__missing__")
    return m.call(missing, [key], {}) if missing is not None else payload.get_item(m, key)


def call_class_method(m: Machine, cls: type, real: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A builtin bound to a class: ``X.__new__``, ``dict.fromkeys``."""
    from . import constructors as classes

    name = real.__name__
    if cls in CONTAINERS:
        arguments.check(m, real, args, kwargs)
    if name == "__new__":
        return classes.new(m, args, kwargs)
    if name == "fromkeys":
        value = kwargs.get("value", args[1] if len(args) > 1 else NONE)
        result = m.call(m.wrap(cls), [], {})
        for key in m.listed(args[0] if args else kwargs["iterable"]):
            result.set_item(m, m.settled_key(key), value)
        return result
    if name in ("__subclasshook__", "__init_subclass__"):
        return NONE
    if cls is itertools.chain and name == "from_iterable":
        return m.call(m.polyfill("chain_from_iterable"), args, kwargs)
    if cls not in PURE_CLASSES:
        raise Unsupported(f"`{cls.__name__}.{name}()`")
    return m.fold(real, args, kwargs)


# --- what all kinds answer --------------------------------------------------------------------------------------------
def _binary(row: Operator) -> Callable[..., Value]:
    return lambda m, left, right: m.binary(row.function, left, right)


protocols({
    "__len__": lambda m, o: o.changing_length(m) or ConstantV(o.length(m)),
    "__iter__": lambda m, o: m.iterate(o),
    "__contains__": lambda m, o, x: ConstantV(o.contains(m, x)),
    "__getitem__": lambda m, o, k: m.forced(o.get_item(m, k)),
    "__setitem__": lambda m, o, k, v: (o.set_item(m, k, v), NONE)[1],
    "__delitem__": lambda m, o, k: (o.del_item(m, k), NONE)[1],
    "__next__": lambda m, o: _next(m, o),
    "__call__": lambda m, o, *args: m.call(o, list(args), {}),
    "__getattribute__": lambda m, o, n: m.get_attr(o, n.as_constant()),
    **{row.method: _binary(row) for row in (*COMPARE.values(), *(BINARY[symbol] for symbol in "+-*|&"))},
})  # fmt: skip


def _next(m: Machine, iterator: Value) -> Value:
    value = iterator.next(m)
    if value is not None:
        return value
    assert isinstance(iterator, IteratorV)
    iterator.stop(m)
