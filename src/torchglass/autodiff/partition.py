"""From a captured graph to a ``Partition``: trace, clean, cut, name, build the graphs.

Input: a ``torch.fx.GraphModule`` at torch level, its example inputs (fake or real tensors), the options. Output: a
``Partition``. ``trace_inference`` never differentiates; ``trace_training`` of a graph whose outputs need no gradient
gives an inference partition too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx

from ..records.partition import BackwardLiveness, Part, Partition, PassRecord, SavedTensor, TensorRef, view_steps
from ..records.size_places import SizePlaces, size_places, symbols_of
from ..records.symbolic_ints import SizesUnfit
from ..torch_compat import ambient_autocast, fake_like
from . import budget, min_cut, names, pack_masks
from .aliases import Ends, describe
from .backward import Again, fields
from .backward_liveness import backward_liveness, parts
from .cleanup import Cleanup, Wants
from .graphs import build
from .joint import Trace, trace
from .ops import CALL, INPUT, Op, bytes_of, makes_sizes, operands, view_root
from .recompute import NEVER, family


def trace_inference(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], options: Any = None) -> Partition:
    """The captured graph as one pure ATen graph. Raises AutodiffError where it cannot be expressed.

    Under inference mode too it is traced outside of it: there composite operators would come whole to functionalization
    and the recorder, which know none that returns its argument itself, as ``dropout`` does in evaluation.
    """
    if not torch.is_inference_mode_enabled():
        return _assemble(gm, example_inputs, False, options)
    with torch.inference_mode(False), torch.no_grad():
        return _assemble(gm, example_inputs, False, options)


def trace_training(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], options: Any = None) -> Partition:
    """The captured graph as a forward and a backward ATen graph, with what is saved between them.

    Inputs that require a gradient are differentiated by. Raises AutodiffError where the graph cannot be expressed.
    """
    return _assemble(gm, example_inputs, True, options)


@dataclass
class _Draft:
    """A cleaned trace: what both kinds of partition start from."""

    trace: Trace
    cleanup: Cleanup
    ops: list[Op]
    inputs: list[Op]
    results: list[Op]
    tangents: list[Op]
    gradients: list[tuple[int, Op]]  # input position, op
    written: set[Op]
    packed: pack_masks.PackedMasks
    passes: list[PassRecord]


def _assemble(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], training: bool, options: Any) -> Partition:
    autocast = ambient_autocast()
    traced, ends = trace(gm, example_inputs, training, describe)
    wants = options.wants if options is not None else _every_pass
    differentiates = training and bool(ends.positions)
    draft = _clean(traced, ends, wants, pack_masks.NAME if differentiates and wants(pack_masks.NAME) else "")
    if not differentiates:
        return _inference(draft, ends, autocast)
    problem = min_cut.Problem(draft.ops, draft.written, draft.results, [op for _, op in draft.gradients])
    choice = min_cut.choose(problem)
    share = options.get("memory_budget") if options is not None else 1.0
    if share < 1.0:
        choice = budget.within(problem, choice, share)
    _save_sizes(draft, choice)
    _unpack(draft, choice)
    again = _again(draft, ends, choice, problem, wants)
    return _training(draft, ends, choice, autocast, again)


def _every_pass(name: str) -> bool:
    return True


def _clean(traced: Trace, ends: Ends, wants: Wants, pack: str) -> _Draft:
    cleanup = Cleanup(traced.ops, ends.results, wants)
    found = [(i, op) for i, op in enumerate(traced.gradients) if op is not None]
    ops = cleanup.run([*ends.results, *(op for _, op in found)])
    gradients = [(i, cleanup.replaced(op)) for i, op in found]
    results = [cleanup.replaced(op) for op in ends.results]
    results += _telling_views(ops, [entry.op for entry in traced.inputs], ends)
    packed: pack_masks.PackedMasks = {}
    if pack:
        ops, packed = pack_masks.pack(ops, [*results, *(op for _, op in gradients)])
    inputs = [entry.op for entry in traced.inputs]
    names.assign(ops, [(str(inputs[i].target), op) for i, op in gradients])
    return _Draft(
        trace=traced,
        cleanup=cleanup,
        ops=ops,
        inputs=inputs,
        results=results,
        tangents=traced.tangents,
        gradients=gradients,
        written={traced.inputs[mutation.input].op for mutation in ends.mutations},
        packed=packed,
        passes=[PassRecord(n, before, after, tuple(map(_change, done))) for n, before, after, done in cleanup.done],
    )


def _telling_views(ops: Sequence[Op], inputs: Sequence[Op], ends: Ends) -> list[Op]:
    """What tells the sizes of views that are made of inputs when the graph has run, where inputs do not."""
    wanted = symbols_of(step.args for output in ends.outputs for step in view_steps(output))
    wanted -= size_places([op.val for op in inputs], wanted).keys()
    found: list[Op] = []
    for op in ops if wanted else ():
        told = size_places([op.val], wanted).keys()
        found += [op] if told else []
        wanted -= told
    return found


def _change(change: tuple[Op, Op | None]) -> str:
    op, now = change
    what = f"{op.target} of {op.captured or 'the graph'}"
    return f"{what} is not read" if now is None else f"{what} is {now.name}"


def _save_sizes(draft: _Draft, choice: min_cut.Choice) -> None:
    """Keep what tells the sizes that change, where nothing else does that is kept: tensors of the same sizes as inputs,
    and as results of which data decide the size.
    """
    made = [op for op in choice.forward if isinstance(op.val, torch.Tensor) and makes_sizes(op)]
    wanted = symbols_of(op.val for op in draft.inputs)
    read = symbols_of((op.val, op.args) for op in (*choice.backward, *draft.tangents))
    wanted |= read & symbols_of(op.val for op in made)
    if not wanted:
        return
    told = set(size_places([op.val for op in choice.saved], wanted))
    for op in (*sorted(draft.inputs, key=bytes_of), *made):
        found = size_places([op.val], wanted - told).keys()
        if found:
            shape = _same_shape(op)
            for ops in (draft.ops, choice.forward, choice.saved):
                ops.append(shape)
            told = told | found
    if wanted - told:
        raise SizesUnfit(f"nothing that is kept for backward tells the sizes {', '.join(sorted(wanted - told))}")


def _same_shape(op: Op) -> Op:
    """A tensor of one element and the sizes of another one, which the program may write to or free meanwhile."""
    sizes, strides = tuple(op.val.shape), (0,) * op.val.dim()
    shape = Op(CALL, torch.ops.aten.new_empty_strided.default, (op, sizes, strides), {})
    shape.val = fake_like(op.val.fake_mode, op.val, sizes, strides)
    shape.name, shape.captured, shape.origin = f"{op.name}{SHAPE}", op.captured, op.origin
    return shape


SHAPE = "_shape"


def _unpack(draft: _Draft, choice: min_cut.Choice) -> None:
    """Take out the narrow masks that backward does not keep."""
    if not draft.packed:
        return
    kept = {mask: draw for draw, (mask, _) in draft.packed.items() if mask in choice.saved}
    before = len(draft.ops)
    draft.ops = pack_masks.unpack(draft.ops, draft.packed, choice.saved)
    choice.forward = pack_masks.unpack(choice.forward, draft.packed, choice.saved)
    choice.backward = pack_masks.unpack(choice.backward, draft.packed, choice.saved)
    changes = tuple(f"{draw.name} is kept as {mask.name}" for mask, draw in kept.items())
    draft.passes.append(PassRecord(pack_masks.NAME, before - 2 * len(draft.packed), len(draft.ops), changes))


def _again(draft: _Draft, ends: Ends, choice: min_cut.Choice, problem: min_cut.Problem, wants: Wants) -> Again:
    """What is to be known to differentiate the same forward once more."""
    wide = {draw: pair[1] for draw, pair in draft.packed.items() if pair[0] in choice.saved}
    stand_ins = {op: wide.get(twin, twin) for op, twin in draft.cleanup.now.items() if not op.backward} | wide
    copies = _copies(choice, draft.written)
    known = [op for op in draft.ops if op not in problem.needs_tangent]
    prices = problem.prices()
    return Again(
        trace=draft.trace.inputs_alone(),
        results=ends.differentiable,
        known=known,
        own=draft.cleanup.own,
        stand_ins=stand_ins,
        kept=choice.saved,
        saved=[copies.get(op, op) for op in choice.saved],
        copies=copies,
        forward_only={op for op in known if prices.get(op) == math.inf}.difference(choice.backward),
        wants=wants,
    )


def _inference(draft: _Draft, ends: Ends, autocast: tuple[str, ...]) -> Partition:
    forward = build("forward", draft.inputs, draft.ops, draft.results)
    vals = [op.val for op in draft.inputs]
    return Partition(
        joint=forward,
        forward=forward,
        backward=None,
        saved=(),
        input_names=tuple(op.name for op in draft.inputs),
        outputs=tuple(ends.outputs),
        mutations=tuple(ends.mutations),
        returned=len(draft.results),
        passes=tuple(draft.passes),
        autocast=autocast,
        input_sizes=size_places(vals, symbols_of(vals)),
        result_sizes=_result_sizes(draft),
    )


def _result_sizes(draft: _Draft) -> SizePlaces:
    vals = [op.val for op in draft.results]
    return size_places(vals, symbols_of(vals))


def _training(draft: _Draft, ends: Ends, choice: min_cut.Choice, autocast: tuple[str, ...], again: Again) -> Partition:
    readers = _readers_in_backward(choice)
    readers.update({copy: readers[op] for op, copy in again.copies.items()})
    returned = list(draft.results)
    positions = {op: index for index, op in enumerate(returned)}
    for op in again.saved:
        if op.kind is not INPUT and op not in positions:
            positions[op] = len(returned)
            returned.append(op)
    places = {op: TensorRef("output", index) for op, index in positions.items()}
    places.update({op: TensorRef("input", index) for index, op in enumerate(draft.inputs)})
    gradients = [op for _, op in draft.gradients]
    watched = _watched(draft.results, again.saved)
    liveness = backward_liveness(ends.differentiable, choice.saved, len(watched), draft.tangents, choice.backward)
    kept = [*(places[op] for op in again.saved), *(TensorRef("output", index) for index in watched)]
    ours = {TensorRef("output", index): position for position, index in enumerate(ends.positions)}
    leaves = [draft.trace.inputs[index].leaf for index, _ in draft.gradients]
    vals = [op.val for op in draft.inputs]
    wanted = symbols_of([*vals, *(op.val for op in again.saved)])
    parted = parts(ends.differentiable, liveness, [ours.get(place) for place in kept], leaves)
    saved_sizes = size_places([op.val for op in again.saved], wanted)
    liveness, parted = _telling(liveness, parted, {index for index, _ in saved_sizes.values()})
    partition = Partition(
        joint=build("joint", [*draft.inputs, *draft.tangents], draft.ops, [*draft.results, *gradients]),
        forward=build("forward", draft.inputs, [*choice.forward, *again.copies.values()], returned),
        saved=tuple(_saved(op, places[op], readers[op]) for op in again.saved),
        input_names=tuple(op.name for op in draft.inputs),
        outputs=tuple(ends.outputs),
        mutations=tuple(ends.mutations),
        returned=len(draft.results),
        differentiable=ends.positions,
        watched=watched,
        liveness=liveness,
        parts=parted,
        passes=tuple(draft.passes),
        autocast=autocast,
        input_sizes=size_places(vals, wanted),
        result_sizes=_result_sizes(draft),
        saved_sizes=saved_sizes,
        again=again,
        **fields(again.saved, again.copies, draft.tangents, choice.backward, draft.gradients, draft.trace.gradients),
    )
    again.partition = partition.after_backward()
    return partition


def _telling(
    liveness: BackwardLiveness | None, parted: tuple[Part, ...], telling: set[int]
) -> tuple[BackwardLiveness | None, tuple[Part, ...]]:
    """The same where saved tensors tell sizes, which the backward of any result reads."""
    if liveness is None or not telling:
        return liveness, parted
    every = tuple(range(len(liveness.kills)))
    uses = tuple(every if index in telling else results for index, results in enumerate(liveness.uses))
    with_them = tuple(replace(part, kept=tuple(sorted(telling.union(part.kept)))) for part in parted)
    return replace(liveness, uses=uses), with_them


def _watched(results: list[Op], saved: list[Op]) -> tuple[int, ...]:
    """Results that are views of what is saved, or the other way round: in eager both have one version counter."""
    roots = {view_root(op) for op in saved if op.kind is not INPUT}
    return tuple(i for i, op in enumerate(results) if op not in saved and view_root(op) in roots)


def _copies(choice: min_cut.Choice, written: set[Op]) -> dict[Op, Op]:
    """Backward may need the old value of an input that the runtime overwrites: save a copy made by the forward.

    Returns which copy stands for which input in backward.
    """
    copies: dict[Op, Op] = {}
    for op in choice.saved:
        if op in written:
            copy = Op(CALL, torch.ops.aten.clone.default, (op,), None, op.val)
            copy.name, copy.captured, copy.origin = f"{op.name}_before", op.captured, op.origin
            copies[op] = copy
    return copies


def _saved(op: Op, place: TensorRef, readers: list[str]) -> SavedTensor:
    shown = ", ".join(readers[:3]) + (", ..." if len(readers) > 3 else "")
    if not readers:
        what = f"the sizes of {op.name.removesuffix(SHAPE)}, which change"
        return SavedTensor(op.name, tuple(op.val.shape), op.val.dtype, op.val.element_size(), what, place, op.origin)
    if op.kind is INPUT:
        why = "an input, alive anyway"
    elif family(op).price == NEVER:
        why = family(op).reason
    else:
        why = "keeping it is cheaper than what computing it again would read or cost"
    size = bytes_of(op)
    return SavedTensor(op.name, tuple(op.val.shape), op.val.dtype, size, f"{why}; read by {shown}", place, op.origin)


def _readers_in_backward(choice: min_cut.Choice) -> dict[Op, list[str]]:
    readers: dict[Op, list[str]] = {op: [] for op in choice.saved}
    for op in choice.backward:
        for operand in dict.fromkeys(operands(op)):
            if operand in readers:
                readers[operand].append(op.name)
    return readers
