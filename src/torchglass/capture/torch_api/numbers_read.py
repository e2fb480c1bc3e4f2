"""Whole numbers that the program reads of tensors, as sizes that data decide.

    n = lengths.max().item()          SizeV(u0)              read_size(max, [], [s0]) in the graph
    x.split(lengths.tolist())         SizeV(u0), SizeV(u1)

A size is at least 0. A number that is not, or not what the program's slices and checks say of it, is found when the
graph reads it, and then Python runs the call from the start: graphs that cannot be run twice read no numbers.
"""

from __future__ import annotations

import torch

from ...operators.size_tensor import read_size
from ...records.size_environment import SizeEnvironment
from ..errors import Unchecked
from ..graph.builder import GraphBuilder
from ..protocol import Machine, Value
from ..values.constant import ConstantV
from ..values.containers import ListV
from ..values.function_modes import FunctionModes
from ..values.sealing import Sealed
from ..values.tensor import TensorV
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
    return ListV([_number(m, m.torch_method(owner, "select", [ConstantV(0), place], {})) for place in places])


def _number(m: Machine, tensor: Value) -> Value:
    told = m.torch_call(read_size, [tensor, ListV([]), ListV([])], {})
    assert isinstance(told, TensorV)
    return m.wrap_result(told.fake.shape[0])


def refuse_unfit(m: Machine) -> None:
    """Where a number is not as expected, Python runs the call from the start. Raises Unchecked where it must not."""
    builder = m.state(GraphBuilder)
    if not any(node.target is read_size for node in builder.graph.nodes):
        return
    if builder.writes_inputs() or any(isinstance(held, torch.Generator) for held in builder.held.values()):
        raise Unchecked("a number that is read in a graph that cannot be run twice")
