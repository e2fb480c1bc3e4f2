"""How long what is saved for backward lives: which results a backward kills, and whose gradients use what is saved.

Input: the traced results with their autograd history, and the ops of backward. Output: the record
``BackwardLiveness``, or None where one backward kills all results, as in most programs; and the ``Part``s, between
which autograd has no node. A GAN's picture and its detached copy's loss are apart::

    fake = g(z)
    return fake, d(fake.detach()).mean()      # eager differentiates either after the other

In eager a backward frees the autograd nodes that it visits, and a later one fails that visits one of them and needs
what it had saved. Here all results have one node, which has to know how far each of them reaches.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from ..records.partition import BackwardLiveness, Part
from .ops import Op, operands

_SUMS = frozenset({torch.ops.aten.add.Tensor})
"""Operators whose terms are differentiated apart."""


def backward_liveness(
    results: Sequence[torch.Tensor], saved: Sequence[Op], watched: int, tangents: Sequence[Op], ops: Iterable[Op]
) -> BackwardLiveness | None:
    """``results`` are the traced ones that are differentiated, ``tangents`` theirs; ``watched`` more tensors are saved
    to notice writes.
    """
    kills = _kills(results)
    everything = (1 << len(results)) - 1
    if all(others == everything for others in kills):
        return None
    uses = _uses(saved, tangents, ops)
    uses += [functools.reduce(int.__or__, uses, 0)] * watched
    return BackwardLiveness(tuple(map(_bits, kills)), tuple(map(_bits, uses)))


def parts(
    results: Sequence[torch.Tensor],
    liveness: BackwardLiveness | None,
    places: Sequence[int | None],
    leaves: Sequence[Any],
) -> tuple[Part, ...]:
    """The results by what autograd connects; () where that is all of them. ``places``: for each saved and each watched
    tensor which of the results it is, if any; ``leaves``: what the gradients are for.

    A result that the backward of another one reads counts as connected: the two nodes would hold each other.
    """
    if liveness is None:
        return ()
    reached = _reached(results)
    uses = [sum(1 << index for index in indices) for indices in liveness.uses]
    reads = [mask | 1 << place for mask, place in zip(uses, places) if place is not None]
    groups = _connected([*reached.values(), *(1 << index for index in range(len(results))), *reads])
    given = [reached.get(torch.autograd.graph.get_gradient_edge(leaf).node, 0) for leaf in leaves]
    found = tuple(Part(_bits(group), _meeting(uses, group), _meeting(given, group)) for group in groups)
    return found if len(found) > 1 and all(given) and all(part.gradients for part in found) else ()


def _connected(masks: Iterable[int]) -> list[int]:
    """The masks, united as long as two of them meet."""
    groups: list[int] = []
    for mask in dict.fromkeys(masks):
        met = [group for group in groups if group & mask]
        groups = [group for group in groups if not group & mask]
        united = functools.reduce(int.__or__, met, mask)
        groups += [united] if united else []
    return sorted(groups)


def _meeting(masks: Sequence[int], group: int) -> tuple[int, ...]:
    return tuple(index for index, mask in enumerate(masks) if mask & group)


def _bits(mask: int) -> tuple[int, ...]:
    return tuple(index for index in range(mask.bit_length()) if mask >> index & 1)


def _kills(results: Sequence[torch.Tensor]) -> list[int]:
    """For each result a mask of those that need a node which its backward frees."""
    if len(results) == 1:
        return [1]
    kills = [0] * len(results)
    for node, mask in _reached(results).items():
        if _saves(node.__class__):
            for index in _bits(mask):
                kills[index] |= mask
    return kills


def _reached(results: Sequence[torch.Tensor]) -> dict[Any, int]:
    """For each autograd node behind the results a mask of those that it is behind."""
    reached: dict[Any, int] = {}
    for index, result in enumerate(results):
        if result.grad_fn is not None:
            reached[result.grad_fn] = reached.get(result.grad_fn, 0) | 1 << index
    for node in sorted(_nodes(reached), key=lambda node: node._sequence_nr(), reverse=True):
        mask = reached.get(node, 0)  # 0: one that gathers a leaf's gradient has the highest number, and leads nowhere
        for following in _next(node):
            reached[following] = reached.get(following, 0) | mask
    return reached


def _nodes(starts: Iterable[Any]) -> set[Any]:
    found, stack = set(starts), list(starts)
    while stack:
        new = [node for node in _next(stack.pop()) if node not in found]
        found.update(new)
        stack += new
    return found


def _next(node: Any) -> Iterator[Any]:
    return (following for following, _ in node.next_functions if following is not None)


@functools.cache
def _saves(kind: type) -> bool:
    """Whether autograd nodes of this kind save tensors, or hold a node that may."""
    return kind.__name__ == "CopySlices" or any(name.startswith("_raw_saved_") for name in dir(kind))


def _uses(saved: Sequence[Op], tangents: Sequence[Op], ops: Iterable[Op]) -> list[int]:
    """For each saved op a mask of the tangents whose gradients are computed from it."""
    read: dict[Op, int] = {op: 1 << index for index, op in enumerate(saved)}  # saved ops, by bit
    by: dict[Op, dict[int, int]] = {op: {index: 0} for index, op in enumerate(tangents)}  # the same for each tangent
    for op in ops:
        if op in read:
            continue
        given = list(dict.fromkeys(operands(op)))
        read[op] = everything = functools.reduce(int.__or__, (read.get(operand, 0) for operand in given), 0)
        known = [by[operand] for operand in given if operand in by]
        if not known:
            continue
        apart = len(given) == 1 or (op.target in _SUMS and len(known) == len(given))
        mine: dict[int, int] = {}
        for parts in known:
            for tangent, mask in parts.items():
                mine[tangent] = mine.get(tangent, 0) | (mask if apart else everything)
        by[op] = mine
    total = [0] * len(tangents)
    for parts in by.values():
        for tangent, mask in parts.items():
            total[tangent] |= mask
    uses = [0] * len(saved)
    for tangent, mask in enumerate(total):
        for index in _bits(mask):
            uses[index] |= 1 << tangent
    return uses
