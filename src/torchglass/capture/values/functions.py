"""Callables: functions made inside, bound methods, methods of builtin types, partials, super()."""

from __future__ import annotations

import functools
import weakref
from types import CodeType, FunctionType
from typing import Any

from ...records.sources import Attr, InstanceDict, Source
from ..errors import Unsupported
from ..protocol import Machine, Value
from ..values.binding import RUN_BY_CALLS, bind, class_attr, look_up_behind, throw_missing
from .constant import NONE, ConstantV, is_none
from .containers import CellV, TupleV
from .dicts import DictV
from .known import KnownV
from .methods import BuiltinMethodV, CallableV


class FunctionV(CallableV):
    """A function made inside (MAKE_FUNCTION): code, globals and symbolic closure."""

    cls = FunctionType

    def __init__(
        self,
        code: CodeType,
        namespace: dict[str, Any],
        module_source: str,
        closure: list[CellV],
        defaults: list[Value] | None = None,
        kwdefaults: dict[str, Value] | None = None,
        annotations: DictV | None = None,
    ) -> None:
        self.code = code
        self.namespace = namespace
        self.module_source = module_source
        self.closure = closure
        self.defaults = defaults or []
        self.kwdefaults = kwdefaults or {}
        self.annotations = annotations
        self.attrs = DictV()
        self.named = DictV()  # other attributes that were set, ``__name__`` and the like

    def __repr__(self) -> str:
        return f"FunctionV({self.code.co_qualname})"

    @property
    def kwdefaults(self) -> dict[str, Any]:
        return self._kwdefaults.items

    @kwdefaults.setter
    def kwdefaults(self, values: dict[str, Value]) -> None:
        self._kwdefaults = DictV.of([(ConstantV(name), value) for name, value in values.items()])

    def call(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return m.inline(self, args, kwargs)

    def get_attr(self, m: Machine, name: str) -> Value:
        found = self.attrs.lookup(m, name) or self.named.lookup(m, name)
        if found is not None:
            return found
        table = {
            "__name__": lambda: ConstantV(self.code.co_name),
            "__qualname__": lambda: ConstantV(self.code.co_qualname),
            "__module__": lambda: ConstantV(self.namespace.get("__name__")),
            "__code__": lambda: ConstantV(self.code),
            "__doc__": lambda: ConstantV(
                self.code.co_consts[0] if self.code.co_consts and isinstance(self.code.co_consts[0], str) else None
            ),
            "__defaults__": lambda: TupleV(list(self.defaults)) if self.defaults else NONE,
            "__kwdefaults__": lambda: self._kwdefaults if self.kwdefaults else NONE,
            "__dict__": lambda: self.attrs,
            "__class__": lambda: KnownV(FunctionType),
            "__closure__": lambda: TupleV(list(self.closure)) if self.closure else NONE,
            "__annotations__": self._own_annotations,
            "__type_params__": lambda: TupleV([]),
        }
        if name in table:
            return table[name]()
        if name == "__get__":
            return BuiltinMethodV(FunctionType.__get__, self)
        throw_missing(m, self, name)

    def called(self, m: Machine, name: str = "__qualname__") -> str:
        """Its ``__qualname__`` or ``__name__``."""
        written = self.named.lookup(m, name) if self.named.items else None
        if written is not None:
            return str(written.as_constant())
        return self.code.co_qualname if name == "__qualname__" else self.code.co_name

    def _own_annotations(self) -> DictV:
        if self.annotations is None:
            self.annotations = DictV()
        return self.annotations

    def set_attr(self, m: Machine, name: str, value: Value) -> None:
        if name in RUN_BY_CALLS:
            none = is_none(value)
            if name == "__defaults__" and (none or isinstance(value, TupleV)):
                self.defaults = [] if none else m.listed(value)
            elif name == "__kwdefaults__" and (none or isinstance(value, DictV)):
                self._kwdefaults = value if isinstance(value, DictV) else DictV()
            else:
                raise Unsupported(f"writing `{name}` of a function")
        else:
            (self.named if name in vars(FunctionType) else self.attrs).set_item(m, ConstantV(name), value)


class PartialV(CallableV):
    """``functools.partial``. Programs write to its ``keywords``, too."""

    cls = functools.partial

    def __init__(self, function: Value, args: list[Value], keywords: DictV, source: Source | None = None) -> None:
        self.function = function
        self.args = args
        self.keywords = keywords
        self.source = source
        self.attrs = DictV()

    def set_attr(self, m: Machine, name: str, value: Value) -> None:
        if self.source is not None:
            raise Unsupported(f"writing attribute `{name}` of {self.a()}")
        self.attrs.set_item(m, ConstantV(name), value)

    def call(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return m.call(self.function, [*self.args, *args], {**self.kwargs(m), **kwargs})

    def kwargs(self, m: Machine) -> dict[str, Value]:
        return {key.as_constant(): value for key, value in self.keywords.pairs(m)}

    def get_attr(self, m: Machine, name: str) -> Value:
        if name == "func":
            return self.function
        if name == "args":
            return TupleV(list(self.args))
        if name == "keywords":
            return self.keywords
        if name == "__dict__":
            return self.attrs
        found = self.attrs.lookup(m, name)
        return found if found is not None else class_attr(m, self, name)

    def all_attributes(self, m: Machine) -> dict[str, Value]:
        return {name.as_constant(): value for name, value in self.attrs.pairs(m)}

    @classmethod
    def existing(cls, m: Machine, real: functools.partial[Any], source: Source | None) -> PartialV:
        def at(name: str) -> Source | None:
            return Attr(source, name) if source else None

        args = m.listed(m.wrap(real.args, at("args")))
        keywords = m.wrap(real.keywords, at("keywords"))
        assert isinstance(keywords, DictV)
        partial = cls(m.wrap(real.func, at("func")), args, keywords, source)
        partial.attrs = DictV(dict, real.__dict__, InstanceDict(source) if source else None)
        return partial


class WeakRefV(CallableV):
    """A weak reference made inside, to an object made inside: that is alive as long as this capture is."""

    cls = weakref.ref

    def __init__(self, target: Value) -> None:
        self.target = target

    def call(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.target


class SuperV(Value):
    """``super(cls, obj)``: attribute look-up that starts behind ``cls`` in the MRO of ``obj``."""

    cls = super

    def __init__(self, behind: type, owner: Value, of_class: type) -> None:
        self.behind = behind
        self.owner = owner
        self.of_class = of_class

    def get_attr(self, m: Machine, name: str) -> Value:
        if name == "__class__":
            return m.wrap(super)
        attribute = look_up_behind(m, self.of_class, self.behind, name)
        is_class = getattr(self.owner, "real", None) is self.of_class
        return bind(m, attribute, self.owner, self.of_class, name, is_class, by_super=True)
