"""Sizes that may be symbolic, for those who only estimate or try, and what strides say of sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch


def hint_of(size: int | torch.SymInt) -> int:
    """The number that a size was when the program was compiled; nothing is assumed of it."""
    return int(size.node.hint) if isinstance(size, torch.SymInt) else size


def hints(sizes: Iterable[Any]) -> list[int]:
    return [hint_of(size) for size in sizes]


def hinted(value: Any) -> Any:
    """An argument with the numbers in the places of symbolic sizes; tensors keep theirs."""
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return value.node.hint
    if isinstance(value, slice):
        return slice(*map(hinted, (value.start, value.stop, value.step)))
    return type(value)(map(hinted, value)) if type(value) in (list, tuple) else value


def elements(tensor: torch.Tensor) -> int:
    """How many elements it had when the program was compiled."""
    return hint_of(tensor.numel())


def bytes_of_elements(tensor: torch.Tensor) -> int:
    """How many bytes they were."""
    return elements(tensor) * tensor.element_size()


def free_strides(sizes: Sequence[int], strides: Sequence[int]) -> list[int]:
    """The dimensions whose strides do not follow from sizes, as of a slice of something wider, and those that these lie
    in, whose strides follow from theirs.
    """
    rows = nesting(sizes, strides)
    free = [dim for dim, (step, inside) in enumerate(rows) if not inside and step > 1 and sizes[dim] > 1]
    return [dim for dim, (_, inside) in enumerate(rows) if dim in free or (inside and inside[0] in free)]


def nesting(sizes: Sequence[int], strides: Sequence[int]) -> list[tuple[int, tuple[int, ...]]]:
    """How the dimensions of a tensor lie in one another: each stride is a step times the sizes of some dimensions.

    Of strides that are what lies inside these dimensions are those, for others there are none, and the step is the
    stride. A stride of one element, which may be any number, counts as what lies inside.
    """
    found: list[tuple[int, tuple[int, ...]]] = [(stride, ()) for stride in strides]
    step, inside, expected = 1, tuple[int, ...](), 1
    for dim in sorted(range(len(sizes)), key=lambda d: (strides[d], sizes[d] != 1, -d)):
        if strides[dim] == 0:
            continue
        if strides[dim] == expected or sizes[dim] == 1:
            found[dim] = step, inside
        else:
            step, inside, expected = strides[dim], (), strides[dim]
        inside, expected = (*inside, dim), expected * max(sizes[dim], 1)
    return found
