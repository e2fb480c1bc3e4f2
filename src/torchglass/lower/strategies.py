"""The table of strategies: what a kind of target does with an operator in place of neutral loops and of ATen's call.

    @strategy(Cpu, aten.mm.default, aten.addmm.default, rank=1)
    def onednn_product(low: Lowering, cpu: Cpu, node: fx.Node, args: ..., kwargs: ...) -> View | None:

A strategy gets a node and its arguments, tensors as Views, appends what it makes to ``low`` and returns the node's
value. Where it is not meant (nothing is frozen, no depthwise convolution) it returns None; where it is and does not
apply it raises ``NotLowered`` with the reason, which ``forward.loops`` counts at its top::

    # no onednn_product (3): fewer than 1500000 multiplications

Those of an operator are tried by rank, the lowest first, then its rule, and what none of them takes stays ATen's call.
``@graph_strategy`` is for what concerns more than one node: it rewrites the graph before it is lowered. A
``@loop_strategy`` rewrites what it was lowered to, where layouts are numbers in accesses that anything may change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from torch import fx

from ..records.loops import LoopGraph
from ..records.sizes import Size
from ..records.target import Cpu, Gpu, Target
from ..torch_compat import OpOverload
from .context import Lowering

T = TypeVar("T", Cpu, Gpu)
Strategy: TypeAlias = "Callable[[Lowering, T, fx.Node, Sequence[Any], dict[str, Any]], Any]"
GraphStrategy: TypeAlias = "Callable[[fx.GraphModule, T, Request], tuple[fx.GraphModule, str]]"
LoopStrategy: TypeAlias = "Callable[[LoopGraph, T, Collection[str], Request], LoopGraph]"

STRATEGIES: dict[tuple[type[Target], Any], dict[int, Strategy[Any]]] = {}
"""Kind of target and operator to strategies by rank."""

GRAPH_STRATEGIES: dict[type[Target], dict[int, GraphStrategy[Any]]] = {Cpu: {}, Gpu: {}}
LOOP_STRATEGIES: dict[type[Target], dict[int, LoopStrategy[Any]]] = {Cpu: {}, Gpu: {}}


@dataclass(frozen=True)
class Request:
    """What the caller says of a graph beside its nodes.

    ``frozen``: inputs that are weights to be packed. Of the results the first ``returned`` (None: all) lie as eager's
    do, the others are kept for backward. ``input_strides``: of the first inputs, where they lie otherwise than eager's.
    """

    frozen: frozenset[str] = frozenset()
    returned: int | None = None
    input_strides: Sequence[tuple[Size, ...] | None] = ()


def strategy(kind: type[T], *operators: Any, rank: int) -> Callable[[Strategy[T]], Strategy[T]]:
    """Enter a strategy of a kind of target for each of these operators."""

    def register(fn: Strategy[T]) -> Strategy[T]:
        for operator in operators:
            if not isinstance(operator, OpOverload):
                raise KeyError(f"{operator} is no operator")
            _enter(STRATEGIES.setdefault((kind, operator), {}), rank, fn, f"{kind.__name__} and {operator}")
        return fn

    return register


def graph_strategy(kind: type[T], *, rank: int) -> Callable[[GraphStrategy[T]], GraphStrategy[T]]:
    """Enter a rewrite of whole graphs, and of what was decided about them."""

    def register(fn: GraphStrategy[T]) -> GraphStrategy[T]:
        _enter(GRAPH_STRATEGIES[kind], rank, fn, f"graphs on {kind.__name__}")
        return fn

    return register


def loop_strategy(kind: type[T], *, rank: int) -> Callable[[LoopStrategy[T]], LoopStrategy[T]]:
    """Enter a rewrite of loop graphs. It gets the devices that the target stands for, and adds to the graph's notes."""

    def register(fn: LoopStrategy[T]) -> LoopStrategy[T]:
        _enter(LOOP_STRATEGIES[kind], rank, fn, f"loops on {kind.__name__}")
        return fn

    return register


def _enter(ranks: dict[int, Any], rank: int, fn: Any, what: str) -> None:
    if rank in ranks:
        raise KeyError(f"{what} have a strategy of rank {rank} already: {ranks[rank].__name__}")
    ranks[rank] = fn


def strategies_of(target: Target | None, operator: Any) -> list[Strategy[Any]]:
    """What a target has for an operator, in the order in which it is tried."""
    ranks = STRATEGIES.get((type(target), operator), {}) if target is not None else {}
    return [ranks[rank] for rank in sorted(ranks)]


def rewritten(gm: fx.GraphModule, targets: Mapping[str, Target], request: Request) -> tuple[fx.GraphModule, list[str]]:
    """The graph as the strategies for whole graphs of the targets of its devices have it, and their notes."""
    notes = []
    for target in dict.fromkeys(targets.values()):
        ranks = GRAPH_STRATEGIES[type(target)]
        for rank in sorted(ranks):
            gm, note = ranks[rank](gm, target, request)
            notes += [note] if note else []
    return gm, notes


def rewritten_loops(graph: LoopGraph, targets: Mapping[str, Target], request: Request) -> LoopGraph:
    """The loops as the strategies for loop graphs of the targets of its devices have them."""
    for target in dict.fromkeys(targets.values()):
        devices = frozenset(device for device, its in targets.items() if its == target)
        ranks = LOOP_STRATEGIES[type(target)]
        for rank in sorted(ranks):
            graph = ranks[rank](graph, target, devices, request)
    return graph
