"""Methods bound to values: functions of Python's, of C types, of tensors."""

from __future__ import annotations

from types import BuiltinMethodType, MethodType
from typing import Any

from ...records.sources import Source
from ..errors import Unsupported
from ..protocol import Machine, Value, declared
from .constant import ConstantV


@declared
def call_descriptor(m: Machine, descriptor: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call a method of a C type with the object as first argument."""
    raise NotImplementedError


class CallableV(Value):
    def truth(self, m: Machine) -> bool:
        return True


class MethodV(CallableV):
    """A function bound to its first argument."""

    cls = MethodType

    def __init__(self, function: Value, owner: Value, source: Source | None = None) -> None:
        self.function = function
        self.owner = owner
        self.source = source

    def __repr__(self) -> str:
        return f"MethodV({self.function!r})"

    def call(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return m.call(self.function, [self.owner, *args], kwargs)

    def get_attr(self, m: Machine, name: str) -> Value:
        if name in ("__func__", "__self__"):
            return self.function if name == "__func__" else self.owner
        return self.function.get_attr(m, name)


class TensorMethodV(CallableV):
    """``x.view`` of a tensor: a ``call_method`` node when called."""

    cls = BuiltinMethodType

    def __init__(self, owner: Value, name: str) -> None:
        self.owner = owner
        self.name = name

    def call(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return m.torch_method(self.owner, self.name, args, kwargs)

    def get_attr(self, m: Machine, name: str) -> Value:
        if name == "__self__":
            return self.owner
        if name == "__name__":
            return ConstantV(self.name)
        raise Unsupported(f"attribute `{name}` of the tensor method `{self.name}`")


class BuiltinMethodV(CallableV):
    """A method of a C type (``list.append``) bound to a symbolic value."""

    cls = BuiltinMethodType

    def __init__(self, descriptor: Any, owner: Value, real: Any = None, source: Source | None = None) -> None:
        self.descriptor = descriptor
        self.owner = owner
        self.real = real
        self.source = source

    def __repr__(self) -> str:
        return f"BuiltinMethodV({self.descriptor})"

    def call(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return call_descriptor(m, self.descriptor, [self.owner, *args], kwargs)

    def get_attr(self, m: Machine, name: str) -> Value:
        if name == "__self__":
            return self.owner
        return m.wrap_result(m.real(getattr, self.descriptor, name))
