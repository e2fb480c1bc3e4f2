"""What PyTorch's shape environment knows of the symbols in sizes."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.fx

# SymInt.node.expr, .shape_env: the SymPy expression that a symbolic size is, and the ShapeEnv that its symbols are in;
# ShapeEnv.var_to_range: the range of each. Without them no graph with symbolic sizes is lowered. ShapeEnv's table of
# the values that symbols had is called var_to_val in 2.11 and backed_var_to_val in 2.13. Tried: 2.13.


class SymbolFacts(NamedTuple):
    """The value that a symbol had (None: it comes from data), and the range that it lies in (None: no end known)."""

    hint: int | None
    low: int | None
    high: int | None


def expression_of(size: torch.SymInt) -> tuple[Any, Any]:
    """A symbolic size as a SymPy expression, and the environment of its symbols."""
    return size.node.expr, size.node.shape_env


def symbol_facts(environment: Any, symbol: Any) -> SymbolFacts:
    """What is known of a symbol in an expression."""
    values = environment.backed_var_to_val if hasattr(environment, "backed_var_to_val") else environment.var_to_val
    hint, within = values.get(symbol), environment.var_to_range.get(symbol)
    low, high = (None, None) if within is None else (_number(within.lower), _number(within.upper))
    return SymbolFacts(None if hint is None else int(hint), low, high)


def _number(end: Any) -> int | None:
    return int(end) if end.is_Integer else None


def create_node(
    graph: torch.fx.Graph, op: str, target: Any, args: Any, kwargs: Any, name: str | None = None
) -> torch.fx.Node:
    """A node whose arguments may be symbolic sizes, of which 2.13's ``Graph.create_node`` warns."""
    node = graph.create_node(op, target, (), {}, name)
    node.args, node.kwargs = args, kwargs
    return node


def reserved_name(graph: torch.fx.Graph, name: str) -> str:
    """A name like this one that no node of a graph has, nor will have."""
    return graph._graph_namespace.create_name(name, None)
