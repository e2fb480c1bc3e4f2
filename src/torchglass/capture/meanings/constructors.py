"""Calling a class: builtin containers and iterators by table, exceptions, and classes of the user's."""

from __future__ import annotations

import datetime
import decimal
import functools
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from enum import EnumMeta
from types import FunctionType, MethodType, SimpleNamespace
from typing import Any

import torch

from ...bytecode.objects import c_base, is_heap_type, namesake
from ...records.sources import Attr, Source, TypeOf
from ..errors import Unsupported, fitting
from ..guarding.wrap import is_python_class
from ..meanings.argument_binding import bind_arguments
from ..protocol import MISSING, Machine, Value
from ..torch_api import numbers_read
from ..values import symbolic_strings
from ..values.arrays import is_scalar_class
from ..values.binding import home_of
from ..values.constant import NONE, NUMPY_CONSTANTS, ConstantV
from ..values.containers import ListV, SequenceV, SetV, SliceV, TupleV, is_size
from ..values.dicts import DictV
from ..values.functions import PartialV, WeakRefV
from ..values.instance import ExceptionV, InstanceV, check_given
from ..values.iterators import GOES_DOWN, EnumerateV, FilterV, MapV, ReversedV, SequenceIterV, ZipV
from ..values.known import KnownV
from ..values.made import MadeV
from ..values.methods import MethodV
from ..values.tensor import TensorV, known_value
from . import arity as arguments
from . import class_statement as class_bodies
from . import exception_groups
from .builtins import make_super
from .registry import Apply, Handler, Polyfill, entered, folded, handles


def construct(
    m: Machine, cls: type, args: list[Value], kwargs: dict[str, Value], through_metaclass: bool = True
) -> Value:
    """``cls(*args, **kwargs)``."""
    row = entered(cls)
    if row is not None:
        arguments.check(m, cls, args, kwargs)
        return fitting(cls.__name__, row.apply, m, args, kwargs)
    if issubclass(cls, torch.Tensor):
        return _tensor(m, cls, args, kwargs)
    if isinstance(cls, EnumMeta) and not cls.__members__:
        return class_bodies.make_enum(m, cls, args, kwargs)
    if isinstance(cls, EnumMeta) or is_scalar_class(cls):
        return m.fold(cls, args, kwargs)
    if issubclass(cls, torch.autograd.Function):
        raise Unsupported("an instance of torch.autograd.Function")
    if issubclass(cls, type) and m.is_stable(cls.__module__) and not class_bodies.is_followed(m, cls, args):
        return class_bodies.new_class(m, [m.wrap(cls), *args], kwargs)
    meta_call = m.class_lookup(type(cls), "__call__")
    if through_metaclass and isinstance(meta_call, type):
        return construct(m, meta_call, args, kwargs)  # a TypedDict's is dict
    if through_metaclass and type(meta_call) is FunctionType:
        place = m.class_sources.get(cls) if not m.is_stable(type(cls).__module__) else None
        called = m.wrap(meta_call, Attr(TypeOf(place), "__call__") if place else None)
        return m.call(called, [m.wrap(cls), *args], kwargs)
    if _is_made_by_fields(m, cls):
        return _namedtuple(m, cls, args, kwargs)
    new_function = m.class_lookup(cls, "__new__")
    new_function = getattr(new_function, "__func__", new_function)
    if type(new_function) is FunctionType:
        result = m.call(m.wrap(new_function, _way_to(m, cls, "__new__")), [m.wrap(cls), *args], kwargs)
        if not isinstance(result, (InstanceV, MadeV, TupleV)) or not issubclass(result.python_type(), cls):
            return result
    else:
        create = object_new if new_function is object.__new__ else new
        result = create(m, [m.wrap(cls), *args], kwargs)
    init = m.class_lookup(cls, "__init__")
    if type(init) is FunctionType:
        given = m.call(m.wrap(init, _way_to(m, cls, "__init__")), [result, *args], kwargs)
        check_given(m, "__init__", cls, given)
    elif init is not object.__init__:
        m.call(KnownV(init), [result, *args], kwargs)
    return result


def _way_to(m: Machine, cls: type, name: str) -> Source | None:
    place = None if m.is_stable(cls.__module__) else m.class_sources.get(cls)
    return Attr(place, name) if place is not None else None


@handles(object.__new__)
def object_new(m, args, kwargs):
    """``object.__new__(cls, ...)`` by hand, too: more arguments are for an ``__init__`` of the class's own."""
    cls = args[0].as_constant()
    if not isinstance(cls, type) or _made_by(cls) is not object.__new__:
        m.real(object.__new__, cls)  # raises with the words of this version of Python
    if args[1:] or kwargs:
        if m.class_lookup(cls, "__new__") is not object.__new__:
            m.throw_as(object.__new__, type(namesake(cls, __new__=None)), None)
        if m.class_lookup(cls, "__init__") is object.__init__:
            m.throw_as(object.__new__, type(namesake(cls)), None)
    return new(m, args[:1], {})


def _made_by(cls: type) -> Any:
    """``__new__`` of the C class that ``cls`` is or derives from."""
    return c_base(cls).__new__


def new(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``__new__(cls, ...)`` of a C type: an empty instance of ``cls``."""
    cls = args[0].as_constant()
    if issubclass(cls, type):
        return class_bodies.new_class(m, args, kwargs)
    if issubclass(cls, BaseExceptionGroup):
        return exception_groups.make(m, cls, args[1:])
    if issubclass(cls, BaseException):
        return ExceptionV(cls, args[1:])
    row = entered(cls)
    if isinstance(row, (Handler, Polyfill)):
        return row.apply(m, args[1:], kwargs)
    if issubclass(cls, tuple) and hasattr(cls, "n_sequence_fields"):
        return _struct_sequence(m, cls, args[1:], kwargs)
    if issubclass(cls, (tuple, frozenset)):
        base = tuple if issubclass(cls, tuple) else frozenset
        if m.class_lookup(cls, "__init__") is object.__init__:
            arguments.check(m, base, args[1:], kwargs)
        items = m.listed(args[1]) if len(args) > 1 else []
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            return TupleV(items, cls)
        result = InstanceV(cls)
        result.payload = TupleV(items) if base is tuple else SetV([m.settled_key(v) for v in items], frozenset)
        return result
    if issubclass(cls, (int, float, str, bytes)) and cls not in (int, float, str, bytes):
        result = InstanceV(cls)
        result.payload = m.fold(next(b for b in cls.__mro__ if b in (int, float, str, bytes)), args[1:], kwargs)
        return result
    allowed = (object, dict, list, set, OrderedDict, defaultdict)
    bases = [b for b in cls.__mro__ if not is_heap_type(b)]
    if any(b not in (*allowed, SimpleNamespace) and b.__module__ not in ("typing", "abc") for b in bases):
        raise Unsupported(f"making an instance of `{cls.__module__}.{cls.__qualname__}`")
    if any(is_heap_type(b) and b not in allowed and not is_python_class(b) for b in cls.__mro__):
        raise Unsupported(f"making an instance of `{cls.__module__}.{cls.__qualname__}`")
    if not is_heap_type(cls) and cls not in (object, SimpleNamespace):
        raise Unsupported(f"making an instance of `{cls.__module__}.{cls.__qualname__}`")
    if getattr(cls, "__abstractmethods__", None):
        m.real(object.__new__, cls)  # raises with the words of this version of Python
    if m.class_lookup(cls, "__del__") is not MISSING:
        raise Unsupported(f"making an instance of `{cls.__module__}.{cls.__qualname__}`, which has a `__del__`")
    result = InstanceV(cls)
    if issubclass(cls, defaultdict):
        result.slots["default_factory"] = NONE
    return result


folded(
    torch.finfo, torch.iinfo, range, bytes, decimal.Decimal, datetime.timedelta, datetime.date,
    datetime.datetime, datetime.time, *dict.fromkeys(NUMPY_CONSTANTS),
)  # fmt: skip


def _tensor(m: Machine, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if cls is torch.Tensor and is_size(args):
        return _of_dtype(torch.get_default_dtype())(m, args, kwargs)
    if cls is torch.Tensor or cls.__module__ == "torch":
        return m.torch_call(cls, args, kwargs)
    raise Unsupported(f"making a {cls.__name__}", "make parameters in __init__")


def _of_dtype(dtype: torch.dtype) -> Apply:
    """``torch.FloatTensor`` and its like, which programs from before dtypes use: of sizes, or of a list of numbers."""

    def make(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        only = args[0] if len(args) == 1 else None
        cpu: dict[str, Value] = {"dtype": ConstantV(dtype), "device": ConstantV(torch.device("cpu"))}
        if not kwargs and isinstance(only, (ListV, TupleV)) and only.python_type() in (list, tuple):
            exact = (int, bool) if not dtype.is_floating_point else (int, bool, float)
            if all(kind in exact for kind in _kinds_within(m, only)):
                return m.torch_call(torch.tensor, args, cpu)
        sizes = not args or is_size(args)
        if not kwargs and (sizes or all(arg.python_type() is int for arg in args)):
            return m.torch_call(torch.empty, args or [ConstantV(0)], cpu)
        raise Unsupported(f"a tensor of {str(dtype)[6:]} made by its old constructor", "use torch.tensor")

    return make


def _kinds_within(m: Machine, values: Value) -> Iterator[type]:
    for value in m.listed(values):
        if value.python_type() in (list, tuple):
            yield from _kinds_within(m, value)
        else:
            yield value.python_type()


for _name in ("Float", "Double", "Half", "BFloat16", "Byte", "Char", "Short", "Int", "Long", "Bool"):
    _old = getattr(torch, f"{_name}Tensor")
    handles(_old)(_of_dtype(_old.dtype))


def _struct_sequence(m: Machine, cls: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``torch.return_types.max((a, b))``, ``time.struct_time(...)``: one sequence of as many items as it shows. Others
    have fields besides.
    """
    items = m.listed(args[0]) if len(args) == 1 and not kwargs else []
    if len(items) != cls.n_sequence_fields:
        raise Unsupported(f"`{cls.__name__}` called with these arguments")
    return TupleV(items, cls)


def _is_made_by_fields(m: Machine, cls: Any) -> bool:
    """Whether ``cls`` is a named tuple whose construction nobody has changed."""
    if not (issubclass(cls, tuple) and hasattr(cls, "_fields") and m.class_lookup(cls, "__init__") is object.__init__):
        return False
    return (home_of(cls.__new__) or "").startswith("namedtuple_")  # where `collections.namedtuple` evaluates it


def _namedtuple(m: Machine, cls: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    made_by = cls.__new__
    defaults = [m.wrap_result(value) for value in made_by.__defaults__ or ()]
    called = [m.wrap(cls), *args]
    values = bind_arguments(m, made_by.__code__, made_by.__qualname__, called, kwargs, defaults, {})
    return TupleV([values[name] for name in cls._fields], cls)


# --- builtin classes --------------------------------------------------------------------------------------------------
@handles(object)
def make_object(m, args, kwargs):
    return InstanceV(object)


@handles(list)
def make_list(m, args, kwargs):
    return ListV(list(m.listed(args[0])) if args else [])


@handles(tuple)
def make_tuple(m, args, kwargs):
    if args and isinstance(args[0], TupleV) and args[0].cls is tuple:
        return args[0]
    return TupleV(list(m.listed(args[0])) if args else [])


@handles(torch.Size)
def make_size(m, args, kwargs):
    return TupleV(list(m.listed(args[0])) if args else [], torch.Size)


handles(set)(lambda m, args, kwargs: SetV(_members(m, args), set))


@handles(frozenset)
def make_frozenset(m, args, kwargs):
    return args[0] if args and args[0].python_type() is frozenset else SetV(_members(m, args), frozenset)


def _members(m: Machine, args: list[Value]) -> list[Value]:
    return [m.settled_key(v) for v in m.listed(args[0])] if args else []


def _make_dict(cls: type) -> Apply:
    def make(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        from .of_types.dicts import dict_update

        result = DictV(cls)
        if cls is defaultdict:
            result.default_factory, args = (args[0] if args else NONE), args[1:]
        dict_update(m, result, *args, **kwargs)
        return result

    return make


for _mapping in (dict, OrderedDict, defaultdict):
    handles(_mapping)(_make_dict(_mapping))


@handles(slice)
def make_slice(m, args, kwargs):
    parts = {1: [NONE, *args, NONE], 2: [*args, NONE], 3: args}[len(args)]
    return SliceV(parts)


@handles(bool)
def make_bool(m, args, kwargs):
    return ConstantV(m.truth(args[0]) if args else False)


@handles(str)
def make_str(m, args, kwargs):
    value = args[0] if args else kwargs.get("object", ConstantV(""))
    if isinstance(value, TensorV):
        raise Unsupported("str() of a tensor", "print tensors outside the compiled function")
    if isinstance(value, InstanceV):
        for name in ("__str__", "__repr__"):
            given = value.special(m, name)
            if given is not None:
                return given
        if value.real is None:
            raise Unsupported(f"str() of {value.a()}")
    changing = symbolic_strings.shown(m, value) if len(args) == 1 and not kwargs else None
    return m.fold(str, args, kwargs) if changing is None else changing


def _make_number(cls: type, name: str) -> Apply:
    def make(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if args and isinstance(args[0], TensorV):
            real = known_value(m, args[0])
            if real is not None:
                return m.wrap_result(m.real(cls, real))
            if numbers_read.may_read(m, args[0], name):
                return numbers_read.read(m, args[0], name)
            raise Unsupported(
                f"{cls.__name__}() of a tensor reads its data", "keep it a tensor, or break the graph here"
            )
        if args and isinstance(args[0], InstanceV):
            given = args[0].special(m, name)
            if given is not None:
                return given
        return m.fold(cls, args, kwargs)

    return make


for _number, _name in ((int, "__int__"), (float, "__float__"), (complex, "__complex__")):
    handles(_number)(_make_number(_number, _name))


@handles(enumerate)
def make_enumerate(m, args, kwargs):
    iterator = m.iterate(args[0])
    start = kwargs.get("start", args[1] if len(args) > 1 else ConstantV(0)).as_constant()
    return EnumerateV(iterator, ConstantV(start).as_index(m))


@handles(zip)
def make_zip(m, args, kwargs):
    strict = m.truth(kwargs["strict"]) if "strict" in kwargs else False
    return ZipV([m.iterate(a) for a in args], strict)


@handles(map)
def make_map(m, args, kwargs):
    return MapV(args[0], ZipV([m.iterate(a) for a in args[1:]]))


@handles(filter)
def make_filter(m, args, kwargs):
    return FilterV(args[0], m.iterate(args[1]))


@handles(reversed)
def make_reversed(m, args, kwargs):
    if isinstance(args[0], InstanceV):
        method = args[0].method(m, "__reversed__")
        if method is None and args[0].method(m, "__getitem__") is None:
            m.throw_as(reversed, namesake(args[0].cls))
        if m.class_lookup(args[0].cls, "__reversed__") is None:
            m.throw_as(reversed, namesake(args[0].cls, __reversed__=None))
        if method is not None:
            return m.call(method, [], {})
        length = args[0].length(m)
        return SequenceIterV([args[0].get_item(m, ConstantV(n)) for n in reversed(range(length))])
    if isinstance(args[0], SequenceV):
        return GOES_DOWN.get(type(args[0]), ReversedV)(args[0])
    if isinstance(args[0], TensorV):
        return m.call(m.get_attr(args[0], "__reversed__"), [], {})
    cls = args[0].python_type()
    if not any(hasattr(cls, name) for name in ("__reversed__", "__getitem__")):
        m.throw_as(reversed, namesake(cls))
    return SequenceIterV(list(reversed(m.listed(args[0]))))


@handles(super)
def make_super_(m, args, kwargs):
    return make_super(m, args, kwargs)


@handles(functools.partial)
def make_partial(m, args, kwargs):
    if isinstance(args[0], PartialV):
        inner = args[0]
        return PartialV(inner.function, [*inner.args, *args[1:]], _keywords({**inner.kwargs(m), **kwargs}))
    return PartialV(args[0], args[1:], _keywords(kwargs))


def _keywords(kwargs: dict[str, Value]) -> DictV:
    return DictV.of([(ConstantV(name), value) for name, value in kwargs.items()])


@handles(weakref.ref)
def make_reference(m, args, kwargs):
    if len(args) > 1 and not (isinstance(args[1], ConstantV) and args[1].value is None):
        raise Unsupported("a weak reference with a callback")
    target = args[0]
    real = getattr(target, "real", None)
    if real is None:
        if not target.python_type().__weakrefoffset__:
            m.throw_as(weakref.ref, namesake(target.python_type()))
        return WeakRefV(target)
    if target.source is not None:
        m.guard(target.source, "identity", real, "a weak reference to it was made")
    return KnownV(m.real(weakref.ref, real))


@handles(MethodType)
def make_method(m, args, kwargs):
    return MethodV(args[0], args[1])
