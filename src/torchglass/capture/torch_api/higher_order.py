"""``torch.cond`` and its kin: the functions that they are given become sub-graphs, the call one node.

    torch.cond(x.sum() > 0, f, g, (x,))   ->   cond_true_0 = self.cond_true_0      # get_attr: a GraphModule
                                               cond_false_0 = self.cond_false_0
                                               cond = torch.ops.higher_order.cond(gt, cond_true_0, cond_false_0, (x, w))

These are the nodes that torch.compile makes. Tensors from outside that a function reads become further operands. What
PyTorch refuses (functions that write to their operands or return them, branches that do not agree) breaks the graph,
and PyTorch says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from ... import torch_compat
from ...records.sources import Source
from ...records.tensor_spec import is_continuous
from ..errors import Unsupported, UserError
from ..graph.builder import GraphBuilder, building, stack_trace
from ..graph.symbolic_layouts import SymbolicLayout
from ..meanings.registry import handles, higher_order, named
from ..polyfills import scans as polyfill_scans
from ..protocol import Machine, Value
from ..values.constant import ConstantV
from ..values.containers import ListV, SequenceV, TupleV
from ..values.dicts import DictV
from ..values.entry_tensor import NumberTensorV
from ..values.function_modes import FunctionModes
from ..values.number import NumberV
from ..values.sealing import sealed
from ..values.tensor import TensorV
from . import torch_function as function_modes
from .transforms import BodyBuilder, known


# --- structures -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Tree:
    """Containers around tensors: ``kind`` is a class, ``keys`` a dictionary's. Constants are leaves of their own."""

    kind: type | None
    keys: tuple[Any, ...] = ()
    parts: tuple[Any, ...] = ()


LEAF = Tree(None)


def flattened(m: Machine, value: Value, what: str) -> tuple[Tree, list[TensorV]]:
    """The structure of a value and its tensors, in order. Raises Unsupported for other things than plain containers of
    tensors and integers; ``what`` names the value.
    """
    tensors: list[TensorV] = []

    def tree(value: Value) -> Tree:
        value = known(m, value)
        if isinstance(value, TensorV):
            tensors.append(value)
            return LEAF
        if isinstance(value, SequenceV):
            return Tree(value.cls, (), tuple(map(tree, value.all(m))))
        if isinstance(value, DictV):
            pairs = value.pairs(m)
            return Tree(value.cls, tuple(key.as_constant() for key, _ in pairs), tuple(tree(item) for _, item in pairs))
        if isinstance(value, ConstantV) and type(value.value) is int and not isinstance(value, NumberV):
            return Tree(None, (type(value.value), value.value))
        raise Unsupported(f"{value.a()} in {what}")

    return tree(value), tensors


def rebuilt(tree: Tree, tensors: Iterator[TensorV]) -> Value:
    """``tensors`` in containers."""
    if tree is LEAF:
        return next(tensors)
    if tree.kind is None:
        return ConstantV(tree.keys[1])
    parts = [rebuilt(part, tensors) for part in tree.parts]
    if issubclass(tree.kind, dict):
        result = DictV.of([(ConstantV(key), part) for key, part in zip(tree.keys, parts)])
        result.cls = tree.kind
        return result
    return ListV(parts) if issubclass(tree.kind, list) else TupleV(parts, tree.kind)


# --- a function as a sub-graph ----------------------------------------------------------------------------------------
class SubGraphBuilder(BodyBuilder):
    """The graph of a function that an operator calls, on operands with the metadata of those that it has now."""

    def number(self, number: NumberV, dtype: torch.dtype | None = None) -> NumberTensorV:
        return self.parent.number(number, dtype)

    def placeholder(self, real: torch.Tensor, source: Source, layout: SymbolicLayout | None = None) -> TensorV:
        return self.parent.placeholder(real, source, layout)

    def constant(self, real: torch.Tensor) -> TensorV:
        return self.parent.constant(real)

    def argument_tensor(self, value: TensorV) -> torch.fx.Node:
        if value.node.graph is self.graph:
            return value.node
        if id(value) not in self.lifted:
            outer = self.parent.argument_tensor(value)  # it must be in reach there
            self.lifted[id(value)] = (value, self.input_like(outer.name, value.fake))
            self.by_fake[id(value.fake)] = value
        return self.lifted[id(value)][1]

    def operand(self, name: str, fake: torch.Tensor) -> TensorV:
        """An operand of the function, in the memory of ``fake``: so it is seen who writes to it or returns it."""
        needs_grad = fake.requires_grad and torch.is_grad_enabled()
        own = fake.detach().requires_grad_(needs_grad)
        value = TensorV(self.input_like(name, own), own)
        self.by_fake[id(own)] = value
        return value

    def input_like(self, name: str, fake: torch.Tensor) -> torch.fx.Node:
        node = self._input(name)
        node.target = node.name
        node.meta["example_value"] = node.meta["val"] = fake
        return node


@dataclass
class Body:
    """A function that was interpreted: what it returns, and the graph so far."""

    builder: SubGraphBuilder
    operands: list[TensorV]
    tree: Tree
    results: list[TensorV]


def interpreted(
    m: Machine, function: Value, operands: Sequence[TensorV], tree: Tree, what: str, rows: range = range(0)
) -> Body:
    """Call ``function`` with arguments of the structure ``tree``: a tuple, whose tensors are like ``operands``, or like
    a row of them where their positions are among ``rows``.
    """
    if m.state(FunctionModes).entered:
        raise Unsupported(f"{what} under a TorchFunctionMode")
    outer = m.state(GraphBuilder)
    body = SubGraphBuilder(outer)
    names = [outer.argument_tensor(operand).name for operand in operands]
    with outer.fake_mode:
        fakes = [operand.fake[0] if n in rows else operand.fake for n, operand in enumerate(operands)]
    inner = [body.operand(name, fake) for name, fake in zip(names, fakes)]
    arguments = m.listed(rebuilt(tree, iter(inner)))
    named = f"a function that {what} is given"
    try:
        with building(m, body):
            with sealed(m, named), function_modes.outside_probe(m):
                result = m.call(function, arguments, {})
                found, results = flattened(m, result, f"the result of {named}")
            for value in results:
                body.argument_tensor(value)
    except UserError as error:
        raised = error.value.python_type().__name__
        raise Unsupported(f"a function that {what} is given, which raises {raised}") from None
    _check(body, inner, results, what)
    return Body(body, inner, found, results)


def _check(body: SubGraphBuilder, operands: list[TensorV], results: list[TensorV], what: str) -> None:
    """Refuse what PyTorch refuses: writes to operands, results that share memory with them or with one another."""
    given = [value.fake for value in operands] + [value.fake for value, _ in body.lifted.values()]
    if any(map(body.wrote_to, given)):
        raise Unsupported(f"a function that {what} is given, which writes to a tensor from outside")
    memory = {fake.untyped_storage()._cdata for fake in given}
    for value in results:
        if value.fake.untyped_storage()._cdata in memory:
            raise Unsupported(f"a function that {what} is given, which returns a tensor from outside", "clone it")
        memory.add(value.fake.untyped_storage()._cdata)
    if body.inner_leaves:
        raise Unsupported(f"a function that {what} is given, which makes tensors that require grad")


def closed(bodies: list[Body]) -> tuple[list[torch.fx.GraphModule], list[TensorV]]:
    """The bodies as graphs of the same inputs: their operands, then tensors from outside that one of them reads."""
    lifted = list({key: value for body in bodies for key, (value, _) in body.builder.lifted.items()}.items())
    graphs = []
    for body in bodies:
        builder = body.builder
        inputs = [value.node for value in body.operands]
        for key, value in lifted:
            found = builder.lifted.get(key)
            inputs.append(found[1] if found else builder.input_like(value.node.name, value.fake))
        for node in reversed(inputs):
            first = next(iter(builder.graph.nodes))
            if first is not node:
                first.prepend(node)
        builder.graph.output(tuple(_contiguous(builder, value) for value in body.results))
        builder.graph.lint()
        graphs.append(torch_compat.graph_module(builder.root, builder.graph, "SubGraph"))
    return graphs, [value for _, value in lifted]


def _contiguous(builder: SubGraphBuilder, value: TensorV) -> torch.fx.Node:
    """The node of a result, which lies as every graph of the call has it."""
    node = builder.argument_tensor(value)
    if value.fake.is_contiguous():
        return node
    laid_out = builder.graph.call_method("contiguous", (node,))
    laid_out.meta = {**node.meta, "val": value.fake.contiguous(), "example_value": None}
    return laid_out


def held(builder: GraphBuilder, prefix: str, graph: torch.fx.GraphModule) -> torch.fx.Node:
    """The node for a sub-graph, which the graph module holds."""
    number = sum(name.startswith(prefix) for name, _ in builder.root.named_children())
    name = f"{prefix}_{number}"
    builder.root.add_module(name, graph)
    return builder.graph.get_attr(name)


@dataclass(frozen=True)
class Meta:
    """What is known of a result, which is contiguous, before it is there."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, fake: torch.Tensor, *rows: int) -> Meta:
        return cls((*rows, *fake.shape), fake.dtype, fake.device)

    def empty(self) -> torch.Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device=self.device)


class _Results(torch.autograd.Function):
    """New tensors, which depend on all operands."""

    @staticmethod
    def forward(ctx: Any, metas: Sequence[Meta], *operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = tuple(meta.empty() for meta in metas)
        ctx.mark_non_differentiable(*(t for t in made if not is_continuous(t.dtype)))
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        raise RuntimeError("a result of a sub-graph is differentiated while it is captured")


@dataclass
class Call:
    """A node to be: an operator, its arguments before and behind the sub-graphs, and what it gives."""

    name: str
    graphs: list[tuple[str, torch.fx.GraphModule]]
    operands: list[list[TensorV]]
    metas: list[Meta]
    before: list[TensorV] = field(default_factory=list)


def recorded(m: Machine, call: Call) -> Iterator[TensorV]:
    """The node's results."""
    builder = m.state(GraphBuilder)
    operands = [*call.before, *(value for group in call.operands for value in group)]

    def made(*fakes: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return _Results.apply(call.metas, *fakes)

    results = builder.evaluate(made, list(operands), {})
    args = (
        *map(builder.argument_tensor, call.before),
        *(held(builder, prefix, graph) for prefix, graph in call.graphs),
        *(tuple(map(builder.argument_tensor, group)) for group in call.operands),
    )
    target = getattr(torch.ops.higher_order, call.name)
    parts = builder.record_node("call_function", target, args, {}, results, m.origin(), stack_trace(m))
    return iter(m.listed(parts))  # type: ignore[arg-type]


def bound(names: Sequence[str], args: list[Value], kwargs: dict[str, Value], **defaults: Value) -> list[Value]:
    """Arguments in the order of ``names``."""
    given = {**defaults, **dict(zip(names, args)), **kwargs}
    if set(given) != set(names) or len(args) > len(names):
        raise Unsupported(f"a call with other arguments than {', '.join(names)}")
    return [given[name] for name in names]


# --- cond -------------------------------------------------------------------------------------------------------------
@named("torch._higher_order_ops.cond", "cond")
def cond(m, args, kwargs):
    names = ("pred", "true_fn", "false_fn", "operands")
    pred, true_fn, false_fn, operands = bound(names, args, kwargs, operands=TupleV([]))
    pred = m.forced(pred)
    if isinstance(pred, ConstantV):
        return m.call(true_fn if m.truth(pred) else false_fn, m.listed(operands), {})
    if not isinstance(pred, TensorV) or pred.fake.numel() != 1:
        raise Unsupported("torch.cond by something else than a tensor of one element")
    return _cond(m, pred, true_fn, false_fn, operands)


@higher_order("cond")
def raw_cond(m, args, kwargs):
    pred, true_fn, false_fn, operands = bound(("pred", "true_fn", "false_fn", "operands"), args, kwargs)
    return cond(m, [pred, true_fn, false_fn, operands], {})


def _alike(one: TensorV, other: TensorV) -> bool:
    first, second = one.fake, other.fake
    return (first.shape, first.dtype, first.device) == (second.shape, second.dtype, second.device)


def _cond(m: Machine, pred: TensorV, true_fn: Value, false_fn: Value, operands: Value) -> Value:
    tree, tensors = flattened(m, operands, "the operands of torch.cond")
    bodies = [interpreted(m, function, tensors, tree, "torch.cond") for function in (true_fn, false_fn)]
    one, other = bodies
    if one.tree != other.tree or not all(map(_alike, one.results, other.results)):
        raise Unsupported("branches of torch.cond that return different things")
    metas = [Meta.of(value.fake) for value in one.results]
    (true_graph, false_graph), lifted = closed(bodies)
    graphs = [("cond_true", true_graph), ("cond_false", false_graph)]
    return rebuilt(one.tree, recorded(m, Call("cond", graphs, [[*tensors, *lifted]], metas, [pred])))


# --- while_loop -------------------------------------------------------------------------------------------------------
@named("torch._higher_order_ops.while_loop", "while_loop")
def while_loop(m, args, kwargs):
    cond_fn, body_fn, carried = bound(("cond_fn", "body_fn", "carried_inputs"), args, kwargs)
    return _while_loop(m, cond_fn, body_fn, m.forced(carried), TupleV([]))


@higher_order("while_loop")
def raw_while_loop(m, args, kwargs):
    return _while_loop(m, *bound(("cond_fn", "body_fn", "carried_inputs", "additional_inputs"), args, kwargs))


def _while_loop(m: Machine, cond_fn: Value, body_fn: Value, carried: Value, others: Value) -> Value:
    what = "torch.while_loop"
    tree, tensors = flattened(m, carried, f"what {what} carries on")
    rest_tree, rest = flattened(m, others, f"the operands of {what}")
    if _has_numbers(tree):
        return _counted_loop(m, cond_fn, body_fn, carried, others)
    tensors = [_laid_out(m, tensor) for tensor in tensors]
    arguments = Tree(tuple, (), (*tree.parts, *rest_tree.parts))
    bodies = [interpreted(m, function, [*tensors, *rest], arguments, what) for function in (cond_fn, body_fn)]
    test, body = bodies
    if test.tree is not LEAF or test.results[0].fake.dtype is not torch.bool or test.results[0].fake.dim():
        raise Unsupported(f"a condition of {what} that is no tensor of one truth value")
    if body.tree.parts != tree.parts or not all(map(_alike, tensors, body.results)):
        raise Unsupported(f"a body of {what} that returns other things than it is given")
    graphs, lifted = closed(bodies)
    metas = [Meta.of(tensor.fake) for tensor in tensors]
    named = list(zip(("cond_fn", "body_fn"), graphs))
    return rebuilt(body.tree, recorded(m, Call("while_loop", named, [tensors, [*rest, *lifted]], metas)))


def _has_numbers(tree: Tree) -> bool:
    return tree is not LEAF and (tree.kind is None or any(map(_has_numbers, tree.parts)))


def _counted_loop(m: Machine, cond_fn: Value, body_fn: Value, carried: Value, others: Value) -> Value:
    """A loop that integers end: how often it runs is known, and each round stands in the graph."""
    values, rest = carried, m.listed(others)
    for _ in range(MOST_ROUNDS):
        again = m.call(cond_fn, [*m.listed(values), *rest], {})
        if not isinstance(again, ConstantV):
            raise Unsupported("torch.while_loop that carries integers on and is ended by a tensor")
        if not m.truth(again):
            return values
        values = m.call(body_fn, [*m.listed(values), *rest], {})
    raise Unsupported(f"torch.while_loop with more than {MOST_ROUNDS} rounds that integers count")


MOST_ROUNDS = 500


def _laid_out(m: Machine, tensor: TensorV) -> TensorV:
    """What is carried on lies in the first round as in the others."""
    if tensor.fake.is_contiguous():
        return tensor
    found = m.torch_method(tensor, "contiguous", [tensor], {})
    assert isinstance(found, TensorV)
    return found


# --- map and scan -----------------------------------------------------------------------------------------------------
@named("torch._higher_order_ops.map", "map")
def map_(m, args, kwargs):
    if len(args) < 2 or kwargs:
        raise Unsupported("a call of torch's map with named arguments")
    return _map(m, args[0], [args[1]], args[2:])


@higher_order("map_impl")
def raw_map(m, args, kwargs):
    function, xs, others = bound(("f", "xs", "pos_args"), args, kwargs)
    return _map(m, function, m.listed(xs), m.listed(others))


def _map(m: Machine, function: Value, xs: list[Value], others: list[Value]) -> Value:
    """``function`` of a row of each of ``xs``, which may be nested, and of ``others``."""
    tree, rows = flattened(m, TupleV(xs), "what torch's map goes over")
    rest_tree, rest = flattened(m, TupleV(others), "the operands of torch's map")
    length, arguments = _length(rows, "torch's map"), Tree(tuple, (), (*tree.parts, *rest_tree.parts))
    body = interpreted(m, function, [*rows, *rest], arguments, "torch's map", range(len(rows)))
    (graph,), lifted = closed([body])
    metas = [Meta.of(value.fake, length) for value in body.results]
    return rebuilt(body.tree, recorded(m, Call("map_impl", [("map_body", graph)], [rows, [*rest, *lifted]], metas)))


def _length(rows: list[TensorV], what: str) -> int:
    lengths = {row.fake.shape[0] if row.fake.dim() else 0 for row in rows}
    if len(lengths) != 1 or 0 in lengths:
        raise Unsupported(f"{what} over other things than tensors with equally many rows")
    return int(lengths.pop())


@handles(polyfill_scans.scan_rows)
def scan_rows(m, args, kwargs):
    """What ``scan`` comes to once rows lie along the first dimension, in their order."""
    combine, init, xs = args
    init_tree, carried = flattened(m, init, "what a scan begins with")
    xs_tree, rows = flattened(m, xs, "what a scan goes over")
    found, results = _scanned(m, combine, Tree(tuple, (), (init_tree, xs_tree)), carried, rows, [])
    if len(found.parts) != 2 or found.parts[0] != init_tree:
        raise Unsupported("a scan whose function returns another structure than it began with")
    return rebuilt(found, results)


@higher_order("scan")
def raw_scan(m, args, kwargs):
    combine, init, xs, others = bound(("combine_fn", "init", "xs", "additional_inputs"), args, kwargs)
    parts = [flattened(m, TupleV(m.listed(part)), "the operands of a scan") for part in (init, xs, others)]
    tree = Tree(tuple, (), tuple(part for found, _ in parts for part in found.parts))
    found, results = _scanned(m, combine, tree, *(tensors for _, tensors in parts))
    return rebuilt(found, results)


def _scanned(
    m: Machine, combine: Value, tree: Tree, init: list[TensorV], rows: list[TensorV], rest: list[TensorV]
) -> tuple[Tree, Iterator[TensorV]]:
    length, count = _length(rows, "a scan"), len(init)
    carried = [_laid_out(m, tensor) for tensor in init]
    behind = range(count, count + len(rows))
    body = interpreted(m, combine, [*carried, *rows, *rest], tree, "a scan", behind)
    if not carried or len(body.results) < count or not all(map(_alike, carried, body.results)):
        raise Unsupported("a scan whose function returns other things than it began with")
    (graph,), lifted = closed([body])
    fakes = [value.fake for value in body.results]
    metas = [*(Meta.of(fake) for fake in fakes[:count]), *(Meta.of(fake, length) for fake in fakes[count:])]
    call = Call("scan", [("scan_combine_fn", graph)], [carried, rows, [*rest, *lifted]], metas)
    return body.tree, recorded(m, call)
