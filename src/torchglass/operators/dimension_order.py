"""In which order the dimensions of an element-wise result lie in memory, whatever its sizes are.

Kernels ask for it how their operands lie (``TensorIterator``), and at some sizes the answer says nothing: a matrix of
one row is contiguous however it is turned. An order that is found by the numbers of such a call is another one's at
other sizes, so it is found here from sizes and strides in symbols.

    x of [s0, s1], strides [1, s0], and y, strides [s1, 1]      x + y: dimension 0 inside dimension 1, as x lies

What is contiguous, and what the first operand says alone, is proved; else it is assumed what the sizes of this compile
say. Dimensions of one element, on which no address depends, are passed over: the others lie in the same order whatever
operands say of those. So they do where kernels take a short cut, for operands that all say the order which it gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TypeAlias

from ..aten.strides import sorted_as_iterated
from ..records.size_environment import SizeEnvironment
from ..records.sizes import Size, product

Sizes: TypeAlias = tuple[Size, ...]
Operand: TypeAlias = tuple[Sizes, Sizes]
"""Sizes and strides."""


def innermost_first(environment: SizeEnvironment, operands: Sequence[Operand], sizes: Sizes) -> list[int]:
    """The dimensions of a result of these ``sizes``, but for those of one element."""
    order = [dim for dim, size in enumerate(sizes) if size != 1][::-1]
    speaking = [operand for operand in operands if len(operand[0]) > 1]  # one dimension lies in no order
    if all(_in_rows(environment, *operand) for operand in speaking):
        return order
    first_sizes, first_strides = speaking[0]
    if first_sizes == sizes and (found := _nested(environment, sizes, first_strides)) is not None:
        return found
    if first_sizes != sizes or 0 in first_strides:
        # the others speak where the first one is expanded; where what is expanded has one element it speaks itself
        asked = [size for operand in speaking for size in _expanded(operand, sizes)]
        # and of three dimensions one of one element may be what two are compared by
        asked += sizes if len(order) > 2 and len(speaking) > 1 else ()
        for size in asked:
            environment.settle(size, "==", 1)
        sizes = tuple(map(environment.canonical, sizes))
    steps = [_steps(environment, operand, sizes) for operand in speaking]
    order = [dim for dim in order if sizes[dim] != 1]
    return sorted_as_iterated(order, lambda inner, outer: _swaps(environment, inner, outer, steps, sizes))


def _in_rows(environment: SizeEnvironment, sizes: Sizes, strides: Sizes) -> bool:
    """Whether an operand never asks for another order than that of a new tensor: what is contiguous, and a part of it
    or what is expanded.
    """
    if environment.dense(sizes[::-1], strides[::-1]):
        return True
    moves = [dim for dim, size in enumerate(sizes) if size != 1 and strides[dim] != 0]
    return all(
        environment.proved(strides[inner] * sizes[inner], "<=", strides[outer]) is True
        for outer, inner in combinations(moves, 2)
    )


def _nested(environment: SizeEnvironment, sizes: Sizes, strides: Sizes) -> list[int] | None:
    """The dimensions of an operand without gaps, each around those before it; None if it has some."""
    order, step = list[int](), product(())
    left = [dim for dim, size in enumerate(sizes) if size != 1]
    while left:
        dim = next((dim for dim in left if environment.proved(strides[dim], "==", step)), None)
        if dim is None:
            return None
        left.remove(dim)
        order.append(dim)
        step = step * sizes[dim]
    return order


def _expanded(operand: Operand, sizes: Sizes) -> list[Size]:
    """The sizes of the result along which an operand shows the same elements again."""
    own = sizes[len(sizes) - len(operand[0]) :]
    return [whole for size, step, whole in zip(*operand, own) if (size == 1 or step == 0) and whole != 1]


def _steps(environment: SizeEnvironment, operand: Operand, sizes: Sizes) -> list[Size]:
    """An operand's step in each dimension of the result; 0 where it lacks one, or is expanded."""
    own = [
        0 if environment.canonical(size) == 1 != whole else step
        for size, step, whole in zip(*operand, sizes[len(sizes) - len(operand[0]) :])
    ]
    return [0] * (len(sizes) - len(own)) + own


def _swaps(environment: SizeEnvironment, inner: int, outer: int, steps: Sequence[Sequence[Size]], sizes: Sizes) -> int:
    """As in ``sorted_as_iterated``; 0 where no operand says."""
    proved, settle = environment.proved, environment.settle
    for step in steps:
        a, b = step[inner], step[outer]
        if settle(a, "==", 0) or settle(b, "==", 0):
            continue
        if proved(a * sizes[inner], "<=", b) is True:
            return -1
        if proved(b * sizes[outer], "<=", a) is True or settle(a, ">", b):
            return 1
        if settle(a, "<", b):
            return -1
        if settle(sizes[inner], ">", sizes[outer]):
            return 1
    return 0
