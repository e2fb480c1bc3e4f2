"""Calls of sub-graphs (``torch.cond`` and its kin) in a trace: one op forward and one in backward.

Input: a captured node's graphs and functional operands. The graphs are traced as the whole graph is, into ATen graphs::

    cond(pred, f, g, (x, y))   ->   cond(pred, f_aten, g_aten, (x, y)), items
    its gradients              ->   cond(pred, f_backward, g_backward, (x, y, tangent)), items

A backward graph computes its forward again. Results of every graph have memory of their own and the same layout
whichever graph runs, so nothing behind the call depends on what happens within.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
import torch.fx

from ..operators.control_flow import while_loop_backward
from ..records import own_operators
from ..records.tensor_spec import TensorSpec, is_continuous
from ..torch_compat import (
    FakeTensor,
    unwrap_functional,
    without_dispatch_modes,
    without_functionalization,
    wrap_functional,
)
from . import joint, names
from .cleanup import Cleanup, drop_unread
from .graphs import build
from .ops import CALL, CONSTANT, TANGENT, Op, is_random, view_root
from .recorder import AutodiffError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .joint import Trace, Tracer
    from .recorder import Recorder

aten = torch.ops.aten
Graph: TypeAlias = torch.fx.GraphModule
Tensors = Sequence[torch.Tensor]
Order: TypeAlias = Callable[[list[Op], list[Op]], list[Op]]
Rule = Callable[..., Sequence[Any]]
RULES: dict[str, Rule] = {}
"""What a call means to a trace, by the name of the function that runs it."""


def rule(function: str) -> Callable[[Rule], Rule]:
    def enter(of: Rule) -> Rule:
        RULES[function] = of
        return of

    return enter


def rule_of(target: Any) -> Rule | None:
    path = own_operators.path_of(target)
    return RULES.get(path) if path is not None else None


# --- graphs -----------------------------------------------------------------------------------------------------------
def dense(value: torch.Tensor) -> TensorSpec:
    """What a new tensor like one is."""
    return TensorSpec(tuple(value.shape), joint.dense_strides(value), value.dtype, value.device)


def stacked(spec: TensorSpec, rows: int) -> TensorSpec:
    """What ``rows`` such values are, one behind the other."""
    whole = torch.empty((rows, *spec.shape), device="meta")
    return replace(spec, shape=tuple(whole.shape), strides=whole.stride())


@dataclass
class SubGraph:
    """A traced graph; ``gradients`` one for each operand."""

    name: str
    ops: list[Op]
    inputs: list[Op]
    results: list[Op]
    layouts: list[TensorSpec]
    tangents: dict[int, Op]  # by the result's position
    gradients: list[Op | None]


@dataclass
class _Ends:
    results: list[Op]
    layouts: list[TensorSpec]
    positions: list[int]
    differentiable: list[torch.Tensor]

    @property
    def layout(self) -> Any:
        return [self.layouts[position].strides for position in self.positions]


def traced(
    name: str, graph: Graph, examples: Tensors, training: bool, layouts: list[TensorSpec] | None = None
) -> SubGraph:
    """A sub-graph on operands like the ``examples``; ``layouts``: those that its results are to have."""

    def ends(trace: Trace, recorder: Recorder) -> _Ends:
        if any(entry.final is not None for entry in trace.inputs):
            raise AutodiffError("a sub-graph writes to an operand")
        values = [unwrap_functional(output) for output in trace.outputs]
        wanted = layouts or [dense(value) for value in values]
        if [(v.shape, v.dtype) for v in values] != [(torch.Size(one.shape), one.dtype) for one in wanted]:
            raise AutodiffError("sub-graphs give different results")
        positions = [n for n, output in enumerate(trace.outputs) if output.grad_fn is not None]
        return _Ends([*map(recorder.op_of, values)], wanted, positions, [trace.outputs[n] for n in positions])

    with _outside():
        trace, found = joint.trace(graph, examples, training, ends)
    if training and any(map(is_random, trace.ops)):
        raise AutodiffError("a sub-graph that draws random numbers is differentiated")  # backward would draw others
    gradients = [op for op in trace.gradients if op is not None]
    cleanup = Cleanup(trace.ops, [], lambda _: True)
    ops = cleanup.run([*found.results, *gradients])
    results = [cleanup.replaced(op) for op in found.results]
    inputs = [entry.op for entry in trace.inputs]
    by_input = [op if op is None else cleanup.replaced(op) for op in trace.gradients] or [None] * len(inputs)
    tangents = dict(zip(found.positions, trace.tangents))
    return SubGraph(name, ops, inputs, results, found.layouts, tangents, by_input)


def examples_of(operands: Tensors, training: bool, rows: bool = False, carried: bool = False) -> list[torch.Tensor]:
    """What a sub-graph gets for operands, or for one of their ``rows`` each. What is ``carried`` on from round to round
    may come to require a gradient in the first.
    """
    examples = []
    for operand in operands:
        value = unwrap_functional(operand)
        requires = training and (operand.requires_grad or (carried and is_continuous(value.dtype)))
        with _outside():
            examples.append((value[0] if rows else value).detach().requires_grad_(requires))
    return examples


@contextmanager
def _outside() -> Iterator[None]:
    """For a moment outside of the trace that is being made."""
    with ExitStack() as stack:
        stack.enter_context(without_functionalization())
        stack.enter_context(without_dispatch_modes())
        yield


def forward_graph(tracer: Tracer, sub_graph: SubGraph) -> Held:
    """The ATen graph of the results."""
    ops = [op for op in sub_graph.ops if not op.backward]
    return _built(tracer, sub_graph.name, sub_graph.inputs, ops, sub_graph.results, sub_graph.layouts)


def backward_graph(
    tracer: Tracer, sub_graph: SubGraph, wanted: list[int], tangents: list[int], order: Order | None = None
) -> Held:
    """The ATen graph of the gradients of the operands ``wanted``, zeros where there are none. Its inputs are the
    operands and a gradient of each of the results ``tangents``, in this ``order`` if it is not told another.
    """
    ops = list(sub_graph.ops)
    arriving = []
    for position in tangents:
        op = sub_graph.tangents.get(position)
        if op is None:
            op = Op(TANGENT, f"tangent_{position}", val=_empty(tracer, sub_graph.layouts[position]))
            ops.append(op)
        arriving.append(op)
    results, layouts = [], []
    for position in wanted:
        op, operand = sub_graph.gradients[position], sub_graph.inputs[position]
        layout = dense(operand.val)
        if op is None:
            op = _zeros(tracer, layout)
            ops.append(op)
        results.append(op)
        layouts.append(layout)
    inputs = order(sub_graph.inputs, arriving) if order else [*sub_graph.inputs, *arriving]
    return _built(tracer, f"{sub_graph.name}_backward", inputs, ops, results, layouts)


@dataclass(frozen=True)
class Held:
    """A graph as an argument of an op, and what it gives."""

    name: str
    graph: Graph
    layouts: tuple[TensorSpec, ...]


def _built(
    tracer: Tracer, name: str, inputs: list[Op], ops: list[Op], results: list[Op], layouts: list[TensorSpec]
) -> Held:
    """A graph whose results own their memory and lie as ``layouts`` say."""
    ends: list[Op] = []
    taken: set[Op] = set()
    for op, layout in zip(results, layouts):
        root = view_root(op)
        lies = (op.val.stride(), op.val.storage_offset()) == (layout.strides, 0)
        if not lies or root.kind is not CALL or root in taken:
            memory = _allocated(tracer, layout)
            copied = Op(CALL, aten.copy.default, (memory, op), None, memory.val)
            copied.captured, copied.origin = op.captured, op.origin
            ops = [*ops, memory, copied]
            root = op = copied
        taken.add(root)
        ends.append(op)
    kept, _ = drop_unread(ops, ends)
    names.assign([*inputs, *(op for op in kept if op not in inputs)], [])
    return Held(name, build("SubGraph", inputs, kept, ends), tuple(layouts))


def _allocated(tracer: Tracer, layout: TensorSpec) -> Op:
    options = {"dtype": layout.dtype, "device": layout.device}
    val = _empty(tracer, layout)
    return Op(CALL, aten.empty_strided.default, (list(layout.shape), list(layout.strides)), options, val)


def _zeros(tracer: Tracer, layout: TensorSpec) -> Op:
    options = {"dtype": layout.dtype, "device": layout.device}
    val = _empty(tracer, replace(layout, strides=torch.empty(layout.shape, device="meta").stride()))
    return Op(CALL, aten.full.default, (list(layout.shape), 0), options, val)


def _empty(tracer: Tracer, layout: TensorSpec) -> torch.Tensor:
    """A fake tensor that is no part of any trace."""
    with _outside():
        meta = torch.empty_strided(layout.shape, layout.strides, dtype=layout.dtype, device="meta")
        return FakeTensor(tracer.mode, meta, layout.device)


# --- calls ------------------------------------------------------------------------------------------------------------
def emit(tracer: Tracer, target: Any, args: tuple[Any, ...], layouts: Sequence[TensorSpec]) -> list[torch.Tensor]:
    """Write a call with functional tensors and held graphs among its arguments; its results, which lie as said."""
    recorder = tracer.recorder

    def operand(arg: Any) -> Any:
        if isinstance(arg, torch.Tensor):
            return recorder.op_of(unwrap_functional(arg))
        if isinstance(arg, Held):
            op = recorder.write(Op(CONSTANT, arg.graph))
            op.name = arg.name
            return op
        if isinstance(arg, (str, int)):
            return arg
        return tuple(map(operand, arg))

    values = tuple(_empty(tracer, layout) for layout in layouts)
    recorder.write_tuple(target, tuple(map(operand, args)), {}, values)
    return [wrap_functional(value) for value in values]


class _Call(torch.autograd.Function):
    """A call as one node of autograd's graph. ``forward_`` gives the results of the operands, ``backward_`` gradients
    of operands from these and the gradients of results.
    """

    @staticmethod
    def forward(ctx: Any, forward_: Any, backward_: Any, layouts: list[TensorSpec], *operands: torch.Tensor) -> Any:
        ctx.backward_, ctx.layouts = backward_, layouts
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*operands)
        results = tuple(forward_(*operands))
        ctx.mark_non_differentiable(*(r for r, layout in zip(results, layouts) if not layout.is_continuous))
        return results

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        tangents = [_arriving(g, layout) for g, layout in zip(gradients, ctx.layouts) if layout.is_continuous]
        return None, None, None, *ctx.backward_(ctx.saved_tensors, tangents)


def _arriving(gradient: torch.Tensor | None, layout: TensorSpec) -> torch.Tensor:
    """A gradient in the layout that the backward graph was traced for."""
    if gradient is not None and gradient.stride() == layout.strides:
        return gradient
    memory = torch.empty_strided(layout.shape, layout.strides, dtype=layout.dtype, device=layout.device)
    return memory.zero_() if gradient is None else memory.copy_(gradient)


def is_differentiated(operands: Tensors) -> bool:
    return torch.is_grad_enabled() and any(operand.requires_grad for operand in operands)


def continuous(layouts: Sequence[TensorSpec]) -> list[int]:
    return [position for position, layout in enumerate(layouts) if layout.is_continuous]


def spread(gradients: Sequence[torch.Tensor], positions: list[int], count: int) -> list[torch.Tensor | None]:
    """Gradients of some of ``count`` operands in the places of these."""
    placed = dict(zip(positions, gradients))
    return [placed.get(position) for position in range(count)]


# --- the operators ----------------------------------------------------------------------------------------------------
@rule("control_flow.cond")
def cond(tracer: Tracer, pred: torch.Tensor, true_graph: Graph, false_graph: Graph, operands: Tensors) -> Sequence[Any]:
    training = is_differentiated(operands)
    one = traced("cond_true", true_graph, examples_of(operands, training), training)
    other = traced("cond_false", false_graph, examples_of(operands, training), training, one.layouts)
    branches = (one, other)
    held = [forward_graph(tracer, branch) for branch in branches]
    target = torch.ops.higher_order.cond

    def forward(*tensors: torch.Tensor) -> list[torch.Tensor]:
        return emit(tracer, target, (pred, *held, tensors), one.layouts)

    if not training:
        return forward(*operands)
    wanted = [n for n, operand in enumerate(operands) if operand.requires_grad]
    arriving = continuous(one.layouts)

    def backward(tensors: Tensors, tangents: list[torch.Tensor]) -> list[torch.Tensor | None]:
        graphs = [backward_graph(tracer, branch, wanted, arriving) for branch in branches]
        found = emit(tracer, target, (pred, *graphs, (*tensors, *tangents)), graphs[0].layouts)
        return spread(found, wanted, len(tensors))

    return _Call.apply(forward, backward, one.layouts, *operands)


@rule("control_flow.while_loop")
def while_loop(
    tracer: Tracer, cond_graph: Graph, body_graph: Graph, carried: Tensors, others: Tensors
) -> Sequence[Any]:
    operands, count = (*carried, *others), len(carried)
    training = is_differentiated(operands)
    examples = [*examples_of(carried, training, carried=True), *examples_of(others, training)]
    layouts = [dense(example) for example in examples[:count]]
    test = forward_graph(tracer, traced("cond_fn", cond_graph, examples_of(operands, False), False))
    body = traced("body_fn", body_graph, examples, training, layouts)
    round_ = forward_graph(tracer, body)

    def forward(*tensors: torch.Tensor) -> list[torch.Tensor]:
        args = (test, round_, tensors[:count], tensors[count:])
        return emit(tracer, torch.ops.higher_order.while_loop, args, layouts)

    if not training:
        return forward(*operands)
    moving = continuous(layouts)
    summed = [count + n for n, other in enumerate(others) if other.requires_grad]

    def backward(tensors: Tensors, tangents: list[torch.Tensor]) -> list[torch.Tensor | None]:
        graph = backward_graph(tracer, body, [*moving, *summed], moving)
        totals = tuple(tensors[n] for n in summed)
        args = (test, round_, graph, tensors[:count], tensors[count:], totals, tuple(tangents))
        found = emit(tracer, while_loop_backward, args, graph.layouts)
        return spread(found, [*moving, *summed], len(tensors))

    return _Call.apply(forward, backward, layouts, *operands)


@rule("control_flow.map_impl")
def map_impl(tracer: Tracer, graph: Graph, rows: Tensors, others: Tensors) -> Sequence[Any]:
    operands, count, length = (*rows, *others), len(rows), len(rows[0])
    training = is_differentiated(operands)
    body = traced("map_body", graph, [*examples_of(rows, training, True), *examples_of(others, training)], training)
    held = forward_graph(tracer, body)
    layouts = [stacked(layout, length) for layout in body.layouts]
    target = torch.ops.higher_order.map_impl

    def forward(*tensors: torch.Tensor) -> list[torch.Tensor]:
        return emit(tracer, target, (held, tensors[:count], tensors[count:]), layouts)

    if not training:
        return forward(*operands)
    wanted = [n for n, operand in enumerate(operands) if operand.requires_grad]

    def backward(tensors: Tensors, tangents: list[torch.Tensor]) -> list[torch.Tensor | None]:
        order: Order = lambda inputs, arriving: [*inputs[:count], *arriving, *inputs[count:]]
        graph = backward_graph(tracer, body, wanted, continuous(body.layouts), order)
        args = (graph, (*tensors[:count], *tangents), tensors[count:])
        found = emit(tracer, target, args, [stacked(layout, length) for layout in graph.layouts])
        gradients = [one if n < count else one.sum(0) for n, one in zip(wanted, found)]
        return spread(gradients, wanted, len(tensors))

    return _Call.apply(forward, backward, layouts, *operands)


@rule("control_flow.scan")
def scan(tracer: Tracer, graph: Graph, init: Tensors, rows: Tensors, others: Tensors) -> Sequence[Any]:
    """Its backward scans once more for what each round began with, and then from the last round to the first."""
    operands, count, ends, length = (*init, *rows, *others), len(init), len(init) + len(rows), len(rows[0])
    training = is_differentiated(operands)
    examples = [*examples_of(init, training, carried=True), *examples_of(rows, training, True)]
    carried = [dense(example) for example in examples[:count]]
    body = traced("combine_fn", graph, [*examples, *examples_of(others, training)], training)
    if body.layouts[:count] != carried:
        raise AutodiffError("a scan that carries on other things than it begins with")
    held = forward_graph(tracer, body)
    layouts = [*carried, *(stacked(layout, length) for layout in body.layouts[count:])]
    target = torch.ops.higher_order.scan

    def forward(*tensors: torch.Tensor) -> list[torch.Tensor]:
        return emit(tracer, target, (held, tensors[:count], tensors[count:ends], tensors[ends:]), layouts)

    if not training:
        return forward(*operands)
    moving = continuous(carried)
    given = continuous(body.layouts)
    behind = [n for n, operand in enumerate(operands) if n >= count and operand.requires_grad]

    def order(inputs: list[Op], arriving: list[Op]) -> list[Op]:
        return [*arriving[: len(moving)], *inputs[:ends], *arriving[len(moving) :], *inputs[ends:]]

    def backward(tensors: Tensors, tangents: list[torch.Tensor]) -> list[torch.Tensor | None]:
        began = _beginnings(tracer, body, count)
        rows_of = [stacked(layout, length) for layout in carried]
        kept = emit(tracer, target, (began, tensors[:count], tensors[count:ends], tensors[ends:]), [*carried, *rows_of])
        back = backward_graph(tracer, body, [*moving, *behind], given, order)
        turned = tuple(t.flip(0) for t in (*kept[count:], *tensors[count:ends], *tangents[len(moving) :]))
        last = len(moving)
        results = [*back.layouts[:last], *(stacked(layout, length) for layout in back.layouts[last:])]
        found = emit(tracer, target, (back, tuple(tangents[:last]), turned, tensors[ends:]), results)
        gradients = [one.flip(0) if n < ends else one.sum(0) for n, one in zip(behind, found[last:])]
        return spread([*found[:last], *gradients], [*moving, *behind], len(tensors))

    return _Call.apply(forward, backward, layouts, *operands)


def _beginnings(tracer: Tracer, body: SubGraph, count: int) -> Held:
    """A scan's step that gives what it began with."""
    ops = [op for op in body.ops if not op.backward]
    results, carried = body.results[:count], body.layouts[:count]
    return _built(tracer, "beginnings", body.inputs, ops, [*results, *body.inputs[:count]], [*carried, *carried])
