"""The lowering stage: a functional ATen FX graph in, a LoopGraph out.

Every node carries ``meta["val"]`` (fake tensors) and may carry ``meta["origin"]``. A node with a rule becomes loops or
a view; one without stays an ATen call. Nothing is an error here except a graph that is none.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from ..aten.nested import tensors_in
from ..aten.writes import functional
from ..process import fallbacks, interrupts
from ..records.check_loops import check_graph
from ..records.loops import ExternCall, LoopGraph, Node, Value, View
from ..records.origin import UNKNOWN
from ..records.size_environment import DecidedByData
from ..records.sizes import Size
from ..records.target import Target, Targets
from ..torch_compat import OpOverload
from . import cpu, cuda, rules  # noqa: F401  they fill the tables
from .context import DTYPES, Lowering, Splat, layout_of
from .extern import arguments_in_memory, lower_extern
from .shrink_to_read import shrink_to_read
from .strategies import Request, Strategy, rewritten, rewritten_loops, strategies_of
from .table import NotLowered, Rule, find_rule


def run(
    gm: fx.GraphModule,
    targets: Targets,
    name: str = "forward",
    *,
    frozen: frozenset[str] = frozenset(),
    returned: int | None = None,
    input_strides: Sequence[tuple[Size, ...] | None] = (),
) -> LoopGraph:
    """Lower ``gm`` for ``targets``; buffers are named after its nodes.

    ``frozen``: inputs that are weights to be packed. Of the results the first ``returned`` (None: all) lie as eager's
    do. ``input_strides``: of the first inputs, where they lie otherwise than eager's.
    """
    low = Lowering(targets, frozen)
    targets_of, request = _targets(low, gm), Request(frozen, returned, input_strides)
    gm, notes = rewritten(gm, targets_of, request)
    inputs: list[str] = []
    outputs: tuple[Any, ...] = ()
    for node in gm.graph.nodes:
        interrupts.check()
        low.origin = node.meta.get("origin") or UNKNOWN
        if node.op == "placeholder":
            low.values[node] = _input(low, node)
            inputs.append(low.values[node].buffer if isinstance(low.values[node], View) else node.name)
        elif node.op == "get_attr":
            low.values[node] = _constant(low, gm, node)
        elif node.op == "call_function":
            low.values[node] = _call(low, node)
        elif node.op == "output":
            outputs = _outputs(low, node)
        else:
            raise ValueError(f"an ATen graph has no {node.op} nodes: {node}")
    notes += [f"{what} ({count}): {reason}" for (what, reason), count in low.refusals.items()]
    nodes = _live(low.nodes, outputs)
    graph = LoopGraph(name, tuple(inputs), low.buffers, nodes, outputs, low.constants, notes=tuple(notes))
    graph = rewritten_loops(shrink_to_read(graph), targets_of, request)
    check_graph(graph)
    return graph


def _targets(low: Lowering, gm: fx.GraphModule) -> dict[str, Target]:
    """Of the devices that a graph's tensors are on."""
    devices = dict.fromkeys(str(v.device) for node in gm.graph.nodes for v in tensors_in(node.meta.get("val")))
    return {device: target for device in devices if (target := low.target_of(device)) is not None}


def _input(low: Lowering, node: fx.Node) -> Any:
    val = node.meta.get("val")
    if not isinstance(val, torch.Tensor):
        return Value(node.name)
    return _given(low, node.name, val, "input")


def _given(low: Lowering, name: str, val: torch.Tensor, role: str) -> View:
    """The buffer of what the caller brings, of whatever dtype."""
    low.device = str(val.device)
    return low.buffer(name, str(val.dtype).removeprefix("torch."), *layout_of(val), role=role)


def _constant(low: Lowering, gm: fx.GraphModule, node: fx.Node) -> Any:
    value: Any = gm
    for part in str(node.target).split("."):
        value = getattr(value, part)
    if isinstance(value, fx.GraphModule):  # a call's sub-graph: compiled to a function of that name
        low.constants[node.name] = value
        return Value(node.name)
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"the constant {node.target} is no tensor")
    if value.is_neg():
        value = node.meta["val"] = value.resolve_neg()
    node.meta.setdefault("val", value)
    view = _given(low, node.name, value, "constant")
    low.constants[view.buffer] = value
    return view


def _call(low: Lowering, node: fx.Node) -> Any:
    """A node's value: by a strategy of its device's, by its rule, or by ATen."""
    if node.target is operator.getitem and isinstance(low.values.get(node.args[0]), (tuple, list)):
        return low.values[node.args[0]][node.args[1]]
    low.op = _short_name(node)
    low.device = next((str(v.device) for v in tensors_in(node.meta.get("val"))), "cpu")
    if not isinstance(node.target, OpOverload):
        return lower_extern(low, node)
    if node.target._schema.is_mutable:
        return _mutation(low, node)
    for strategy in strategies_of(low.target, node.target):
        value = _attempt(low, node, _by_strategy(strategy), f"no {strategy.__name__}", f"strategy {strategy.__name__}")
        if value is not None:
            return value
    rule = find_rule(node.target)
    symbolic = any(isinstance(low.values.get(n), Value) for n in node.all_input_nodes)
    if rule is not None and not symbolic and _is_plain(low, node):
        value = _attempt(low, node, _by_rule(rule), f"{low.op} stays a call", f"lowering rule of {low.op}")
        if value is not None:
            return value
    return lower_extern(low, node)


def _by_strategy(strategy: Strategy[Any]) -> Callable[[Lowering, fx.Node], Any]:
    return lambda low, node: strategy(low, low.target, node, *arguments_in_memory(low, node))


def _by_rule(rule: Rule) -> Callable[[Lowering, fx.Node], Any]:
    return lambda low, node: rule(low, node, *low.argument(node.args), **low.argument(node.kwargs))


def _attempt(low: Lowering, node: fx.Node, make: Callable[[Lowering, fx.Node], Any], refusal: str, who: str) -> Any:
    """The value that a rule or a strategy makes of a node; None, and all as before, where it makes none."""
    done, known = len(low.nodes), len(low.buffers)
    value = None
    try:
        value = make(low, node)
        low.check_printed(low.nodes[done:])
    except (NotLowered, DecidedByData) as reason:  # the latter: it asks which number data decide
        low.refusals[refusal, str(reason)] += 1
        value = None
    except Exception as error:
        fallbacks.say(f"the {who} failed; it stays an ATen call", low.origin, error=error)
    if value is None:
        low.undo(done, known)
    return value


def _mutation(low: Lowering, node: fx.Node) -> Any:
    """An in-place operator on a value nothing else looks at: its functional form, and the old name means the new value.

    Graphs are functional but for the insides of a few composite operators. Anything more is refused.
    """
    target = node.args[0]
    assert isinstance(node.target, OpOverload) and isinstance(target, fx.Node)
    overload = functional(node.target)
    found = find_rule(overload) if overload is not None else None
    old = low.values[target]
    same = [
        n for n, value in low.values.items() if isinstance(value, View) and value.buffer == getattr(old, "buffer", None)
    ]
    viewed = _is_view(target) or any(_is_view(user) for n in (target, *same) for user in n.users)
    ours = isinstance(old, Splat) or (isinstance(old, View) and low.buffers[old.buffer].role == "temp")
    if found is None or not ours or viewed or any(low.values[n] != old for n in same):
        raise ValueError(f"the graph is not functional: {node.format_node()}")
    low.op = _short_name(node).removesuffix("_")
    new = found(low, node, *low.argument(node.args), **low.argument(node.kwargs))
    for other in (target, *same):
        low.values[other] = new
    return new


def _is_view(node: fx.Node) -> bool:
    """Whether an operator returns another look at its argument's memory."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and not schema.is_mutable and any(r.alias_info is not None for r in schema.returns)


def _is_plain(low: Lowering, node: fx.Node) -> bool:
    """Loops are for plain tensors of dtypes they know and real numbers; anything odd leaves the operator to ATen.

    So do tensors of two devices, as indices on the CPU of what is on a GPU, but for single numbers.
    """
    if any(isinstance(argument, complex) for argument in (*node.args, *node.kwargs.values())):
        return False
    results = tensors_in(node.meta.get("val"))
    read = [v for n in node.all_input_nodes for v in tensors_in(n.meta.get("val"))]
    if not results or any(v.device != results[0].device and v.numel() != 1 for v in read):
        return False
    return all(v.layout == torch.strided and _known(low, v) for v in (*results, *read))


def _known(low: Lowering, val: torch.Tensor) -> bool:
    return val.dtype in DTYPES and low.target_of(val.device) is not None


def _short_name(node: fx.Node) -> str:
    target = node.target
    if isinstance(target, OpOverload):
        return target._schema.name.replace("::", ".")
    return getattr(target, "__name__", str(target))


def _outputs(low: Lowering, node: fx.Node) -> tuple[Any, ...]:
    (results,) = node.args
    results = results if isinstance(results, (tuple, list)) else (results,)
    for node in dict.fromkeys(r for r in results if r is not None):
        if isinstance(value := low.values[node], Splat):
            low.device = str(node.meta["val"].device)
            low.values[node] = low.laid_out(value, node.meta["val"], node.name)
    return tuple(None if result is None else low.argument(result) for result in results)


def _live(nodes: list[Node], outputs: tuple[Any, ...]) -> tuple[Node, ...]:
    """Nodes that something needs, and calls that do more than return a value (assertions, random numbers)."""
    needed = {o.buffer if isinstance(o, View) else o.name for o in outputs if isinstance(o, (View, Value))}
    kept: list[Node] = []
    for node in reversed(nodes):
        if any(w in needed for w in node.writes) or (isinstance(node, ExternCall) and node.effect):
            kept.append(node)
            needed.update(node.reads)
    return tuple(reversed(kept))
