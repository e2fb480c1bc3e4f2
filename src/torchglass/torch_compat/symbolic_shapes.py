"""Graphs whose arguments are symbolic sizes."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx


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
