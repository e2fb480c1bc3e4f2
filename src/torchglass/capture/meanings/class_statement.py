"""Classes made inside the compiled function: the body is interpreted, the class made of stand-ins by real code.

    class Scaled(Base):               # LOAD_BUILD_CLASS ... CALL
        def forward(self, x): ...     # interpreted when it is called

What the user's program does on the way (``__init_subclass__``, ``__set_name__``, a metaclass's methods) is interpreted
like any other code; metaclasses and decorators of the standard library and of PyTorch run as they are, on stand-ins at
capture and on the real thing in entry code. ``values/made.py`` says what stands for what.
"""

from __future__ import annotations

import _abc
import collections
import dataclasses
import enum
import functools
import operator
import typing
from types import CellType, FunctionType
from typing import Any

from ...bytecode import objects
from ..errors import Unsupported
from ..protocol import Lazy, Machine, Value
from ..values.arrays import TracedArrayV
from ..values.binding import home_of
from ..values.constant import NONE, ConstantV
from ..values.containers import CellV, ListV, SetV, TupleV
from ..values.dicts import DictV
from ..values.functions import FunctionV
from ..values.instance import InstanceV
from ..values.known import KnownV, made_item
from ..values.made import ClassRecipe, MadeV, Mark, Recipe, StandIns, Step, stand_in
from .registry import handles, method

# Made by real code of stand-ins: descriptors and the like, whose insides PyTorch and Python know.
FACTORIES: tuple[Any, ...] = (
    property, staticmethod, classmethod, functools.cached_property, functools.partialmethod, enum.property, enum.auto,
    enum.member, enum.nonmember, dataclasses.field, typing.TypeVar,
)  # fmt: skip


def make(m: Machine, factory: Any, args: list[Value], kwargs: dict[str, Value]) -> MadeV:
    """The object that ``factory`` makes."""
    real = m.real(factory, *[stand_in(m, a) for a in args], **{k: stand_in(m, v) for k, v in kwargs.items()})
    return _enter(m, MadeV(real, Recipe(factory, args, kwargs)))


@made_item.defined
def _made_item(m: Machine, owner: Value, key: Value) -> Value:
    return make(m, operator.getitem, [owner, key], {})


def make_enum(m: Machine, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``Enum("Name", "members")``, which belongs to the module that the call stands in."""
    return make(m, cls, args, {"module": ConstantV(m.frames[-1].namespace.get("__name__")), **kwargs})


def _enter(m: Machine, made: MadeV) -> MadeV:
    m.wrapped[id(made.real)] = (made.real, made)
    return made


def _maker(factory: Any) -> Any:
    return lambda m, args, kwargs: make(m, factory, args, kwargs)


for _factory in FACTORIES:
    handles(_factory)(_maker(_factory))


# --- stand-ins --------------------------------------------------------------------------------------------------------
@stand_in.defined
def _stand_in(m: Machine, value: Value | Lazy) -> Any:
    value = m.forced(value)
    known = m.state(StandIns).made.get(id(value))
    if known is not None:
        return known[1]
    if isinstance(value, (ConstantV, KnownV)):
        return value.as_constant()
    real = _new_stand_in(m, value)
    m.state(StandIns).made[id(value)] = (value, real)
    m.wrapped.setdefault(id(real), (real, value))
    _fill(m, value, real)
    return real


def _new_stand_in(m: Machine, value: Value) -> Any:
    if isinstance(value, FunctionV):
        closure = tuple(stand_in(m, cell) for cell in value.closure)
        return FunctionType(value.code, value.namespace, None, None, closure or None)
    if isinstance(value, CellV):
        return CellType()
    if isinstance(value, DictV) and value.complete and value.cls is dict:
        return {}
    if isinstance(value, (ListV, SetV)) and value.cls in (list, set) and getattr(value, "real", None) is None:
        return value.cls()
    if isinstance(value, TupleV):
        items = tuple(stand_in(m, item) for item in value.all(m))
        return value.cls._make(items) if hasattr(value.cls, "_make") else value.cls(items)
    if isinstance(value, InstanceV) and value.real is not None:
        return value.real
    if isinstance(value, InstanceV) and value.payload is None:
        return objects.instance(value.cls)
    return Mark(value)


def _fill(m: Machine, value: Value, real: Any) -> None:
    """Give a stand-in its content, which may lead back to it."""
    if isinstance(value, FunctionV):
        real.__defaults__ = tuple(stand_in(m, d) for d in value.defaults) or None
        real.__kwdefaults__ = {k: stand_in(m, d) for k, d in value.kwdefaults.items()} or None
        if value.annotations is not None:
            real.__annotations__ = stand_in(m, value.annotations)
        for attributes in (value.named, value.attrs):
            for name in attributes.items:
                found = attributes.lookup(m, name)
                if found is not None:
                    setattr(real, name, stand_in(m, found))
    elif isinstance(value, CellV):
        content = value.get(m)
        if content is not None:
            real.cell_contents = stand_in(m, content)
    elif type(real) is dict:
        real.update({k: stand_in(m, v) for k, v in value.items.items()})  # type: ignore[attr-defined]
    elif type(real) is list:
        real.extend(stand_in(m, v) for v in value.all(m))  # type: ignore[attr-defined]
    elif type(real) is set:
        real.update(stand_in(m, v) for v in value.items.values())  # type: ignore[attr-defined]


def current_cells(m: Machine, cls: type) -> None:
    """Make the closures of a class's stand-ins hold what they hold now: PyTorch is about to run them.

    Raises Unsupported where that is a tensor, or was another object when it was asked before.
    """
    for attribute in list(cls.__dict__.values()):
        function = getattr(attribute, "__func__", attribute)
        known = m.wrapped.get(id(function))
        if known is None or not isinstance(known[1], FunctionV):
            continue
        for cell in known[1].closure:
            content = cell.get(m)
            if content is None or not _is_fixed(content):
                raise Unsupported(f"`{cls.__name__}`, whose methods read variables around it that are no constants")
            real = stand_in(m, cell)
            now = stand_in(m, content)
            fixed = m.state(StandIns).cells
            if cell.written and id(cell) in fixed and fixed[id(cell)] is not now:
                raise Unsupported(f"`{cls.__name__}`, whose methods read variables around it that change")
            fixed[id(cell)] = real.cell_contents = now


def _is_fixed(value: Value) -> bool:
    if isinstance(value, FunctionV):
        return all(isinstance(c.content, Value) and _is_fixed(c.content) for c in value.closure)
    return isinstance(value, (ConstantV, KnownV))


def metaclass_of(m: Machine, given: Value | None, bases: list[Value]) -> type:
    """The most derived metaclass among the one given and those of the bases."""
    winner: Any = given.as_constant() if given is not None else type(bases[0].as_constant()) if bases else type
    if not isinstance(winner, type):
        raise Unsupported("a metaclass that is no class")
    for base in bases:
        cls = type(base.as_constant())
        if issubclass(cls, winner):
            winner = cls
        elif not issubclass(winner, cls):
            m.throw_as(type.__new__, winner, "", tuple(base.as_constant() for base in bases), {})
    return winner


# --- type.__new__ -----------------------------------------------------------------------------------------------------
def new_class(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``type.__new__(metaclass, name, bases, namespace, **keywords)``, or all of a metaclass that is no user's."""
    if len(args) != 4:
        m.throw_as(type.__new__, type, *args[1:])
    metaclass, name = args[0].as_constant(), args[1].as_constant()
    bases = m.listed(args[2])
    reals = tuple(b.as_constant() for b in bases)
    namespace: dict[str, Value] = {k.as_constant(): v for k, v in args[3].mapping_pairs(m)}
    namespace.setdefault("__module__", ConstantV(m.frames[-1].namespace.get("__name__")))
    cell = namespace.pop("__classcell__", None)
    if cell is not None and not isinstance(cell, CellV):
        m.throw(TypeError, f"__classcell__ must be a nonlocal cell, not {cell.python_type()!r}")
    namespace.pop("__classdictcell__", None)  # of 3.12 and later: what annotation scopes read, which are not followed
    stable = m.is_stable(metaclass.__module__)
    hook = _user_hook(m, reals)
    quiet = hook is not None or not stable
    named = [k for k, v in namespace.items() if _names_itself(m, v)]
    inside = {k: v for k, v in namespace.items() if k not in named}
    recipe = ClassRecipe(metaclass, name, bases, inside, kwargs, quiet, cell)
    texts = {k: stand_in(m, v) for k, v in inside.items()}
    if not all(isinstance(k, str) for k in texts):
        raise Unsupported("a class with names that are no strings")
    if stable and isinstance(metaclass, type) and issubclass(metaclass, enum.EnumMeta):
        _require_constants(inside)
    keywords = {} if hook is not None else {k: stand_in(m, v) for k, v in kwargs.items()}
    try:
        real = objects.new_class(metaclass, name, reals, texts, keywords, quiet)
    except TypeError as error:
        if "layout differs" in str(error):
            raise Unsupported(f"the class `{name}`, which cannot be made without running its hooks") from None
        m.raise_real(error)
    except Exception as error:
        m.raise_real(error)
    made = _enter(m, MadeV(real, recipe))
    if cell is not None:
        cell.content = made
        stand_in(m, cell).cell_contents = real
    for key in named:
        made.store(m, key, namespace[key])
    for key in named:
        m.call(m.get_attr(namespace[key], "__set_name__"), [made, ConstantV(key)], {})
    if hook is not None:
        recipe.keywords = {}
        m.call(m.get_attr(m.call(m.wrap(super), [made, made], {}), "__init_subclass__"), [], kwargs)
    return made


def is_followed(m: Machine, metaclass: type, args: list[Value]) -> bool:
    """Whether a library's metaclass in Python is interpreted: it makes the class around a hook of the user's."""
    return (
        type(metaclass.__new__) is FunctionType
        and len(args) == 3
        and _user_hook(m, tuple(b.as_constant() for b in m.listed(args[1]))) is not None
    )


def _user_hook(m: Machine, bases: tuple[Any, ...]) -> Any:
    """The ``__init_subclass__`` that a new class with these bases would run, if that is code of the user's."""
    for base in bases:
        found = m.class_lookup(base, "__init_subclass__")
        found = getattr(found, "__func__", found)
        if type(found) is FunctionType:
            return None if m.is_stable(home_of(found)) else found
    return None


def _names_itself(m: Machine, value: Value) -> bool:
    """Whether ``value`` has a ``__set_name__`` of the user's."""
    if not isinstance(value, InstanceV):
        return False
    found = m.class_lookup(value.cls, "__set_name__")
    return type(found) is FunctionType and not m.is_stable(home_of(found))


def _require_constants(namespace: dict[str, Value]) -> None:
    """Members of an enumeration are constants: what they stand for must be."""
    for name, value in namespace.items():
        plain = isinstance(value, (ConstantV, KnownV, FunctionV, TupleV)) or name == "__annotations__"
        if not plain or (isinstance(value, TupleV) and not value.is_constant()):
            raise Unsupported(f"an enumeration whose `{name}` is {value.a()}")


@method(type, name="__setattr__")
def type_setattr(m, self, name, value):
    self.store(m, name.as_constant(), value)
    return NONE


@method(type, name="__delattr__")
def type_delattr(m, self, name):
    if not isinstance(self, MadeV):
        raise Unsupported(f"deleting attribute `{name.as_constant()}` of {self.a()}")
    self.discard_attr(m, name.as_constant())
    return NONE


@method(type, name="__init__")
def type_init(m, self, /, *args, **kwargs):
    return NONE


method(type, name="__prepare__")(lambda m, self, *args, **kwargs: DictV())


# --- what is done to classes ------------------------------------------------------------------------------------------
def apply(m: Machine, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call a function of the library that changes the class ``args[0]``, or makes another one of it."""
    target = args[0]
    if not isinstance(target, MadeV):
        raise Unsupported(f"`{function.__qualname__}` of a class that was there before the call")
    if function is dataclasses._process_class and isinstance(target.recipe, ClassRecipe):  # type: ignore[attr-defined]
        changing = [name for name, value in target.recipe.namespace.items() if value.python_type().__hash__ is None]
        if any(name in getattr(target.real, "__annotations__", {}) for name in changing):
            raise Unsupported("a dataclass with a default that is mutable")
    reals = [stand_in(m, a) for a in args]
    result = m.real(function, *reals, **{k: stand_in(m, v) for k, v in kwargs.items()})
    if result is not None and result is not target.real:
        return _enter(m, MadeV(result, Recipe(function, args, kwargs)))
    target.steps.append(Step(call=Recipe(function, args, kwargs)))
    return target if result is not None else NONE


def _applier(function: Any) -> Any:
    return lambda m, args, kwargs: apply(m, function, args, kwargs)


# dataclasses._process_class: what `@dataclass` does to a class; interpreting it would need exec().
# total_ordering writes to functions of its own.
for _function in (dataclasses._process_class, _abc._abc_init, functools.total_ordering):  # type: ignore[attr-defined]
    handles(_function)(_applier(_function))


@handles(collections.namedtuple)
def namedtuple_(m, args, kwargs):
    """The class belongs to the module that the call stands in."""
    module = ConstantV(m.frames[-1].namespace.get("__name__"))
    return make(m, collections.namedtuple, args, {"module": module, **kwargs})


def _property_part(name: str) -> Any:
    return lambda m, self, function: make(m, getattr(property, name), [self, function], {})


for _name in ("getter", "setter", "deleter"):
    method(property, name=_name)(_property_part(_name))


# --- type() -----------------------------------------------------------------------------------------------------------
@handles(type)
def type_(m, args, kwargs):
    """The class of an object, or a new class."""
    if len(args) == 1:
        if isinstance(args[0], TracedArrayV):
            raise Unsupported("the class of a tensor's NumPy array")
        return m.wrap(args[0].python_type())
    if len(args) != 3:
        m.throw_as(type, *args)
    winner = metaclass_of(m, None, m.listed(args[1]))
    if winner is not type:
        return m.call(m.wrap(winner), args, kwargs)
    return new_class(m, [m.wrap(type), *args], kwargs)
