"""Instances of Python classes, nn.Modules among them: existing ones (writes go to an overlay) and new ones."""

from __future__ import annotations

import copy
import operator
from collections import OrderedDict
from collections.abc import Callable
from types import (
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    TracebackType,
    WrapperDescriptorType,
)
from typing import Any

import torch

from ... import torch_compat
from ...bytecode.objects import c_base, namesake
from ...records.size_environment import SizeEnvironment
from ...records.sources import Attr, InstanceDict, Source
from ..errors import Unsupported, UserError
from ..protocol import MISSING, Machine, NotConstant, Value, declared
from ..values.attributes import attribute_on_class, refuse_access
from ..values.binding import bind, class_lookup, is_data_descriptor, throw_missing
from ..values.overlays import Overlays
from .constant import ConstantV, is_none
from .containers import ListV, SetV, TupleV
from .dicts import DictV
from .number import NumberV

MODULE_TABLES = ("_parameters", "_buffers", "_modules")


# What calls a special method, and says so where an object has none.
CALLERS: dict[str, Callable[..., Any]] = {
    "__iter__": iter, "__next__": next, "__len__": len, "__getitem__": operator.getitem,
    "__setitem__": operator.setitem, "__delitem__": operator.delitem,
}  # fmt: skip
# What special methods must give, and what calls them, and says so where they give something else.
GIVEN: dict[str, tuple[type, Callable[..., Any]]] = {
    "__repr__": (str, repr), "__str__": (str, str), "__format__": (str, format), "__index__": (int, operator.index),
    "__int__": (int, int), "__float__": (float, float), "__complex__": (complex, complex), "__bool__": (bool, bool),
    "__hash__": (int, hash), "__init__": (type(None), lambda made: type(made)()),
}  # fmt: skip


# What an exception leads to, if not to None.
LINKS = {"__cause__": BaseException, "__context__": BaseException, "__traceback__": TracebackType}


def check_given(m: Machine, name: str, cls: type, value: Value) -> Value:
    """What the special method ``name`` of ``cls`` gave; a TypeError where Python would not take it."""
    kind, caller = GIVEN[name]
    given = value.python_type()
    if not issubclass(given, kind):
        m.throw_as(caller, namesake(cls, **{name: lambda *_: namesake(given)}))
    return value


def is_own_access(attribute: Any, name: str) -> bool:
    """Whether ``__setattr__`` or the like is C's own, as ``store_attr``, ``find_attr``, ``discard_attr`` know it."""
    return isinstance(attribute, WrapperDescriptorType) and attribute.__name__ == name


def payload_for(cls: type, real: Any, source: Source | None) -> Value | None:
    """The builtin container that instances of ``cls`` also are (class MyDict(dict)), None for plain objects."""
    if issubclass(cls, dict):
        return DictV(OrderedDict if issubclass(cls, OrderedDict) else dict, real, source)
    if issubclass(cls, list):
        return ListV.existing(real, source) if real is not None else ListV([])
    if issubclass(cls, tuple):
        return TupleV.existing(real, source) if real is not None else TupleV([])
    if issubclass(cls, (set, frozenset)):
        return SetV([]) if real is None else None
    if issubclass(cls, (int, float, str, bytes)):
        return ConstantV(real, source) if real is not None else ConstantV(cls.__base__())  # type: ignore[misc]
    return None


@declared
def call_module(m: Machine, module: InstanceV, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call an nn.Module."""
    raise NotImplementedError


LASTING = (torch.nn.Module, torch.optim.Optimizer)
"""What is the same in all calls, and so are the sizes of its tensors."""


class InstanceV(Value):
    """An object with a Python class. ``attrs`` mirrors its ``__dict__``, ``slots`` what was written to slots."""

    def __init__(self, cls: type, real: Any = None, source: Source | None = None) -> None:
        self.cls = cls
        self.real = real
        self.source = source
        self.slots: dict[str, Value] = {}
        self.payload = payload_for(cls, real, source)
        self.attrs: DictV | None = None
        if real is None:
            self.attrs = DictV() if cls.__dictoffset__ else None
        elif isinstance(self.payload, DictV) and real.__dict__ is real:  # `self.__dict__ = self`, as of dictionaries
            self.attrs = self.payload  # whose items are also attributes
        elif isinstance(getattr(real, "__dict__", None), dict):
            self.attrs = DictV(dict, real.__dict__, source_of_dict(real, source) if source else None)

    def __repr__(self) -> str:
        return f"InstanceV({self.cls.__name__})"

    def is_module(self) -> bool:
        return issubclass(self.cls, torch.nn.Module)

    # --- attributes ------------------------------------------------------------------------------------------------
    def get_attr(self, m: Machine, name: str) -> Value:
        if (sizes := m.state(SizeEnvironment)).all_arguments and self.source and issubclass(self.cls, LASTING):
            sizes.lasting.add(self.source)
        custom = m.class_lookup(self.cls, "__getattribute__")
        if not is_own_access(custom, "__getattribute__"):
            read = bind(m, custom, self, self.cls, "__getattribute__")
            return self._with_getattr_fallback(m, name, lambda: m.call(read, [ConstantV(name)], {}))
        value = self.find_attr(m, name)
        if value is not None:
            return value
        return self.missing_attr(m, name)

    def find_attr(self, m: Machine, name: str) -> Value | None:
        """``object.__getattribute__``; None when it would raise AttributeError."""
        attribute = m.class_lookup(self.cls, name)
        if attribute is not MISSING and is_data_descriptor(m, attribute) and hasattr(type(attribute), "__get__"):
            return self._with_getattr_fallback(m, name, lambda: bind(m, attribute, self, self.cls, name))
        if self.attrs is not None:
            if name == "__dict__":
                return self if self.attrs is self.payload else self.attrs
            found = self.attrs.lookup(m, name)
            if found is not None:
                return found
        overlay = m.state(Overlays).of_class(self.cls, name)
        if overlay is not None:
            return overlay
        if attribute is not MISSING:
            return bind(m, attribute, self, self.cls, name)
        if name == "__class__":
            return m.wrap(self.cls)
        return None

    def _with_getattr_fallback(self, m: Machine, name: str, read: Callable[[], Value]) -> Value:
        """A property that raises AttributeError falls back to ``__getattr__``, as in Python."""
        fallback = m.class_lookup(self.cls, "__getattr__")
        try:
            return read()
        except UserError as error:
            if fallback is MISSING or not issubclass(error.value.python_type(), AttributeError):
                raise
            return self.missing_attr(m, name)

    def missing_attr(self, m: Machine, name: str) -> Value:
        fallback = m.class_lookup(self.cls, "__getattr__")
        if torch_compat.is_of_module(fallback):
            found = self.module_attr(m, name)
            if found is not None:
                return found
        elif fallback is not MISSING:
            return m.call(bind(m, fallback, self, self.cls, "__getattr__"), [ConstantV(name)], {})
        throw_missing(m, self, name)

    def module_attr(self, m: Machine, name: str) -> Value | None:
        """What ``nn.Module.__getattr__`` finds: a parameter, a buffer or a submodule."""
        assert self.attrs is not None
        for table in MODULE_TABLES:
            entries = self.attrs.lookup(m, table)
            if isinstance(entries, DictV):
                found = entries.lookup(m, name)
                if found is not None:
                    return found
        return None

    def set_attr(self, m: Machine, name: str, value: Value) -> None:
        custom = m.class_lookup(self.cls, "__setattr__")
        if not is_own_access(custom, "__setattr__"):
            m.call(bind(m, custom, self, self.cls, "__setattr__"), [ConstantV(name), value], {})
            return
        self.store_attr(m, name, value)

    def store_attr(self, m: Machine, name: str, value: Value) -> None:
        """``object.__setattr__``."""
        attribute = m.class_lookup(self.cls, name)
        if isinstance(attribute, property):
            if attribute.fset is None:
                refuse_access(m, property.__set__, attribute, self, None)
            m.call(m.wrap(attribute.fset), [self, value], {})
        elif name == "__class__" or name == "__dict__":
            raise Unsupported(f"writing `{name}` of {self.a()}")
        elif attribute is not MISSING and is_data_descriptor(m, attribute):
            if isinstance(attribute, (MemberDescriptorType, GetSetDescriptorType)):
                m.mutate(self)
                self.slots[name] = value
            else:
                self._ask_descriptor(m, attribute, name, "__set__", value)
        elif self.attrs is not None:
            self.attrs.set_item(m, ConstantV(name), value)
        else:
            own = {} if attribute is MISSING else {name: None}
            m.throw_as(setattr, namesake(self.cls, **own), name, None, of=self)

    def del_attr(self, m: Machine, name: str) -> None:
        custom = m.class_lookup(self.cls, "__delattr__")
        if not is_own_access(custom, "__delattr__"):
            m.call(bind(m, custom, self, self.cls, "__delattr__"), [ConstantV(name)], {})
            return
        self.discard_attr(m, name)

    def discard_attr(self, m: Machine, name: str) -> None:
        """``object.__delattr__``."""
        attribute = m.class_lookup(self.cls, name)
        if attribute is not MISSING and is_data_descriptor(m, attribute):
            self._delete_through(m, attribute, name)
            return
        if self.attrs is None and attribute is not MISSING:
            m.throw_as(delattr, namesake(self.cls, **{name: None}), name, of=self)
        if self.attrs is None or self.attrs.lookup(m, name) is None:
            slots = () if self.attrs is None else ("__dict__",)
            m.throw_as(delattr, namesake(self.cls, __slots__=slots), name, of=self)
        self.attrs.remove(m, name)

    def _delete_through(self, m: Machine, attribute: Any, name: str) -> None:
        """Delete what a data descriptor of the class stands for: a property, a slot, a descriptor of the user's."""
        if isinstance(attribute, property):
            if attribute.fdel is None:
                refuse_access(m, property.__delete__, attribute, self)
            m.call(m.wrap(attribute.fdel), [self], {})
        elif isinstance(attribute, MemberDescriptorType) and self.real is None:
            if name not in self.slots:
                m.throw_as(delattr, namesake(self.cls, __slots__=(name,)), name, of=self)
            del self.slots[name]
        elif isinstance(attribute, (MemberDescriptorType, GetSetDescriptorType)):
            raise Unsupported(f"deleting attribute `{name}` of {self.a()}")
        else:
            self._ask_descriptor(m, attribute, name, "__delete__")

    def _ask_descriptor(self, m: Machine, attribute: Any, name: str, method: str, *args: Value) -> None:
        """``__set__`` or ``__delete__`` of a descriptor that stands on the class."""
        found, cls = attribute_on_class(m, attribute, self, self.cls, name), type(attribute)
        function = m.class_lookup(cls, method)
        if function is MISSING:
            m.throw(AttributeError, method)
        if isinstance(function, (WrapperDescriptorType, MethodDescriptorType)):
            raise Unsupported(f"`{method}` of {found.a()}")
        m.call(bind(m, function, found, cls, method), [self, *args], {})

    # --- protocols -------------------------------------------------------------------------------------------------
    def method(self, m: Machine, name: str) -> Value | None:
        """The special method ``name``, bound, looked up on the class; None when missing or inherited from object."""
        attribute = m.class_lookup(self.cls, name)
        if attribute is MISSING or attribute is None or attribute is getattr(object, name, MISSING):
            return None
        return bind(m, attribute, self, self.cls, name)

    def special(self, m: Machine, name: str, *args: Value) -> Value | None:
        """What the special method ``name`` gives, which is of the kind that Python asks for; None if there is none."""
        method = self.method(m, name)
        return None if method is None else check_given(m, name, self.cls, m.call(method, list(args), {}))

    def _protocol(self, m: Machine, name: str, *args: Value) -> Value:
        method = self.method(m, name)
        if method is None:
            # C words it by whether the first is an index
            standing = (0 if hasattr(arg.python_type(), "__index__") else None for arg in args)
            denied = {name: None} if m.class_lookup(self.cls, name) is None else {}
            m.throw_as(CALLERS[name], namesake(self.cls, **denied), *standing)
        return m.call(method, list(args), {})

    def call(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if self.is_module():
            return call_module(m, self, args, kwargs)
        method = self.method(m, "__call__")
        if method is None:
            m.throw_as(operator.call, namesake(self.cls))
        return m.call(method, args, kwargs)

    def truth(self, m: Machine) -> bool:
        answer = self.special(m, "__bool__")
        if answer is not None:
            return m.truth(answer)
        return self.method(m, "__len__") is None or m.truth(self.changing_length(m))

    def iterate(self, m: Machine) -> Value:
        if m.class_lookup(self.cls, "__iter__") is MISSING and self.method(m, "__getitem__") is not None:
            return m.call(m.polyfill("iterate_by_index"), [self], {})
        iterator = self._protocol(m, "__iter__")
        if isinstance(iterator, (ConstantV, InstanceV)) and not hasattr(iterator.python_type(), "__next__"):
            m.throw_as(iter, namesake(self.cls, __iter__=lambda _: namesake(iterator.python_type())))
        return iterator

    def next(self, m: Machine) -> Value | None:
        try:
            return self._protocol(m, "__next__")
        except UserError as error:
            if issubclass(error.value.python_type(), StopIteration):
                return None
            raise

    def length(self, m: Machine) -> int:
        return int(self.changing_length(m).as_constant())

    def changing_length(self, m: Machine) -> Value:
        found = self._protocol(m, "__len__")
        if (
            isinstance(found, NumberV)
            and type(found.known) is int
            and m.truth(m.binary(operator.ge, found, ConstantV(0)))
        ):
            return found
        length = int(found.as_index(m))
        if length < 0:
            m.throw_as(len, namesake(self.cls, __len__=lambda _: -1))
        return ConstantV(length)

    def as_index(self, m: Machine, user: Callable[[Any], Any] = operator.index) -> Any:
        given = self.special(m, "__index__")
        return Value.as_index(self if given is None else given, m, user)

    def mapping_pairs(self, m: Machine) -> list[tuple[Value, Value]]:
        """Those that it holds as a dictionary, unless its class has ``keys`` of its own."""
        held = self.payload if isinstance(self.payload, DictV) and self.method(m, "keys") is not None else None
        if held is not None and type(m.class_lookup(self.cls, "keys")) is not FunctionType:
            return held.pairs(m)
        return super().mapping_pairs(m)

    def get_item(self, m: Machine, key: Value) -> Value:
        return self._protocol(m, "__getitem__", key)

    def set_item(self, m: Machine, key: Value, value: Value) -> None:
        self._protocol(m, "__setitem__", key, value)

    def del_item(self, m: Machine, key: Value) -> None:
        self._protocol(m, "__delitem__", key)

    def contains(self, m: Machine, item: Value) -> bool:
        method = self.method(m, "__contains__")
        if m.class_lookup(self.cls, "__contains__") is None:
            m.throw_as(operator.contains, namesake(self.cls, __contains__=None), None)
        if method is not None:
            return m.truth(m.call(method, [item], {}))
        if self.method(m, "__iter__") is None and self.method(m, "__getitem__") is None:
            m.throw_as(operator.contains, namesake(self.cls), None)
        return any(m.equal(other, item) for other in m.listed(self))


def source_of_dict(real: Any, source: Source) -> Source:
    """How to reach ``__dict__``: one that a class makes up, as ``threading.local`` for each thread, is asked for."""
    try:
        own = object.__getattribute__(real, "__dict__") is real.__dict__
    except AttributeError:
        own = False
    return InstanceDict(source) if own else Attr(source, "__dict__")


class TracebackV(Value):
    """The traceback of an exception: nothing is known of it while capturing but that it is there."""

    cls = TracebackType

    def __init__(self, error: ExceptionV) -> None:
        self.error = error

    def truth(self, m: Machine) -> bool:
        return True


class ExceptionV(InstanceV):
    """An exception object: made inside, with ``args`` as given to the class, or an existing one."""

    def __init__(self, cls: type[BaseException], args: list[Value], raised: BaseException | None = None) -> None:
        super().__init__(cls)
        self.args = args
        self.attrs = DictV()
        self.raised = raised
        self.group: tuple[Value, TupleV] | None = None  # text and members of an exception group
        self.trace: object = None  # another one whenever the traceback grows
        self.tracebacks: tuple[object, TracebackV] | None = None
        self.initialized: tuple[list[Value], dict[str, Value]] | None = None  # what its builtin class was given

    @classmethod
    def existing(cls, real: BaseException, source: Source | None) -> ExceptionV:
        made = cls.__new__(cls)
        InstanceV.__init__(made, type(real), real, source)
        made.args, made.raised, made.group, made.trace, made.tracebacks = [], None, None, None, None
        made.initialized = None
        return made

    def builtin_class(self) -> Any:
        return c_base(self.cls)

    def twin(self, m: Machine) -> BaseException:
        """A real exception of the builtin class, which knows what that makes of its arguments: ``errno``, its text."""
        args, kwargs = self.initialized if self.initialized is not None else (self.args, {})
        try:
            values = [m.settle(a).as_constant() for a in args]
            named = {k: m.settle(v).as_constant() for k, v in kwargs.items()}
            slots = {k: m.settle(v).as_constant() for k, v in self.slots.items() if not k.startswith("__")}
        except NotConstant:
            raise Unsupported(f"what {self.a()} makes of its arguments") from None
        cls = self.builtin_class()
        if self.raised is not None and not slots:
            return self.raised
        made: BaseException = m.real(cls.__new__, cls, *values)
        if self.raised is not None:
            made = copy.copy(self.raised)
        elif self.initialized is not None:
            m.real(cls.__init__, made, *values, **named)
        for name, value in slots.items():
            m.real(setattr, made, name, value)
        return made

    def store_attr(self, m: Machine, name: str, value: Value) -> None:
        plain = is_none(value)
        if self.group is not None and name in ("message", "exceptions"):
            m.throw_as(setattr, ExceptionGroup("", [Exception()]), name, None)
        if name == "args":
            value = TupleV(m.listed(value))
        elif name in LINKS and not plain and not issubclass(value.python_type(), LINKS[name]):
            m.throw_as(setattr, Exception(), name, 0)
        super().store_attr(m, name, value)
        if name == "__cause__":
            self.slots["__suppress_context__"] = ConstantV(True)

    def traceback(self) -> Value:
        """What stands in ``__traceback__``: None before it was raised."""
        if self.real is None and self.trace is None:
            return ConstantV(None)
        if self.tracebacks is None or self.tracebacks[0] is not self.trace:
            self.tracebacks = self.trace, TracebackV(self)
        return self.tracebacks[1]

    def arguments(self, m: Machine) -> list[Value]:
        """What stands in ``args``."""
        if "args" in self.slots:
            return m.listed(self.slots["args"])
        if self.real is None:
            return self.args
        source = Attr(self.source, "args") if self.source is not None else None
        return m.listed(m.wrap(self.real.args, source))

    def find_attr(self, m: Machine, name: str) -> Value | None:
        if name == "args":
            return TupleV(self.arguments(m))
        if self.group is not None and name in ("message", "exceptions"):
            return self.group[name == "exceptions"]
        if name in ("__cause__", "__context__", "__traceback__", "__suppress_context__"):
            return self._link(m, name)
        if self.real is None and name not in self.slots and self._is_of_builtin_class(name):
            return self._builtin_field(m, name)
        return super().find_attr(m, name)

    def _is_of_builtin_class(self, name: str) -> bool:
        attribute = class_lookup(self.cls, name)
        kinds = (MemberDescriptorType, GetSetDescriptorType)
        return isinstance(attribute, kinds) and attribute.__objclass__ not in (BaseException, object)

    def _builtin_field(self, m: Machine, name: str) -> Value:
        args, kwargs = self.initialized if self.initialized is not None else (self.args, {})
        if name in kwargs:
            return kwargs[name]
        if name in ("value", "code") and len(args) == 1:  # of StopIteration and SystemExit
            return args[0]
        return m.wrap_result(m.real(getattr, self.twin(m), name))

    def _link(self, m: Machine, name: str) -> Value:
        if name == "__traceback__" and name not in self.slots:
            return self.traceback()
        if name in self.slots or self.real is None:
            return self.slots.get(name, ConstantV(False if name == "__suppress_context__" else None))
        source = Attr(self.source, name) if self.source is not None else None
        return m.wrap(getattr(self.real, name), source)
