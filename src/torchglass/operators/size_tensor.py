"""A number that a graph reads off a tensor's shape, as it reads all sizes that change.

n = lengths.max().item()      size = read_size(max, [], [s0])      n is size.shape[0]
x[:n]                         alias = x[:u0]                       where that is not above s0, else the graph fails
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


class OutOfRange(RuntimeError):
    """A number is none of those for which a graph was captured: the program does something else with it."""


def size_tensor(number: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """A tensor of so many elements, all of them one byte in memory."""
    return torch.empty((1,), dtype=torch.uint8, device=device).expand(number)


def _read_size(number: torch.Tensor, least: Sequence[int], most: Sequence[int]) -> torch.Tensor:
    size = int(number)
    if size < max((0, *least)) or any(size > one for one in most):
        raise OutOfRange(f"a number of a tensor is {size}, not {max((0, *least))} to {min(most, default='any')}")
    return size_tensor(size, number.device)


_library = torch.library.Library("torchglass", "DEF")
_library.define(
    "read_size(Tensor number, SymInt[] least, SymInt[] most) -> Tensor", tags=torch.Tag.dynamic_output_shape
)
_library.impl("read_size", _read_size, "CompositeExplicitAutograd")
read_size = torch.ops.torchglass.read_size.default
"""A tensor of as many elements as a tensor's one number says. Raises OutOfRange where that is not within bounds."""
