"""Named passes that make a trace smaller without changing what it computes.

Input: a trace's ops and the ops that must keep a value of their own. Output: the ops that remain, where each of the old
ones went, and what each pass changed. ``t(t(w))`` becomes ``w``; two ``t(w)`` become one; ``expand`` to the same shape
disappears, and so does a cast to a wider type and back.

A pass is a *look* at one op whose operands are final already: it answers the op that has the value, or the op itself.
All looks run in one sweep, in the order of ``LOOKS``. ``options={"passes": {name: False}}`` leaves one out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from ..records.symbolic_ints import float_of, has_symbols, size_of
from .fold import fold
from .ops import CALL, CONSTANT, Op, is_random, is_view, must_stay, operands, substitute, view_root

aten = torch.ops.aten
Look = Callable[["Cleanup", Op], Op]
Changes = Sequence[tuple[Op, Op | None]]
"""What a pass did: an op, and the op that has its value now; None for an op that nobody read."""

LOOKS: dict[str, Look] = {}
FOLD, MERGE, UNREAD = "fold_constants", "merge_equal", "drop_unread"
Wants = Callable[[str], bool]


def look(name: str) -> Callable[[Look], Look]:
    """Enter a pass of the sweep."""

    def enter(function: Look) -> Look:
        if name in LOOKS or name in (FOLD, UNREAD):
            raise AssertionError(f"the pass {name!r} is defined twice")
        LOOKS[name] = function
        return function

    return enter


class Cleanup:
    """One sweep over a trace in execution order, then one against it. ``own`` are ops whose memory the user gets."""

    def __init__(self, ops: list[Op], own: Iterable[Op], wants: Wants) -> None:
        self.ops = ops
        self.own = {view_root(op) for op in own}
        self.wants = wants
        self.done: list[tuple[str, int, int, Changes]] = []  # pass, ops before, ops after, changes
        self.now: dict[Op, Op] = {}
        self.calls: dict[Any, Op] = {}
        self.views: dict[Op, dict[Any, Op]] = {}  # root -> layout -> the view of that layout

    def replaced(self, op: Op) -> Op:
        """The op that stands for ``op`` after the sweep."""
        return self.now.get(op, op)

    def remember(self, ops: Iterable[Op], stand_ins: Mapping[Op, Op]) -> None:
        """Ops of an earlier sweep stay as they are, and equal calls that follow become them. ``stand_ins`` have the
        values of other ops since then.
        """
        self.now.update(stand_ins)
        for op in ops:
            if op.kind is CALL and op not in self.own and not must_stay(op):
                _equal_call(self, op)

    def run(self, ends: Iterable[Op]) -> list[Op]:
        """All passes that are wanted. ``ends`` are the ops that the graphs return, as they were before."""
        if self.wants(FOLD):
            self.ops, folded = fold(self.ops, self.own)
            self.now.update(folded)
            self.done.append((FOLD, len(self.ops), len(self.ops), folded))
        ops = self._sweep()
        if self.wants(UNREAD):
            before = len(ops)
            ops, dropped = drop_unread(ops, map(self.replaced, ends))
            self.done.append((UNREAD, before, len(ops), dropped))
        return ops

    def _sweep(self) -> list[Op]:
        """Drop calls whose value another op has already."""
        kept: list[Op] = []
        swap = self.replaced
        looks: list[tuple[str, Look, list[tuple[Op, Op]]]] = [(n, f, []) for n, f in LOOKS.items() if self.wants(n)]
        for op in self.ops:
            if op.kind is CALL:
                op.args = substitute(op.args, swap)
                if op.kwargs:
                    op.kwargs = {name: substitute(arg, swap) for name, arg in op.kwargs.items()}
                if op not in self.own and not must_stay(op):
                    twin = self._twin(op, looks)
                    if twin is not op:
                        self.now[op] = twin
                        continue
            kept.append(op)
        count = len(self.ops)
        for name, _, changes in looks:
            self.done.append((name, count, count - len(changes), changes))
            count -= len(changes)
        return kept

    def _twin(self, op: Op, looks: list[tuple[str, Look, list[tuple[Op, Op]]]]) -> Op:
        for _, find, changes in looks:
            twin = find(self, op)
            if twin is not op:
                changes.append((op, twin))
                return twin
        return op


# --- the passes -------------------------------------------------------------------------------------------------------
@look("drop_noop_views")
def _same_layout(cleanup: Cleanup, op: Op) -> Op:
    """A view that shows all of its root as the root itself lies."""
    if not is_view(op) or not isinstance(op.val, torch.Tensor):
        return op
    root = view_root(op)
    return root if root.val.__class__ is op.val.__class__ and _layout(root.val) == _layout(op.val) else op


@look("drop_noop_casts")
def _cast_back(cleanup: Cleanup, op: Op) -> Op:
    """A cast to the type the tensor has, or to a wider type and back; a copy that nobody can tell from its source."""
    if op.target not in (aten._to_copy.default, aten.clone.default):
        return op
    source = op.args[0]
    if not isinstance(source, Op):
        return op  # a number, which operators take for a tensor
    if view_root(source) in cleanup.own:
        return op  # the user may write to it before backward, and made a copy for that
    if _same_place(source, op):
        return source
    if op.target is aten._to_copy.default and source.kind is CALL and source.target is aten._to_copy.default:
        narrow = source.args[0]
        if _same_place(narrow, op) and _holds(source.val.dtype, narrow.val.dtype):
            return narrow
    return op


@look(MERGE)
def _equal_call(cleanup: Cleanup, op: Op) -> Op:
    """The same call with the same operands, or a view of the same layout of the same memory. What is to be computed
    again in backward does not stand for what is not.
    """
    if is_random(op):
        return op
    if is_view(op) and isinstance(op.val, torch.Tensor):
        return cleanup.views.setdefault(view_root(op), {}).setdefault(_layout(op.val), op)
    try:
        return cleanup.calls.setdefault(_key(op), op)
    except TypeError:  # an argument that cannot be hashed: a generator, a list of symbols
        return op


def drop_unread(ops: list[Op], ends: Iterable[Op]) -> tuple[list[Op], list[tuple[Op, None]]]:
    """The ops that ``ends`` depend on, inputs, and calls with effects; and those that were dropped."""
    live = set(ends)
    kept, dropped = [], []
    for op in reversed(ops):
        if op in live or (op.kind is not CALL and op.kind is not CONSTANT) or must_stay(op):
            live.update(operands(op))
            kept.append(op)
        else:
            dropped.append((op, None))
    return kept[::-1], dropped[::-1]


def _same_place(one: Op, other: Op) -> bool:
    """Whether two values have type, device and layout in common.

    Views are left alone, since they keep more alive, and so are inputs: the user may write to them before backward.
    """
    if is_view(one) or one.kind is not CALL or not isinstance(one.val, torch.Tensor):
        return False
    return one.val.device == other.val.device and _layout(one.val) == _layout(other.val)


def _holds(wide: torch.dtype, narrow: torch.dtype) -> bool:
    """Whether ``wide`` represents every value of ``narrow``."""
    if wide.is_floating_point and narrow.is_floating_point:
        big, small = torch.finfo(wide), torch.finfo(narrow)
        return big.eps <= small.eps and big.max >= small.max and big.tiny <= small.tiny
    return False


def _layout(value: torch.Tensor) -> Any:
    flags = (value.is_conj(), value.is_neg()) if value.is_complex() or value.is_neg() else None
    layout = (tuple(value.shape), value.stride(), value.storage_offset())
    return (*(map(_frozen, layout) if has_symbols(value) else layout), value.dtype, flags)


def _key(op: Op) -> Any:
    return (op.target, op.region, _frozen(op.args), tuple((name, _frozen(arg)) for name, arg in op.kwargs.items()))


def _frozen(arg: Any) -> Any:
    """An argument as a dictionary key; 1, 1.0 and True are different keys, and so are 0.0 and -0.0."""
    if isinstance(arg, (list, tuple)):
        return tuple(map(_frozen, arg))
    if type(arg) is float:
        return arg.hex()
    if type(arg) is torch.SymInt:
        return size_of(arg)
    if type(arg) is torch.SymFloat:
        return float_of(arg)
    return arg if type(arg) is Op else (type(arg), arg)
