"""Methods of C types on symbolic containers: one table keyed by (class, name)."""

from __future__ import annotations

import datetime
import decimal
import functools
import itertools
import re
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from types import FunctionType, GeneratorType, GenericAlias, MappingProxyType, SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Any

import torch

from ..records.sources import Referent
from .errors import Unsupported, UserError, fitting
from .values.base import Value
from .values.constant import NONE, NUMPY_CONSTANTS, ConstantV
from .values.containers import ListV, SetV, TupleV
from .values.dicts import DictV, DictViewV
from .values.functions import MethodV
from .values.hashing import hash_key
from .values.instance import ExceptionV, InstanceV
from .values.known import KnownV
from .values.tensor import TensorV
from .wrap import KNOWN_TYPES

if TYPE_CHECKING:
    from .machine import Machine

Method = Callable[..., Value]
METHODS: dict[tuple[type, str], Method] = {}


def method(*classes: type, name: str | None = None) -> Callable[[Method], Method]:
    """Register a method of ``classes``; its Python name is the function's, less a trailing underscore or prefix."""

    def register(function: Method) -> Method:
        key = name or function.__name__.partition("__")[2] or function.__name__
        for cls in classes:
            if not hasattr(cls, key):
                raise ValueError(f"{cls.__name__} has no method {key}")
            if (cls, key) in METHODS:
                raise ValueError(f"{cls.__name__}.{key}: already handled")
            METHODS[cls, key] = function
        return function

    return register


LAST, ZERO, ONE, TRUE = ConstantV(-1), ConstantV(0), ConstantV(1), ConstantV(True)
READ_ONLY = frozenset(["__repr__", "__str__", "__format__", "__sizeof__", "__class_getitem__", "__dir__", "__hash__"])
# Classes whose objects never change and whose methods only look at them.
PURE_OWNERS: tuple[Any, ...] = (
    type, *KNOWN_TYPES, re.Pattern, re.Match, datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo,
    decimal.Decimal, torch.dtype, torch.device, torch.finfo, torch.iinfo, *NUMPY_CONSTANTS,
    MappingProxyType, functools.partial, GenericAlias, UnionType,
)  # fmt: skip
# Classes whose class methods depend on their arguments alone (``datetime.now`` does not).
PURE_CLASSES = frozenset({int, float, complex, bool, str, bytes, object, type, tuple, frozenset, torch.Size})
CONTAINERS = (dict, OrderedDict, defaultdict, list, tuple, set, frozenset, deque)


def call(m: Machine, descriptor: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call ``descriptor`` (a method or slot of a C type) with the object first."""
    owner_class, name = getattr(descriptor, "__objclass__", None), descriptor.__name__
    if owner_class is None or not args:
        raise Unsupported(f"calling `{name}`")
    owner, rest = args[0], [m.settled_key(a) for a in args[1:]]
    if issubclass(torch.Tensor, owner_class) and owner_class is not object:
        return m.torch_method(owner, name, rest, kwargs)
    if isinstance(owner, InstanceV) and owner_class in CONTAINERS and owner.payload is not None:
        if name == "__getitem__" and isinstance(owner.payload, DictV):
            return _item_or_missing(m, owner, owner.payload, rest[0])
        owner = owner.payload
    if issubclass(owner_class, BaseException):
        owner_class = BaseException
    handler = METHODS.get((owner_class, name))
    if handler is not None:
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
    from . import classes

    name = real.__name__
    if name == "__new__":
        return classes.new(m, cls, args, kwargs)
    if name == "fromkeys":
        value = args[1] if len(args) > 1 else NONE
        result = DictV.of([(k, value) for k in m.listed(args[0])])
        result.cls = cls
        return result
    if name in ("__subclasshook__", "__init_subclass__"):
        return NONE
    if cls is itertools.chain and name == "from_iterable":
        return m.call(m.polyfill("chain_from_iterable"), args, kwargs)
    if cls not in PURE_CLASSES:
        raise Unsupported(f"`{cls.__name__}.{name}()`")
    return m.fold(real, args, kwargs)


# --- what all kinds answer --------------------------------------------------------------------------------------------
def _comparison(name: str) -> Callable[..., Value]:
    import operator

    function = getattr(operator, name)
    return lambda m, left, right: m.binary(function, left, right)


PROTOCOLS: dict[str, Callable[..., Value]] = {
    "__len__": lambda m, o: ConstantV(o.length(m)),
    "__iter__": lambda m, o: m.iterate(o),
    "__contains__": lambda m, o, x: ConstantV(o.contains(m, x)),
    "__getitem__": lambda m, o, k: m.forced(o.get_item(m, k)),
    "__setitem__": lambda m, o, k, v: (o.set_item(m, k, v), NONE)[1],
    "__delitem__": lambda m, o, k: (o.del_item(m, k), NONE)[1],
    "__next__": lambda m, o: _next(m, o),
    "__call__": lambda m, o, *args: m.call(o, list(args), {}),
    "__getattribute__": lambda m, o, n: m.get_attr(o, n.as_constant()),
    **{f"__{n}__": _comparison(n) for n in ("eq", "ne", "lt", "le", "gt", "ge", "add", "mul", "sub")},
    "__or__": _comparison("or_"),
    "__and__": _comparison("and_"),
}


def _next(m: Machine, iterator: Value) -> Value:
    value = iterator.next(m)
    if value is None:
        m.throw(StopIteration)
    assert value is not None
    return value


# --- list -------------------------------------------------------------------------------------------------------------
@method(list, deque)
def append(m, self, value):
    self.all(m)
    m.mutate(self)
    self.items.append(value)
    _trim(self, left=True)
    return NONE


def _trim(self, left):
    maxlen = self.maxlen
    if maxlen is not None and len(self.items) > maxlen:
        self.items.pop(0 if left else -1)


@method(deque)
def appendleft(m, self, value):
    self.all(m)
    m.mutate(self)
    self.items.insert(0, value)
    _trim(self, left=False)
    return NONE


@method(list, deque)
def extend(m, self, values):
    for value in m.listed(values):
        append(m, self, value)
    return NONE


@method(list, deque)
def insert(m, self, index, value):
    self.all(m)
    m.mutate(self)
    self.items.insert(m.as_index(index), value)
    return NONE


@method(list, name="pop")
def list_pop(m, self, index=LAST):
    if not self.items:
        m.throw(IndexError, "pop from empty list")
    self.all(m)
    m.mutate(self)
    return m.real(self.items.pop, m.as_index(index))


@method(deque, name="pop")
def deque_pop(m, self):
    return list_pop(m, self)


@method(deque)
def popleft(m, self):
    return list_pop(m, self, ConstantV(0))


@method(list, deque, name="remove")
def list_remove(m, self, value):
    for n, item in enumerate(self.all(m)):
        if m.equal(item, value):
            m.mutate(self)
            del self.items[n]
            return NONE
    m.throw(ValueError, "list.remove(x): x not in list")


@method(list, deque, name="clear")
def list_clear(m, self):
    m.mutate(self)
    self.items.clear()
    return NONE


@method(list, tuple, deque)
def index(m, self, value, start=ZERO, stop=NONE):
    items = self.all(m)
    window = range(*slice(m.as_index(start), stop.as_constant()).indices(len(items)))
    for n in window:
        if m.equal(items[n], value):
            return ConstantV(n)
    m.throw(ValueError, "value is not in list")


@method(list, tuple, deque)
def count(m, self, value):
    return ConstantV(sum(m.equal(item, value) for item in self.all(m)))


@method(list, deque)
def reverse(m, self):
    self.all(m)
    m.mutate(self)
    self.items.reverse()
    return NONE


@method(list)
def sort(m, self, **kwargs):
    from .builtin_functions import sort_list

    m.mutate(self)
    sort_list(m, self, kwargs)
    return NONE


@method(list, deque, name="copy")
def list_copy(m, self):
    result = ListV(list(self.all(m)), self.cls)
    result.maxlen = self.maxlen
    return result


@method(deque)
def extendleft(m, self, values):
    for value in m.listed(values):
        appendleft(m, self, value)
    return NONE


@method(deque)
def rotate(m, self, steps=ONE):
    items = self.all(m)
    m.mutate(self)
    cut = -m.as_index(steps) % len(items) if items else 0
    self.items[:] = items[cut:] + items[:cut]
    return NONE


def _in_place(name):
    import operator

    function = getattr(operator, name)
    return lambda m, left, right: m.binary(function, left, right)


METHODS[list, "__iadd__"] = METHODS[deque, "__iadd__"] = _in_place("iadd")


@method(list, name="__init__")
def list_init(m, self, values=None):
    if values is not None:
        m.mutate(self)
        self.items[:] = m.listed(values)
    return NONE


# --- dict -------------------------------------------------------------------------------------------------------------
@method(dict, MappingProxyType, name="get")
def dict_get(m, self, key, default=NONE):
    value = self.lookup(m, hash_key(key))
    return default if value is None else value


@method(dict, OrderedDict, name="pop")
def dict_pop(m, self, key, default=None):
    hashed = hash_key(key)
    value = self.lookup(m, hashed)
    if value is None:
        if default is None:
            m.throw(KeyError, key)
        return default
    self.remove(m, hashed)
    return value


@method(dict, OrderedDict)
def setdefault(m, self, key, default=NONE):
    value = self.lookup(m, hash_key(key))
    if value is None:
        self.set_item(m, key, default)
        value = default
    return value


@method(dict, OrderedDict, name="update")
def dict_update(m, self, other=None, **kwargs):
    if other is not None:
        is_mapping = isinstance(other, DictV) or "keys" in dir(other.python_type())
        pairs = m.mapping_pairs(other) if is_mapping else [m.listed(p) for p in m.listed(other)]
        for key, value in pairs:
            self.set_item(m, key, value)
    for name, value in kwargs.items():
        self.set_item(m, ConstantV(name), value)
    return NONE


@method(dict, OrderedDict, MappingProxyType, name="keys")
def dict_keys(m, self):
    return DictViewV(self, "keys")


@method(dict, OrderedDict, MappingProxyType, name="values")
def dict_values(m, self):
    return DictViewV(self, "values")


@method(dict, OrderedDict, MappingProxyType, name="items")
def dict_items(m, self):
    return DictViewV(self, "items")


@method(dict, OrderedDict, name="clear")
def dict_clear(m, self):
    self.clear(m)
    return NONE


@method(dict, OrderedDict, defaultdict, MappingProxyType, name="copy")
def dict_copy(m, self):
    result = DictV.of(self.pairs(m))
    result.cls, result.default_factory = self.cls, self.default_factory
    return result


@method(dict, OrderedDict)
def popitem(m, self, last=TRUE):
    keys = self.all_keys(m)
    if not keys:
        m.throw(KeyError, "dictionary is empty")
    key = keys[-1 if m.truth(last) else 0]
    value = self.get_item(m, key)
    self.remove(m, hash_key(key))
    return TupleV([key, value])


@method(OrderedDict)
def move_to_end(m, self, key, last=TRUE):
    self.fill(m)
    m.mutate(self)
    hashed = hash_key(key)
    value = self.items.pop(hashed)
    self.items = {**self.items, hashed: value} if m.truth(last) else {hashed: value, **self.items}
    return NONE


@method(dict, OrderedDict, defaultdict, name="__init__")
def dict_init(m, self, other=None, *more, **kwargs):
    if more or isinstance(other, KnownV):
        self.default_factory, other = other, (more[0] if more else None)
    return dict_update(m, self, other, **kwargs)


for _cls in (dict, OrderedDict):
    METHODS[_cls, "__setitem__"] = lambda m, self, key, value: (self.set_item(m, key, value), NONE)[1]
    METHODS[_cls, "__delitem__"] = lambda m, self, key: (self.del_item(m, key), NONE)[1]
METHODS[dict, "__getitem__"] = lambda m, self, key: self.get_item(m, key)
METHODS[dict, "__contains__"] = lambda m, self, key: ConstantV(self.contains(m, key))


# --- set --------------------------------------------------------------------------------------------------------------
def _keys(m, values):
    return {hash_key(v): v for v in m.listed(values)}


@method(set)
def add(m, self, value):
    m.mutate(self)
    self.items.setdefault(hash_key(value), value)
    return NONE


@method(set)
def discard(m, self, value):
    m.mutate(self)
    self.items.pop(hash_key(value), None)
    return NONE


@method(set, name="remove")
def set_remove(m, self, value):
    if hash_key(value) not in self.items:
        m.throw(KeyError, value)
    return discard(m, self, value)


@method(set, name="update")
def set_update(m, self, *others):
    m.mutate(self)
    for other in others:
        for key, value in _keys(m, other).items():
            self.items.setdefault(key, value)
    return NONE


@method(set, name="clear")
def set_clear(m, self):
    m.mutate(self)
    self.items.clear()
    return NONE


@method(set, frozenset, name="copy")
def set_copy(m, self):
    return SetV(list(self.items.values()), self.cls)


@method(set, name="pop")
def set_pop(m, self):
    if not self.items:
        m.throw(KeyError, "pop from an empty set")
    # which one goes is the set's own affair: ask a real set, when its members are constants
    chosen = m.real(set(m.settle(self).as_constant()).pop)
    m.mutate(self)
    return self.items.pop(chosen)


def _set_update(combine):
    def update(m, self, *others):
        result = combine(m, self, *others)
        m.mutate(self)
        self.items = result.items
        return NONE

    return update


def _set_rule(keep):
    def combine(m, self, *others):
        items = dict(self.items)
        for other in others:
            theirs = _keys(m, other)
            items = {k: v for k, v in {**items, **theirs}.items() if keep(k in items, k in theirs)}
        return SetV(list(items.values()), self.cls)

    return combine


for _name, _keep in {
    "union": lambda a, b: True,
    "intersection": lambda a, b: a and b,
    "difference": lambda a, b: a and not b,
    "symmetric_difference": lambda a, b: a != b,
}.items():
    _combine = method(set, frozenset, name=_name)(_set_rule(_keep))
    if _name != "union":
        method(set, name=f"{_name}_update")(_set_update(_combine))


@method(set, frozenset)
def issubset(m, self, other):
    return ConstantV(self.items.keys() <= _keys(m, other).keys())


@method(set, frozenset)
def issuperset(m, self, other):
    return ConstantV(self.items.keys() >= _keys(m, other).keys())


@method(set, frozenset)
def isdisjoint(m, self, other):
    return ConstantV(not (self.items.keys() & _keys(m, other).keys()))


# --- str with symbolic containers -------------------------------------------------------------------------------------
@method(str)
def join(m, self, values):
    return m.fold(str.join, [self, TupleV(m.listed(values))], {})


@method(str, name="format")
def str_format(m, self, *args, **kwargs):
    if any(isinstance(v, TensorV) for v in (*args, *kwargs.values())):
        raise Unsupported("formatting a tensor")
    return m.fold(str.format, [self, *args], kwargs)


# --- object -----------------------------------------------------------------------------------------------------------
@method(object, name="__setattr__")
def object_setattr(m, self, name, value):
    if isinstance(self, InstanceV):
        self.store_attr(m, name.as_constant(), value)
    else:
        self.set_attr(m, name.as_constant(), value)
    return NONE


@method(object, name="__delattr__")
def object_delattr(m, self, name):
    self.discard_attr(m, name.as_constant())
    return NONE


@method(object, name="__getattribute__")
def object_getattribute(m, self, name):
    if isinstance(self, InstanceV):
        value = self.find_attr(m, name.as_constant())
        if value is None:
            m.throw(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name.as_constant()}'")
        return value
    return m.get_attr(self, name.as_constant())


@method(object, name="__init__")
def object_init(m, self, *args, **kwargs):
    return NONE


@method(SimpleNamespace, name="__init__")
def namespace_init(m, self, **kwargs):
    for name, value in kwargs.items():
        self.store_attr(m, name, value)
    return NONE


@method(object, name="__eq__")
def object_eq(m, self, other):
    return ConstantV(True if m.identical(self, other) else NotImplemented)


@method(object, name="__ne__")
def object_ne(m, self, other):
    return ConstantV(not m.equal(self, other))


@method(object, name="__hash__")
def object_hash(m, self):
    from .builtin_functions import id_

    return id_(m, [self], {})


@method(object, name="__repr__")
def object_repr(m, self):
    raise Unsupported(f"repr() of a {self.describe()}")


@method(object, name="__str__")
def object_str(m, self):
    return m.call(m.wrap_known(repr), [self], {})


@method(object, name="__init_subclass__")
def object_init_subclass(m, self, **kwargs):
    return NONE


@method(BaseException, name="__init__")
def exception_init(m, self, *args, **kwargs):
    if isinstance(self, ExceptionV):
        self.args = list(args)
    return NONE


@method(BaseException)
def add_note(m, self, note):
    notes = self.attrs.lookup(m, "__notes__")
    if notes is None:
        notes = ListV([])
        self.attrs.set_item(m, ConstantV("__notes__"), notes)
    return append(m, notes, note)


METHODS[BaseException, "with_traceback"] = lambda m, self, tb: self


@method(BaseException, name="__str__")
def exception_str(m, self):
    if len(self.args) == 1:
        return m.call(m.wrap_known(repr if issubclass(self.cls, KeyError) else str), [self.args[0]], {})
    return m.fold(str, [TupleV(self.args)], {}) if self.args else ConstantV("")


@method(BaseException, name="__repr__")
def exception_repr(m, self):
    parts = [m.call(m.wrap_known(repr), [a], {}).as_constant() for a in self.args]
    return ConstantV(f"{self.cls.__name__}({', '.join(parts)})")


@method(weakref.ref, name="__call__")
def referent(m, self):
    """What a weak reference (WeakValueDictionary's, with a key) refers to."""
    return m.wrap(self.real(), Referent(self.source) if self.source else None)


# --- functions, generators, types -------------------------------------------------------------------------------------
@method(FunctionType, name="__get__")
def function_get(m, self, owner, cls=NONE):
    return self if isinstance(owner, ConstantV) and owner.value is None else MethodV(self, owner)


@method(GeneratorType)
def send(m, self, value):
    result = self.send(m, value)
    if result is None:
        m.throw(StopIteration, *([self.returned] if self.returned is not None else []))
    return result


@method(GeneratorType)
def throw(m, self, kind, value=NONE, traceback=NONE):
    given = value if isinstance(value, InstanceV) else kind
    result = self.throw(m, UserError(m.exception_from(given)))
    if result is None:
        m.throw(StopIteration, *([self.returned] if self.returned is not None else []))
    return result


@method(GeneratorType)
def close(m, self):
    try:
        result = self.throw(m, UserError(ExceptionV(GeneratorExit, [])))
    except UserError as error:
        if not issubclass(error.value.python_type(), (GeneratorExit, StopIteration)):
            raise
        return NONE
    if result is not None:
        m.throw(RuntimeError, "generator ignored GeneratorExit")
    return NONE


@method(type, name="__call__")
def type_call(m, self, *args, **kwargs):
    from . import classes

    return classes.construct(m, self.as_constant(), list(args), kwargs, through_metaclass=False)


@method(type)
def mro(m, self):
    return m.wrap_result(self.as_constant().mro())


METHODS[type, "__subclasses__"] = lambda m, self: m.wrap_result(self.as_constant().__subclasses__())
METHODS[type, "__instancecheck__"] = lambda m, self, value: ConstantV(
    issubclass(value.python_type(), self.as_constant())
)
METHODS[type, "__subclasscheck__"] = lambda m, self, value: ConstantV(
    issubclass(value.as_constant(), self.as_constant())
)
