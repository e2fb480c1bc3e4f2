"""What operators mean: special methods of the program's classes, tensors, numbers, containers, constants."""

from __future__ import annotations

import operator
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection
from typing import Any

import torch

from ...bytecode.objects import c_base, namesake
from ...bytecode.operators import BY_FUNCTION, UNARY, Operator
from ..errors import Unsupported
from ..polyfills import dicts as polyfill_dicts
from ..protocol import MISSING, Machine, Value
from ..torch_api.torch_function import answered
from ..values import number
from ..values import symbolic_strings as texts
from ..values.arrays import ArrayV
from ..values.binding import bind, is_of_c
from ..values.constant import ConstantV
from ..values.containers import ListV, SequenceV, SetV, combined
from ..values.dicts import DictV, DictViewV
from ..values.instance import InstanceV
from ..values.number import NumberV
from ..values.tensor import TensorV
from . import equality
from .of_types.lists import MOST_ITEMS, grow

NUMBERS = (int, float, complex, bool, type(None))
CONTAINERS = (str, bytes, list, tuple, dict, set, frozenset)
KEPT_BY_OR = (OrderedDict, defaultdict)  # the first of these decides what `|` of dictionaries makes


def binary(m: Machine, function: Callable[..., Any], left: Value, right: Value) -> Value:
    """``left <operator> right``; ``function`` is the one of the operator module."""
    left, right = m.forced(left), m.forced(right)
    if isinstance(left, TensorV) and isinstance(right, InstanceV):
        result = answered(m, function, [left, right], {})
        if result is not None:
            return result
    if isinstance(left, InstanceV) or isinstance(right, InstanceV):
        result = _by_methods(m, function, left, right)
        if result is not None:
            return result
        result = _merged(m, function, left, right) or _of_payloads(m, function, left, right)
        in_place = function is not BY_FUNCTION[function].function
        return left if in_place and isinstance(left, InstanceV) and result is left.payload else result
    return _of_payloads(m, function, left, right)


def _merged(m: Machine, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
    """``left | right`` and ``left |= right`` of dictionaries where one is of a class that does it in its own way."""
    if function is operator.ior and isinstance(left, InstanceV) and issubclass(left.cls, OrderedDict):
        m.call(m.wrap(polyfill_dicts.update_of_ordered), [left, right], {})
        return left
    if function is not operator.or_ or not all(issubclass(v.python_type(), dict) for v in (left, right)):
        return None
    of_kind = [v for v in (left, right) if issubclass(v.python_type(), KEPT_BY_OR)]
    return m.call(m.wrap(polyfill_dicts.merged), [of_kind[0], left, right], {}) if of_kind else None


def _of_payloads(m: Machine, function: Callable[..., Any], left: Value, right: Value) -> Value:
    """The operator as builtin types know it."""
    left, right = _payload(left), _payload(right)
    row = BY_FUNCTION[function]
    plain = row.function
    if isinstance(left, TensorV):
        left.rely_on(m, row.method if function is plain else row.inplace_method)
        return m.torch_call(function, [left, right], {})
    if isinstance(right, TensorV) and issubclass(left.python_type(), (str, bytes)):
        raise Unsupported("formatting a tensor", "print tensors outside the compiled function")
    if isinstance(right, TensorV) and not isinstance(left, SequenceV):
        right.rely_on(m, row.reflected)
        # numbers have no in-place operators: `n += tensor` makes a new tensor
        return m.torch_call(plain, [left, right], {})
    if isinstance(left, NumberV) or isinstance(right, NumberV):
        found = number.operation(m, plain, left, right)
        if found is not None:
            return found
    if plain is operator.mod and (text := texts.filled_in(m, left, right)) is not None:
        return text
    for kinds, implementation in _CONTAINER_OPERATORS:
        if isinstance(left, kinds) or isinstance(right, kinds):
            result = implementation(m, function, plain, left, right)
            if result is not None:
                return result
    left, right = m.settle(left), m.settle(right)
    if plain in (operator.eq, operator.ne):
        same = equality.equal(m, left, right)
        if same is not None:
            return ConstantV(same == (plain is operator.eq))
    if isinstance(left, InstanceV) or isinstance(right, InstanceV):
        _refuse_strangers(m, function, left, right)
    if isinstance(left, ArrayV) and function is not plain:
        left.refuse_when_sealed(m)
    return m.fold(function if isinstance(left, (ConstantV, ArrayV)) else plain, [left, right], {})


def _refuse_strangers(m: Machine, function: Callable[..., Any], left: Value, right: Value) -> None:
    """Raise what C says of operands that do not know each other, in words that depend on their types alone."""
    row = BY_FUNCTION[function]
    plain = row.function
    names = {row.method, row.reflected, *([row.inplace_method] if function is not plain else [])}
    strange = [_is_strange(m, value, names) for value in (left, right)]
    takes_more = plain is not function or function is operator.mod
    if function is operator.mul:
        takes_more = any(m.class_lookup(v.python_type(), "__index__") is not MISSING for v in (left, right))
    kinds = NUMBERS if takes_more else (*NUMBERS, *CONTAINERS)
    if all(odd or value.python_type() in kinds for odd, value in zip(strange, (left, right))):
        classes = left.python_type(), right.python_type()
        m.throw_as(function, *(namesake(cls) if odd else cls() for odd, cls in zip(strange, classes)))


def _is_strange(m: Machine, value: Value, names: Collection[str]) -> bool:
    """Whether C knows nothing of such objects, and nobody else does what ``names`` say in C."""
    if not isinstance(value, InstanceV) or c_base(value.cls) is not object:
        return False
    found = {name: m.class_lookup(value.cls, name) for name in names}
    return not any(is_of_c(answer) and answer is not getattr(object, name, None) for name, answer in found.items())


def _payload(value: Value) -> Value:
    return value.payload if isinstance(value, InstanceV) and value.payload is not None else value


def _by_methods(m: Machine, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
    """The special methods of user classes; None when no side defines one (builtin bases may still)."""
    row = BY_FUNCTION[function]
    if function is not row.function:
        result = _try_method(m, left, row.inplace_method, right)
        if result is not None:
            return result
    tries = [(left, row.method, right), (right, row.reflected, left)]
    if _goes_first(m, row, left.python_type(), right.python_type()):
        tries.reverse()
    elif row.inplace is not None and left.python_type() is right.python_type():
        tries.pop()
    for owner, name, other in tries:
        result = _try_method(m, owner, name, other)
        if result is None and function is operator.ne and m.class_lookup(owner.python_type(), name) is object.__ne__:
            equal = _try_method(m, owner, "__eq__", other)
            result = None if equal is None else ConstantV(not m.truth(equal))
        if result is not None:
            return result
    return None


def _goes_first(m: Machine, row: Operator, left: type, right: type) -> bool:
    """Whether the right operand is asked before the left: its class derives from the left's and has its own answer."""
    if left is right or left not in right.__mro__:
        return False
    return row.inplace is None or m.class_lookup(right, row.reflected) is not m.class_lookup(left, row.reflected)


def _try_method(m: Machine, owner: Value, name: str, other: Value) -> Value | None:
    if not isinstance(owner, InstanceV):
        return None
    attribute = m.class_lookup(owner.cls, name)
    if attribute is MISSING or is_of_c(attribute):
        return None
    if attribute is None:
        m.throw_as(operator.call, None)
    result = m.call(bind(m, attribute, owner, owner.cls, name), [other], {})
    if isinstance(result, ConstantV) and result.value is NotImplemented:
        return None
    return result


def _sequence_operator(m: Machine, function: Any, plain: Any, left: Value, right: Value) -> Value | None:
    if plain is operator.mul:
        if isinstance(left, SequenceV):
            return _times(m, left, right, in_place=function is not plain)
        assert isinstance(right, SequenceV)
        if issubclass(left.python_type(), (str, bytes)):
            m.throw_as(operator.mul, (), namesake(right.python_type()))
        return _times(m, right, left, in_place=False)
    if function is operator.iadd and isinstance(left, ListV):
        grow(m, left, right)
        return left
    if not (isinstance(left, SequenceV) and isinstance(right, SequenceV)):
        return None
    if plain is operator.add and type(left) is type(right):
        for one, other in ((left, right), (right, left)):
            if one.cls is tuple is other.cls and not one.items:
                return other
        items = left.all(m) + right.all(m)
        return left.like(items) if isinstance(left, ListV) else type(left)(items, _sum_class(left.cls, right.cls))
    asked = plain in (operator.eq, operator.ne)
    if asked and (type(left) is not type(right) or len(left.items) != len(right.items)):
        return ConstantV(plain is operator.ne)
    left.all(m), right.all(m)
    if not asked and (BY_FUNCTION[plain].inplace is not None or type(left) is not type(right)):
        return None
    if not asked and left.is_constant() and right.is_constant():
        return None
    position = 0
    while position < min(len(left.items), len(right.items)):  # comparing items may change the lists
        mine, theirs = left.at(m, position), right.at(m, position)
        if not m.equal(mine, theirs):
            break
        position += 1
    if position >= min(len(left.items), len(right.items)):
        return ConstantV(plain(len(left.items), len(right.items)))
    return ConstantV(plain is operator.ne) if asked else m.binary(plain, mine, theirs)


def _times(m: Machine, repeated: SequenceV, number: Value, in_place: bool) -> Value:
    """``repeated * number``; a list's ``*=`` changes the list."""
    if not isinstance(number, TensorV) and m.class_lookup(number.python_type(), "__index__") is MISSING:
        m.throw_as(operator.mul, (), namesake(number.python_type()))
    count = number.as_index(m)
    if repeated.cls is tuple and count == 1:
        return repeated
    if len(repeated.items) * count > MOST_ITEMS:
        raise Unsupported(f"a sequence of over {MOST_ITEMS:,} items")
    items = repeated.all(m) * count
    if not isinstance(repeated, ListV):
        return type(repeated)(items, repeated.cls if repeated.cls is torch.Size else None)
    if not in_place:
        return repeated.like(items)
    repeated.replace(m, items)
    return repeated


def _sum_class(left: type, right: type) -> type:
    """The class of the sum of two tuples: torch.Size has rules of its own."""
    if torch.Size in (left, right):
        return type((torch.Size if left is torch.Size else tuple)() + (torch.Size if right is torch.Size else tuple)())
    return tuple


def _dict_operator(m: Machine, function: Any, plain: Any, left: Value, right: Value) -> Value | None:
    if not (isinstance(left, DictV) and isinstance(right, DictV)):
        return None
    if plain is operator.or_:
        if function is operator.ior:
            for key, value in right.pairs(m):
                left.set_item(m, key, value)
            return left
        result = DictV.of(left.pairs(m) + right.pairs(m))
        model = next((v for v in (left, right) if issubclass(v.cls, KEPT_BY_OR)), None)
        if model is not None:
            result.cls, result.default_factory = model.cls, model.default_factory
        return result
    if plain in (operator.eq, operator.ne):
        right.fill(m)
        mine = left.pairs(m)
        same = len(mine) == len(right.items) and all(
            right.contains(m, k) and m.equal(v, right.get_item(m, k)) for k, v in mine
        )
        if issubclass(left.cls, OrderedDict) and issubclass(right.cls, OrderedDict):
            same = same and list(left.items) == list(right.items)
        return ConstantV(same == (plain is operator.eq))
    return None


def _set_operator(m: Machine, function: Any, plain: Any, left: Value, right: Value) -> Value | None:
    left_set = as_set(m, left)
    right_set = as_set(m, right)
    if left_set is None or right_set is None:
        return None
    a, b = left_set.items, right_set.items
    if plain in (operator.eq, operator.ne):
        return ConstantV((a.keys() == b.keys()) == (plain is operator.eq))
    if plain in (operator.le, operator.lt, operator.ge, operator.gt):
        return ConstantV(plain(a.keys(), b.keys()))
    if plain not in _SET_RULES:
        return None
    made = combined(_SET_RULES[plain], left.cls if isinstance(left, SetV) else set, a, b)
    if function is not plain and isinstance(left, SetV) and left.cls is set:
        m.mutate(left)
        left.items, left.order = made.items, made.order
        return left
    return made


_SET_RULES = {
    operator.or_: "union",
    operator.and_: "intersection",
    operator.sub: "difference",
    operator.xor: "symmetric_difference",
}


def as_set(m: Machine, value: Value) -> SetV | None:
    if isinstance(value, SetV):
        return value
    if isinstance(value, DictViewV) and value.kind in ("keys", "items"):
        return SetV(value.listed(m))
    return None


_CONTAINER_OPERATORS: tuple[tuple[Any, Callable[..., Value | None]], ...] = (
    (SequenceV, _sequence_operator),
    (DictV, _dict_operator),
    ((SetV, DictViewV), _set_operator),
)

UNARY_METHODS = {abs: "__abs__", **{row.function: row.method for row in UNARY.values()}}


def unary(m: Machine, function: Callable[..., Any], value: Value) -> Value:
    if isinstance(value, TensorV):
        value.rely_on(m, UNARY_METHODS[function])
        return m.torch_call(function, [value], {})
    if isinstance(value, InstanceV):
        method = value.method(m, UNARY_METHODS[function])
        if method is not None:
            return m.call(method, [], {})
        if _is_strange(m, value, [UNARY_METHODS[function]]):
            m.throw_as(function, namesake(value.cls))
    found = number.operation(m, function, value) if isinstance(value, NumberV) else None
    return m.fold(function, [value], {}) if found is None else found
