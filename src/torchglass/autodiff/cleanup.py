"""Makes a trace smaller without changing what it computes: views that lead back, equal calls, calls nobody reads.

Input: a trace's ops and the ops that must keep a value of their own. Output: the ops that remain, and where each of the
old ones went. ``t(t(w))`` becomes ``w``; two ``t(w)`` become one; ``expand`` to the same shape disappears.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from .ops import CALL, CONSTANT, Op, is_random, is_view, must_stay, operands, substitute, view_root


class Cleanup:
    """One pass over a trace in execution order, then one against it. ``own`` are ops whose memory the user gets."""

    def __init__(self, ops: list[Op], own: Iterable[Op]) -> None:
        self.ops = ops
        self.own = {view_root(op) for op in own}
        self.now: dict[Op, Op] = {}
        self.calls: dict[Any, Op] = {}
        self.views: dict[Op, dict[Any, Op]] = {}  # root -> layout -> the view of that layout

    def replaced(self, op: Op) -> Op:
        """The op that stands for ``op`` after the pass."""
        return self.now.get(op, op)

    def merge(self) -> list[Op]:
        """Drop calls whose value another op has already."""
        kept: list[Op] = []
        swap = self.replaced
        for op in self.ops:
            if op.kind is CALL:
                op.args = substitute(op.args, swap)
                if op.kwargs:
                    op.kwargs = {name: substitute(arg, swap) for name, arg in op.kwargs.items()}
                twin = self._twin(op)
                if twin is not op:
                    self.now[op] = twin
                    continue
            kept.append(op)
        return kept

    def _twin(self, op: Op) -> Op:
        if op in self.own or is_random(op) or must_stay(op):
            return op
        if is_view(op) and isinstance(op.val, torch.Tensor):
            root = view_root(op)
            layouts = self.views.setdefault(root, {_layout(root.val): root})
            return layouts.setdefault(_layout(op.val), op)
        try:
            return self.calls.setdefault(_key(op), op)
        except TypeError:  # an argument that cannot be hashed: a generator, a list of symbols
            return op


def drop_unread(ops: list[Op], ends: Iterable[Op]) -> list[Op]:
    """The ops that ``ends`` depend on, inputs, and calls with effects."""
    live = set(ends)
    kept = []
    for op in reversed(ops):
        if op in live or (op.kind is not CALL and op.kind is not CONSTANT) or must_stay(op):
            live.update(operands(op))
            kept.append(op)
    kept.reverse()
    return kept


def _layout(value: torch.Tensor) -> Any:
    flags = (value.is_conj(), value.is_neg()) if value.is_complex() or value.is_neg() else None
    return (tuple(value.shape), value.stride(), value.storage_offset(), value.dtype, flags)


def _key(op: Op) -> Any:
    return (op.target, _frozen(op.args), tuple((name, _frozen(arg)) for name, arg in op.kwargs.items()))


def _frozen(arg: Any) -> Any:
    """An argument as a dictionary key; 1, 1.0 and True are different keys, and so are 0.0 and -0.0."""
    if isinstance(arg, (list, tuple)):
        return tuple(map(_frozen, arg))
    if type(arg) is float:
        return arg.hex()
    return arg if type(arg) is Op else (type(arg), arg)
