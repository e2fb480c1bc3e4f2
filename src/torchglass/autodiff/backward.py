"""The backward side of a partition, and the same made anew for gradients that arrive otherwise than was assumed.

Input: the ops to save, the tangents, the ops of backward and the gradients. Output: the fields of a ``Partition``.

Backward is traced with the forward, before anybody knows which outputs the loss will use and what layout their
gradients have: all of them, as dense as the outputs. ``Again`` has autograd differentiate the same forward once more,
for what did arrive. ``return loss, logits`` of which only the loss is used gives a backward without the logits, and
``y.sum().backward()`` one that reads a single number where ``y`` has a million. What is saved is settled by then, so
the new ops are merged with those of the forward and read the same tensors.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..records.partition import Gradient, Partition, TangentLayout
from ..records.symbolic_ints import SizesUnfit
from ..records.tensor_spec import TensorSpec
from . import min_cut, names
from .cleanup import FOLD, MERGE, Cleanup, Wants
from .graphs import build
from .joint import Trace, trace_backward
from .ops import CALL, TANGENT, Op, operands, view_root

log = logging.getLogger("torchglass")


def fields(
    saved: Sequence[Op],
    copies: Mapping[Op, Op],
    tangents: Sequence[Op],
    ops: Sequence[Op],
    gradients: Sequence[tuple[int, Op]],
    traced: Sequence[Op | None],
) -> dict[str, Any]:
    """``backward``, ``tangents`` and ``gradients`` of a partition. ``copies`` stand for inputs that are written to,
    ``traced`` are the inputs' gradients before the clean-up.
    """
    ready = _ready(ops, gradients)
    ops, gradients = _apart(ops, gradients, saved, traced)
    reads = _tangents_read(ops, tangents)
    none: frozenset[int] = frozenset()
    return {
        "backward": build("backward", [*saved, *tangents], ops, [op for _, op in gradients], copies),
        "tangents": tuple(_spec(op) for op in tangents),
        "gradients": tuple(Gradient(index, reads.get(op, none), ready[index]) for index, op in gradients),
    }


def _apart(
    ops: Sequence[Op], gradients: Sequence[tuple[int, Op]], saved: Sequence[Op], traced: Sequence[Op | None]
) -> tuple[Sequence[Op], Sequence[tuple[int, Op]]]:
    """Gradients that share no memory with each other or with what was saved: copies for those that would.

    Autograd keeps a gradient that nobody else holds as the ``.grad`` of its parameter, and programs write to that: the
    biases of two layers that are added have equal gradients, and clipping would scale the one tensor twice. A tensor
    that it hands to two inputs itself (``a + b``) stays one: it makes the copy, and only for parameters.
    """
    taken = set(map(view_root, saved))
    copies: list[Op] = []
    apart = []
    handed: dict[Op | None, Op] = {}
    for index, op in gradients:
        root = view_root(op)
        if traced[index] in handed:
            op = handed[traced[index]]
        elif root in taken:
            with torch.no_grad():
                copy = Op(CALL, torch.ops.aten.clone.default, (op,), None, op.val.clone())
            copy.name, copy.captured, copy.origin = f"{op.name}_copy_{len(copies)}", op.captured, op.origin
            copy.backward = True
            copies.append(copy)
            op = copy
        taken.add(root)
        handed[traced[index]] = op
        apart.append((index, op))
    return [*ops, *copies], apart


@dataclass
class Again:
    """Makes the backward for other gradients. ``kept`` are the ops that are saved, ``stand_ins`` the ops that have the
    values of others since the clean-up, ``forward_only`` what backward must not compute again.
    """

    trace: Trace
    results: list[torch.Tensor]
    known: list[Op]
    own: set[Op]
    stand_ins: dict[Op, Op]
    kept: list[Op]
    saved: list[Op]
    copies: dict[Op, Op]
    forward_only: set[Op]
    wants: Wants
    partition: Partition | None = None

    def __call__(self, layout: TangentLayout) -> Partition | None:
        """The partition for these gradients. None where autograd's formulas need more than is saved."""
        assert self.partition is not None
        try:
            traced = trace_backward(self.trace, self.results, layout)
        except (SizesUnfit, Exception) as error:
            log.debug("backward cannot be traced for gradients %s", layout, exc_info=error)
            return None
        found = [(i, op) for i, op in enumerate(traced.gradients) if op is not None]
        cleanup = Cleanup(traced.ops, (), lambda name: name == MERGE or (name != FOLD and self.wants(name)))
        cleanup.own = self.own
        cleanup.remember(self.known, self.stand_ins)
        ops = cleanup.run([op for _, op in found])
        gradients = [(i, cleanup.replaced(op)) for i, op in found]
        names.assign([*self.known, *ops], [(str(self.trace.inputs[i].op.target), op) for i, op in gradients])
        order = min_cut.order_backward([*self.known, *ops], self.kept, [op for _, op in gradients])
        if not self.forward_only.isdisjoint(order):
            return None
        made = fields(self.saved, self.copies, traced.tangents, order, gradients, traced.gradients)
        return replace(self.partition, **made)


def _ready(ops: Sequence[Op], gradients: Sequence[tuple[int, Op]]) -> dict[int, int]:
    """For each input where its gradient is there: with the others of its call in the program, as in eager."""
    order = {op: place for place, op in enumerate(ops)}
    places = {index: order.get(op, -1) for index, op in gradients}
    calls: dict[str, int] = {}
    for index, op in gradients:
        calls[op.captured] = max(places[index], calls.get(op.captured, -1))
    return {index: calls[op.captured] if op.captured else places[index] for index, op in gradients}


def _tangents_read(ops: Sequence[Op], tangents: Sequence[Op]) -> dict[Op, frozenset[int]]:
    """For each op, the positions of the tangents it depends on."""
    none: frozenset[int] = frozenset()
    reads = {op: frozenset((index,)) for index, op in enumerate(tangents)}
    for op in ops:
        if op.kind is not TANGENT:
            reads[op] = none.union(*(reads.get(operand, none) for operand in operands(op)))
    return reads


def _spec(op: Op) -> TensorSpec:
    return TensorSpec(tuple(op.val.shape), op.val.stride(), op.val.dtype, op.val.device)
