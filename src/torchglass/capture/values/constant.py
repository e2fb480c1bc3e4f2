"""Constants: immutable Python objects whose value the graph may rely on."""

from __future__ import annotations

import enum
import operator
from types import CodeType, EllipsisType, FunctionType, NoneType, NotImplementedType
from typing import Any

import torch

from ...records.sources import Attr, Fixed, Source
from ..errors import Unsupported
from ..protocol import Machine, Value
from ..values.binding import guard_lacks_attr, may_change

ENUM_NAMES = frozenset({"_value_", "_name_", "_sort_order_", "__objclass__"})  # what a member of an enum is made of

CONSTANT_TYPES: tuple[type, ...] = (
    int, float, complex, bool, str, bytes, NoneType, EllipsisType, NotImplementedType, CodeType, range,
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo, torch.iinfo,
)  # fmt: skip


try:
    import numpy

    NUMPY_SCALARS: tuple[type, ...] = (numpy.number, numpy.bool_)
    NUMPY_CONSTANTS: tuple[type, ...] = (*NUMPY_SCALARS, numpy.dtype)
    NUMPY_FLOATS: tuple[type, ...] = (numpy.float64,)  # Python floats, too
    NUMPY_BOOLS: tuple[type, ...] = (numpy.bool_,)  # what comparing them gives
except ImportError:
    NUMPY_SCALARS = NUMPY_CONSTANTS = NUMPY_FLOATS = NUMPY_BOOLS = ()


def is_constant_object(real: Any) -> bool:
    """Whether ``real`` is wrapped as a constant (exact types and enum members)."""
    if type(real) in CONSTANT_TYPES or isinstance(real, (enum.Enum, *NUMPY_SCALARS)):
        return True
    if type(real) is slice:
        return all(is_constant_object(p) for p in (real.start, real.stop, real.step))
    return type(real) is frozenset and all(is_constant_object(p) for p in real)


class ConstantV(Value):
    """A number, string, None, dtype, device, enum member, ...; ``value`` is the object itself."""

    def __init__(self, value: Any, source: Source | None = None) -> None:
        self.value = value
        self.source = source

    def __repr__(self) -> str:
        return f"ConstantV({self.value!r})"

    def python_type(self) -> type:
        return type(self.value)

    def as_constant(self) -> Any:
        return self.value

    def get_attr(self, m: Machine, name: str) -> Value:
        attribute = m.class_lookup(type(self.value), name)
        if isinstance(attribute, property) and type(attribute.fget) is FunctionType:  # of an enum's member
            return m.call(m.wrap(attribute.fget), [self], {})
        if isinstance(self.value, enum.Enum) and may_change(m, type(self.value)):
            own = vars(self.value)
            if name in own and name not in ENUM_NAMES:
                return m.wrap(own[name], Attr(Fixed(self.value), name))
            guard_lacks_attr(m, self.value, Fixed(self.value), name)
        return m.wrap_result(m.real(getattr, self.value, name))

    def call(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        method = m.class_lookup(type(self.value), "__call__")
        if type(method) is FunctionType:  # of an enum's member
            return m.call(m.wrap(method), [self, *args], kwargs)
        return m.fold(self.value, args, kwargs)

    def truth(self, m: Machine) -> bool:
        return bool(m.real(bool, self.value))

    def length(self, m: Machine) -> int:
        return int(m.real(len, self.value))

    def get_item(self, m: Machine, key: Value) -> Value:
        return m.fold(operator.getitem, [self, key], {})

    def contains(self, m: Machine, item: Value) -> bool:
        if not item.is_constant():
            raise Unsupported(f"`in` with {item.a()}")
        return bool(m.real(operator.contains, self.value, item.as_constant()))


def is_none(value: Any) -> bool:
    """Whether it is None; a number that changes, which is not, is not read."""
    return type(value) is ConstantV and value.value is None


NONE = ConstantV(None)
TRUE = ConstantV(True)
FALSE = ConstantV(False)
