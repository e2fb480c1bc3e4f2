"""How dimensions lie in memory, as ATen's kernels see it: shapes and strides in, strides or an order of dimensions out.

>>> runs((2, 3, 4), (24, 4, 1)), strides_of_view((2, 3, 4), (24, 4, 1), (2, 12))
([range(1, 3), range(0, 1)], (24, 1))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch


def runs(sizes: Sequence[Any], strides: Sequence[Any]) -> list[range]:
    """Dimensions that follow each other in memory, the innermost first: those of one element belong to what is inside
    them.
    """
    found: list[range] = []
    end = len(sizes)
    run = 1
    for dim in reversed(range(len(sizes))):
        run = run * sizes[dim]
        if not dim or not (sizes[dim - 1] == 1 or strides[dim - 1] == run * strides[end - 1]):
            found.append(range(dim, end))
            end, run = dim, 1
    return found


def strides_of_view(old: Sequence[int], strides: Sequence[int], new: Sequence[int]) -> tuple[int, ...] | None:
    """Strides of the ``new`` shape in the same memory, as ATen computes them (``computeStride`` in TensorUtils.cpp):
    by runs of dimensions, from the last; None where one is not filled.
    """
    if 0 in new:
        return tuple(strides) if tuple(old) == tuple(new) else torch.empty(tuple(new), device="meta").stride()
    made: list[int] = []
    left = list(new)
    for dims in runs(old, strides):
        run, filled = math.prod(old[dim] for dim in dims), 1
        while left and (filled < run or left[-1] == 1):
            made.insert(0, filled * strides[dims[-1]])
            filled *= left.pop()
        if filled != run:
            return None
    return (*(1 for _ in left), *made)


def lies_channels_last(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """As ATen's kernels ask of images: strides grow from the channels over the places to the batch. One channel that is
    shown many times is none.
    """
    if strides[1] == 0:
        return False
    least = 0
    for dim in (1, *range(len(sizes) - 1, 1, -1), 0):
        size, stride = sizes[dim], strides[dim]
        if size == 0 or stride < least or (dim == 0 and least == strides[1]):
            return False
        least = stride * size
    return True


def sorted_as_iterated(innermost_first: list[int], swaps: Callable[[int, int], int]) -> list[int]:
    """Dimensions as ``TensorIterator`` sorts them: ``swaps(inner, outer)`` is 1 where the outer one belongs inside, -1
    where it does not, 0 where nothing tells.
    """
    order = list(innermost_first)
    for place in range(1, len(order)):
        moving = place
        for before in range(place - 1, -1, -1):
            swap = swaps(order[before], order[moving])
            if swap < 0:
                break
            if swap > 0:
                order[before], order[moving] = order[moving], order[before]
                moving = before
    return order
