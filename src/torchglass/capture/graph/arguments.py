"""Values as arguments of a graph's nodes.

[TensorV, SizeV, ConstantV(2)]   ->   [fx.Node, SymInt, 2]        or, for fakes, [FakeTensor, SymInt, 2]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...aten.sizes import hinted, hints
from ..errors import Unsupported
from ..protocol import Lazy, NotConstant, Value
from ..values.constant import ConstantV
from ..values.containers import ListV, SequenceV, SliceV
from ..values.dicts import DictV
from ..values.instance import InstanceV
from ..values.number import NumberV
from ..values.sizes import SizeV, as_size
from ..values.tensor import TensorV


def convert(
    value: Value | Lazy,
    leaf: Callable[[TensorV], Any],
    constant_of: Callable[[Any], Any] = lambda real: real,
    instance: Callable[[InstanceV], Any] | None = None,
) -> Any:
    """A value as an argument of a node: containers are rebuilt, tensors go through ``leaf``, what holds no tensor
    through ``constant_of``, and objects of the user's, which a node cannot take, through ``instance``.
    """
    if isinstance(value, Lazy):
        if isinstance(value.real, torch.Tensor):
            raise NotConstant(value)
        return constant_of(value.real)
    if isinstance(value, TensorV):
        return leaf(value)
    if isinstance(value, SizeV):
        return value.symbolic
    if isinstance(value, NumberV) and type(value.known) is int:
        return as_size(value)
    if isinstance(value, ConstantV):
        return constant_of(value.value)
    if isinstance(value, SliceV):
        return slice(*[convert(p, leaf, constant_of, instance) for p in value.parts])
    if isinstance(value, SequenceV):
        items = [convert(i, leaf, constant_of, instance) for i in value.items]
        if isinstance(value, ListV):
            return items
        return value.cls._make(items) if hasattr(value.cls, "_make") else tuple(items)
    if isinstance(value, DictV) and value.complete:
        return {k: convert(v, leaf, constant_of, instance) for k, v in value.items.items()}
    if instance is not None and isinstance(value, InstanceV):
        return instance(value)
    try:
        constant = value.as_constant()
    except NotConstant:
        raise Unsupported(f"{value.a()} as argument of a tensor operation") from None
    if callable(constant) and not isinstance(constant, type):
        raise Unsupported(f"{value.a()} as argument of a tensor operation")
    return constant_of(constant)


def fake_of(value: Value) -> Any:
    """A value as an argument of an operation on fake tensors."""
    return convert(value, _fake)


def _fake(value: TensorV) -> torch.Tensor:
    if value.replaced:
        raise Unsupported("reading a tensor whose `.data` the program has written")
    return value.fake


def tried(value: Value, leaf: Callable[[TensorV], Any]) -> Any:
    """A value as an argument of an operation that is tried on real tensors, which ``leaf`` makes."""
    return hinted(convert(value, leaf))


def empty_like(value: TensorV) -> torch.Tensor:
    """A real tensor like one that has no elements."""
    t = value.fake
    return torch.empty_strided(hints(t.shape), hints(t.stride()), dtype=t.dtype, device=t.device)


def zeros_like(value: TensorV) -> torch.Tensor:
    """A real tensor like one, without memory of its own."""
    return torch.zeros((), dtype=value.fake.dtype).expand(hints(value.fake.shape))


def is_empty(tensor: torch.Tensor) -> bool:
    """Whether it is certain that a tensor has no elements."""
    return any(type(size) is int and size == 0 for size in tensor.shape)


def has_list(index: Any) -> bool:
    """Whether an index reads at places that a list names."""
    return isinstance(index, list) or (isinstance(index, tuple) and any(isinstance(i, list) for i in index))


def has_tensor(value: Any) -> bool:
    """Whether a tensor stands anywhere in a value that may become an argument of an operation."""
    if isinstance(value, TensorV):
        return True
    if isinstance(value, SequenceV):
        return any(has_tensor(i) for i in value.items)
    if isinstance(value, SliceV):
        return any(has_tensor(p) for p in value.parts)
    if isinstance(value, DictV):
        return any(has_tensor(v) for v in value.items.values())
    if isinstance(value, Lazy):
        return isinstance(value.real, torch.Tensor) or (
            isinstance(value.real, (list, tuple)) and any(isinstance(i, torch.Tensor) for i in value.real)
        )
    return False
