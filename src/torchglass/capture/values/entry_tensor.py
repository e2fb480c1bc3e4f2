"""Inputs of the graph that the entry makes of numbers that change from call to call.

x * n                       ->   graph_0(x, reconstruct.scalar(n, torch.float32))
torch.tensor([[a, b], c])   ->   data = torch.tensor([[a, b], c]); graph_0(x, data)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.fx

from ..._native import number_tensor
from ...aten.sizes import hint_of
from ...operators.size_tensor import size_tensor
from ..protocol import Lazy, Machine, Value
from .number import NumberV
from .tensor import TensorV


class EntryTensorV(TensorV):
    """An input of the graph that the entry makes of numbers before it runs the graph."""

    def example(self) -> torch.Tensor:
        """A real tensor as the graph gets it."""
        raise NotImplementedError

    def relied_on(self, m: Machine) -> torch.Tensor:
        """The same, where the program wants to know its values: they are guarded."""
        raise NotImplementedError


class NumberTensorV(EntryTensorV):
    """A number as an input of the graph: a tensor of no dimensions."""

    def __init__(self, node: torch.fx.Node, fake: torch.Tensor, number: NumberV) -> None:
        super().__init__(node, fake)
        self.number = number

    def example(self) -> torch.Tensor:
        return number_tensor(self.number.known, self.fake.dtype)

    def relied_on(self, m: Machine) -> torch.Tensor:
        return number_tensor(self.number.value, self.fake.dtype)


class EntrySizeV(EntryTensorV):
    """A number as an input of the graph that is read off its shape: a tensor of so many elements, all in one place."""

    def __init__(self, node: torch.fx.Node, fake: torch.Tensor, size: torch.SymInt) -> None:
        super().__init__(node, fake)
        self.size = size

    def example(self) -> torch.Tensor:
        return size_tensor(hint_of(self.size))

    def relied_on(self, m: Machine) -> torch.Tensor:
        return size_tensor(int(self.size))


class ListCall(NamedTuple):
    """``function(data, *rest, **kwargs)``: ``data`` is made of ``leaves``, numbers that may be others at each call."""

    function: Callable[..., torch.Tensor]
    data: Value | Lazy
    leaves: list[Value | Lazy]
    rest: list[Value]
    kwargs: dict[str, Value]
    result: torch.Tensor


class ListTensorV(EntryTensorV):
    """What ``torch.tensor`` makes of a list of numbers, or of lists of such, as an input of the graph."""

    def __init__(self, node: torch.fx.Node, fake: torch.Tensor, made_by: ListCall) -> None:
        super().__init__(node, fake)
        self.made_by = made_by

    def example(self) -> torch.Tensor:
        return self.made_by.result

    def relied_on(self, m: Machine) -> torch.Tensor:
        for leaf in self.made_by.leaves:
            m.forced(leaf).as_constant()
        return self.made_by.result
