"""Shapes and strides: row-major and channels last, broadcasting, and whether elements share memory.

contiguous((2, 3)) -> (3, 1)    channels_last((1, 8, 4, 4)) -> (128, 1, 32, 8)    broadcast((3, 1), (4,)) -> (3, 4)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ..records.sizes import Size, at_least, hint

AnySize = TypeVar("AnySize", int, Size)


def contiguous(shape: Sequence[AnySize]) -> tuple[AnySize, ...]:
    """Row-major strides, as torch gives them (sizes of 0 count as 1)."""
    strides: list[AnySize] = []
    step: AnySize = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * (1 if size == 0 else size)
    return tuple(reversed(strides))


def broadcast(*shapes: Sequence[Size]) -> tuple[Size, ...]:
    """The common shape by torch's broadcasting rules."""
    rank = max((len(s) for s in shapes), default=0)
    out: list[Size] = [1] * rank
    for shape in shapes:
        for k, size in enumerate(shape, rank - len(shape)):
            if size != 1:
                out[k] = size
    return tuple(out)


def channels_last(shape: Sequence[AnySize]) -> tuple[AnySize, ...]:
    """The strides of an image whose channels are neighbours."""
    _, c, h, w = shape
    return (h * w * c, 1, w * c, c)


def is_dense(shape: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Whether it is certain that distinct indices have distinct addresses (gaps allowed)."""
    extent: Size = 1
    moving = [(stride, size) for stride, size in zip(strides, shape) if size != 1]
    for stride, size in sorted(moving, key=lambda p: hint(p[0])):
        if size == 0:
            return True
        if not at_least(stride - extent, 0):
            return False
        extent = stride * size
    return True
