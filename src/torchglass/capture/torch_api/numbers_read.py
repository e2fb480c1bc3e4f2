"""Whole numbers that the program reads of tensors, as sizes that data decide.

    n = lengths.max().item()          SizeV(u0)              read_size(max, [], [s0]) in the graph
    x.split(lengths.tolist())         SizeV(u0), SizeV(u1)
    x[scores.argmax()]                the same: x.select(0, u0)

A size is at least 0. A number that is not, or not what the program's slices and checks say of it, is found when the
graph reads it, and then Python runs the call from the start: graphs that cannot be run twice read no numbers.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import torch

from ...operators.size_tensor import read_size
from ...records.size_environment import SizeEnvironment
from ...records.sizes import symbol_name
from ..errors import Unchecked
from ..graph.builder import GraphBuilder
from ..protocol import Machine, Value
from ..values.constant import ConstantV
from ..values.containers import ListV, TupleV
from ..values.function_modes import FunctionModes
from ..values.sealing import Sealed
from ..values.sizes import SizeV
from ..values.tensor import TensorV
from .constant_folding import with_numbers
from .deferred_asserts import Checks

NUMBERS = frozenset(("item", "__int__"))
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
MOST_READ = 64  # of a list, each by an operation of its own


def may_read(m: Machine, owner: TensorV, name: str) -> bool:
    """Whether what ``owner.item()`` or ``owner.tolist()`` gives can be sizes of the graph."""
    builder, shape = m.state(GraphBuilder), owner.fake.shape
    if type(builder) is not GraphBuilder or builder.region is not None or not m.state(SizeEnvironment).data_allowed:
        return False
    if m.state(FunctionModes).entered or m.state(Sealed).by or m.state(Checks).break_here:
        return False
    if owner.fake.dtype not in WHOLE or not all(type(size) is int for size in shape) or owner.replaced:
        return False
    return owner.fake.numel() == 1 if name in NUMBERS else name == "tolist" and _is_short(shape)


def _is_short(shape: torch.Size) -> bool:
    return len(shape) == 1 and shape[0] <= MOST_READ


def read(m: Machine, owner: TensorV, name: str) -> Value:
    """The number, or the list of them."""
    if name in NUMBERS:
        return _number(m, owner)
    places = map(ConstantV, range(owner.fake.shape[0]))
    return ListV([_number(m, _selected(m, owner, place)) for place in places])


def _selected(m: Machine, owner: TensorV, place: Value) -> TensorV:
    selected = m.torch_method(owner, "select", [ConstantV(0), place], {})
    assert isinstance(selected, TensorV)
    return selected


PLACES = {
    operator.getitem: 1, operator.setitem: 1, "__getitem__": 1, "__setitem__": 1,
    torch.select: 2, "select": 2, torch.narrow: 2, "narrow": 2,
}  # fmt: skip
"""Functions that read the number of a tensor to know a place, and which argument says that place."""


def as_places(m: Machine, function: Any, args: list[Value]) -> list[Value] | None:
    """The arguments of one of these with numbers in place of tensors that are places; None if there are none."""
    n = PLACES.get(function, len(args))
    replaced = [with_numbers(m, arg, lambda tensor: _place(m, tensor)) if k == n else arg for k, arg in enumerate(args)]
    return replaced if any(a is not b for a, b in zip(args, replaced)) else None


def _place(m: Machine, tensor: TensorV) -> Value:
    """An index of type uint8 is a mask."""
    single = tensor.fake.dim() == 0 and tensor.fake.dtype is not torch.uint8
    return _number(m, tensor) if single and may_read(m, tensor, "item") else tensor


@dataclass
class Read:
    """The tensors that numbers were read of, by the symbols of these."""

    tensors: dict[str, TensorV] = field(default_factory=dict)


def _number(m: Machine, tensor: TensorV) -> Value:
    told = m.torch_call(read_size, [tensor, ListV([]), ListV([])], {})
    assert isinstance(told, TensorV)
    number = m.wrap_result(told.fake.shape[0])
    name = symbol_name(number.size) if isinstance(number, SizeV) else None
    if name is not None:
        m.state(Read).tensors.setdefault(name, tensor)
    return number


def tensor_of(m: Machine, number: Value, dtype: torch.dtype, device: torch.device) -> Value | None:
    """The tensor that a number was read of, which operators take in its place; None where it is not known, has been
    written to or lies elsewhere.
    """
    name = symbol_name(number.size) if isinstance(number, SizeV) else None
    tensor = m.state(Read).tensors.get(name or "")
    if tensor is None or tensor.fake.device != device or m.state(GraphBuilder).wrote_to(tensor.fake):
        return None
    single = m.torch_method(tensor, "reshape", [TupleV([])], {}) if tensor.fake.dim() else tensor
    return m.torch_method(single, "to", [ConstantV(dtype)], {})


def refuse_unfit(m: Machine) -> None:
    """Where a number is not as expected, Python runs the call from the start. Raises Unchecked where it must not."""
    builder = m.state(GraphBuilder)
    if not any(node.target is read_size for node in builder.graph.nodes):
        return
    if builder.writes_inputs() or any(isinstance(held, torch.Generator) for held in builder.held.values()):
        raise Unchecked("a number that is read in a graph that cannot be run twice")
