"""What each output of the captured graph is: a tensor of its own, an input, or a view to be made again at run time.

Input: the trace after the forward. Output: ``Ends``: the tensors that the pure graph must return, which of them are to
be differentiated, and one ``Output`` record for each user output. For ``y = x + 1; return x, y, y[0], x.t()``::

    results = [y]
    outputs = InputItself(0), Computed(0), ViewOf(output 0, select(0, 0)), ViewOf(input 0, t())
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from ..records.partition import (
    Computed,
    Constant,
    InputItself,
    Mutation,
    Output,
    SameAs,
    StorageAlias,
    TangentLayout,
    TensorRef,
    ViewOf,
    ViewStep,
)
from ..torch_compat import functional_written, unwrap_functional, wrap_functional
from .joint import Trace
from .ops import CALL, HIDDEN_VIEWS, Op, is_view, view_root
from .recorder import AutodiffError, Recorder

aten = torch.ops.aten


@dataclass
class Ends:
    """The forward's ends. ``results`` are the ops it returns, mutated inputs first; ``wrappers`` their functional
    tensors.
    """

    results: list[Op] = field(default_factory=list)
    wrappers: list[torch.Tensor] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    mutations: list[Mutation] = field(default_factory=list)
    layout: TangentLayout | None = None  # of the gradients of ``differentiable``; None: as dense as the results

    @property
    def positions(self) -> tuple[int, ...]:
        """The results that carry a gradient."""
        return tuple(index for index, wrapper in enumerate(self.wrappers) if tracked(wrapper))

    @property
    def differentiable(self) -> list[torch.Tensor]:
        return [self.wrappers[index] for index in self.positions]


def describe(trace: Trace, recorder: Recorder) -> Ends:
    """Look at a traced forward; see the module's docstring. Raises AutodiffError for outputs that cannot be
    described.
    """
    describer = _Describer(trace, recorder)
    for index, entry in enumerate(trace.inputs):
        if entry.final is not None:
            wrapper = entry.wrapper
            if tracked(wrapper) and not entry.tracked:
                wrapper = wrapper.detach()
            position = describer.add_result(wrapper, describer.own(entry.final, _memory(entry.wrapper)))
            describer.ends.mutations.append(Mutation(index, position, entry.tracked, entry.bumps_version))
    for value in trace.outputs:
        describer.ends.outputs.append(describer.output(value))
    return describer.ends


class _Describer:
    def __init__(self, trace: Trace, recorder: Recorder) -> None:
        self.ends = Ends()
        self.recorder = recorder
        self.trace = trace
        self.inputs = {id(entry.wrapper): index for index, entry in enumerate(trace.inputs)}
        self.input_memory = {_memory(entry.wrapper): index for index, entry in enumerate(trace.inputs)}
        self.seen: dict[int, int] = {}  # id of an output -> its position
        self.bases: dict[int, int] = {}  # id of a functional tensor -> result that holds it
        self.roots: dict[Op, int] = {}  # op that made a result's memory -> the functional memory it stands for
        self.returned = {self._op(v): v for v in trace.outputs if isinstance(v, torch.Tensor)}
        self.returned |= {self._op(entry.wrapper): entry.wrapper for entry in trace.inputs if entry.final is None}
        self.shared = self._shared_memory()

    def _shared_memory(self) -> dict[int, torch.Tensor]:
        """For memory that several outputs show: the tensor to return once, whose views the others are."""
        groups: dict[int, dict[int, torch.Tensor]] = {}
        for value in self.trace.outputs:
            if isinstance(value, torch.Tensor) and self._memory(value) not in self.input_memory:
                groups.setdefault(self._memory(value), {})[id(value)] = value
        shared = {}
        for memory, members in groups.items():
            if len(members) > 1:
                bases = [_base(member) for member in members.values() if _memory(member) == memory]
                shared[memory] = next(filter(tracked, bases), self._untracked_base(bases))
        return shared

    def _untracked_base(self, members: list[torch.Tensor]) -> torch.Tensor:
        """What all were made from by views. Autograd tells no base of whole numbers; views of them in two dtypes cannot
        be made of each other.
        """
        ops = [self._op(member) for member in members]
        root = view_root(ops[0])
        if root in ops:
            return members[ops.index(root)]
        alike = root.kind is not CALL or all(op.val.dtype == root.val.dtype for op in ops)
        return members[0] if alike else wrap_functional(root.val)

    def _memory(self, wrapper: torch.Tensor) -> int:
        """The memory an output shows. Parts of ``unsafe_split`` have memory of their own to autograd and
        functionalization, and so in the graph; outside it they show an input's or another output's.
        """
        op = self._op(wrapper)
        base = self.returned.get(view_root(op))
        if base is None or functional_written(wrapper) or not _is_parted(_steps(self._op(base), op)):
            return _memory(wrapper)
        return _memory(base)

    def own(self, op: Op, memory: int) -> Op:
        """``op``, or a copy of it where its value is an input's or another result's: results never share memory."""
        root = view_root(op)
        if root.kind is CALL and self.roots.setdefault(root, memory) == memory:
            return op
        copy = aten.clone.default(root.val)
        for step in _steps(root, op):
            copy = step.apply(copy)
        return self.recorder.op_of(copy)

    def add_result(self, wrapper: torch.Tensor, op: Op | None = None) -> int:
        op = op or self.own(self._op(wrapper), _memory(wrapper))
        self.ends.results.append(op)
        self.ends.wrappers.append(wrapper)
        return len(self.ends.results) - 1

    def output(self, value: Any) -> Output:
        """The record of one user output."""
        if not isinstance(value, torch.Tensor):
            return Constant(value)
        if id(value) in self.inputs:
            return InputItself(self.inputs[id(value)])
        position = len(self.ends.outputs)
        first = self.seen.setdefault(id(value), position)
        if first != position:
            return SameAs(first)
        memory = self._memory(value)
        if memory in self.input_memory:
            return self._view_of_input(self.input_memory[memory], value)
        if memory in self.shared:
            return self._view_of_result(self.shared[memory], value)
        return self._computed(self.add_result(value), value)

    def _computed(self, result: int, value: torch.Tensor, shown: StorageAlias | None = None) -> Computed:
        return Computed(result, value.requires_grad, _is_leaf(value), shown)

    def _view_of_input(self, index: int, value: torch.Tensor) -> Output:
        return self._view_of(TensorRef("input", index), self.trace.inputs[index].wrapper, value)

    def _view_of_result(self, base: torch.Tensor, value: torch.Tensor) -> Output:
        if id(base) not in self.bases:
            self.bases[id(base)] = self.add_result(base)
        result = self.bases[id(base)]
        if base is value:
            return self._computed(result, value)
        return self._view_of(TensorRef("output", result), base, value)

    def _view_of(self, place: TensorRef, base: torch.Tensor, value: torch.Tensor) -> Output:
        """A view made again, or, where eager gave it gradients that a view of ``base`` would not have, a result whose
        memory is ``base``'s.
        """
        steps = _steps(self._op(base), self._op(value))
        if _has_history_of_view(base, value, steps):
            if value._base is None and not tracked(value) and not _is_parted(steps):  # what ``detach()`` gives
                steps = (*steps, ViewStep(torch.ops.aten.detach.default))
            return ViewOf(place, steps, base.requires_grad and not value.requires_grad, _is_leaf(value))
        return self._computed(self.add_result(value), value, StorageAlias(place, steps))

    def _op(self, wrapper: torch.Tensor) -> Op:
        return self.recorder.op_of(unwrap_functional(wrapper))


def _memory(wrapper: torch.Tensor) -> int:
    """Identity of the memory a functional tensor shows: views share it."""
    return wrapper.untyped_storage()._cdata


def _base(wrapper: torch.Tensor) -> torch.Tensor:
    base = wrapper._base
    return wrapper if base is None else base


def tracked(value: torch.Tensor) -> bool:
    """Whether gradients flow from a tensor of the trace to others."""
    return value.grad_fn is not None


def _is_leaf(value: torch.Tensor) -> bool:
    """Views made under ``no_grad`` say that they require a gradient, and have no history."""
    return value.requires_grad and value.grad_fn is None


def _has_history_of_view(base: torch.Tensor, value: torch.Tensor, steps: tuple[ViewStep, ...]) -> bool:
    """Whether ``value``'s gradients are those of a view made again from ``base``.

    They are not after ``y = x.detach(); y.mul_(w)``, where y depends on w while x, whose memory it is, does not; nor
    where ``no_grad`` around one of several views cuts the way back to ``x``; nor where the user's
    ``torch.autograd.Function`` returned its argument or a view of it.
    """
    if not tracked(value):
        return True
    end, node = base.grad_fn, value.grad_fn
    while node is not None and node is not end:
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            return False
        node = node.next_functions[0][0] if node.next_functions else None
    return node is not None and (_base(value) is _base(base) or _is_parted(steps))


def _steps(base: Op, view: Op) -> tuple[ViewStep, ...]:
    """The view operations that lead from one op to another; a strided view where there is no such path."""
    steps: list[ViewStep] = []
    op = view
    while op is not base and is_view(op):
        item = None
        if op.is_item:
            op, item = op.args[0], op.args[1]
        steps.append(ViewStep(op.target, tuple(op.args[1:]), tuple(op.kwargs.items()), item))
        op = op.args[0]
    if op is base:
        return tuple(reversed(steps))
    base_value, value = base.val, view.val
    if base_value.dtype != value.dtype or base_value.is_conj() != value.is_conj():
        raise AutodiffError("an output is a view of another tensor in a way that cannot be made again")
    offset = value.storage_offset() - base_value.storage_offset()
    return (ViewStep(strided_within, (tuple(value.shape), tuple(value.stride()), offset)),)


def _is_parted(steps: tuple[ViewStep, ...]) -> bool:
    """Whether a view is none to autograd."""
    return any(step.target in HIDDEN_VIEWS for step in steps)


def strided_within(base: torch.Tensor, shape: Any, strides: Any, offset: int) -> torch.Tensor:
    """The view of ``base`` with this layout; ``offset`` counts from where ``base`` begins."""
    return base.as_strided(shape, strides, base.storage_offset() + offset)
