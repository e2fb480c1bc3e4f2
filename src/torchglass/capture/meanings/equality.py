"""``==`` of values that are no tensors, numbers or containers: whether they are one, as far as their classes ask that.

one.heard == other.heard    # methods: of one object, and one function
array == 1                  # a class in C with an ``==`` of its own: the graph ends
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ..errors import Unsupported
from ..protocol import Machine, Value
from ..values.binding import is_of_c
from ..values.constant import ConstantV
from ..values.containers import SequenceV, SetV
from ..values.dicts import DictV, DictViewV
from ..values.instance import InstanceV
from ..values.methods import BuiltinMethodV, MethodV

_COMPARE_WITH_THEIR_LIKE = (ConstantV, SequenceV, DictV, SetV, DictViewV, MethodV, BuiltinMethodV)


def equal(m: Machine, left: Value, right: Value) -> bool | None:
    """Whether they are equal; None for two constants, which say it themselves. Raises Unsupported."""
    if isinstance(left, MethodV) and isinstance(right, MethodV):
        return m.identical(left.owner, right.owner) and m.equal(left.function, right.function)
    if isinstance(left, BuiltinMethodV) and isinstance(right, BuiltinMethodV):
        return left.descriptor is right.descriptor and m.identical(left.owner, right.owner)
    if left.is_constant() and right.is_constant():
        return None
    if all(isinstance(v, InstanceV) and issubclass(v.cls, SimpleNamespace) for v in (left, right)):
        return m.equal(*(v.get_attr(m, "__dict__") for v in (left, right)))
    members = [_member_in_c(m, value) for value in (left, right)]
    if None not in members:
        return bool(members[0] == members[1])
    for value in (left, right):
        if not _asks_whether_they_are_one(value):
            raise Unsupported(f"comparing {value.a()}")
    return m.identical(left, right)


def _asks_whether_they_are_one(value: Value) -> bool:
    """Whether ``==`` of this and an object of another kind does: where nothing else is known of the class, and builtin
    containers compare with their like alone.
    """
    if isinstance(value, _COMPARE_WITH_THEIR_LIKE):
        return True
    found = getattr(value.python_type(), "__eq__", object.__eq__)
    return found is object.__eq__ or (isinstance(value, InstanceV) and not is_of_c(found))


def _member_in_c(m: Machine, value: Value) -> Any:
    """The member of one of pybind11's enumerations that this is, such as ``SDPBackend.MATH``; None for others."""
    real = getattr(value, "real", None)
    if real is None or not hasattr(value.python_type(), "__members__"):
        return None
    if value.source is not None:
        m.guard(value.source, "identity", real, "was compared")
    return real
