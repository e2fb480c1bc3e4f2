"""Writing nodes of a graph, where a pass puts several in the place of one."""

from __future__ import annotations

from typing import Any

from torch import fx

from ..torch_compat import create_node


def working_copy(gm: fx.GraphModule) -> fx.Graph:
    """A copy of the module's graph for a pass to rewrite: other passes and targets still have the original."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in gm.graph.nodes:
        args, kwargs = fx.map_arg((node.args, node.kwargs), copies.__getitem__)
        copies[node] = create_node(graph, node.op, node.target, args, kwargs, node.name)
        copies[node].meta = dict(node.meta)
    return graph


class NodeBuilder:
    """Makes nodes ahead of ``node``, as from its place in the user's code; ``val``: what the value is like."""

    def __init__(self, node: fx.Node) -> None:
        self._node = node

    def __call__(self, target: Any, *args: Any, val: Any = None, name: str | None = None, **kwargs: Any) -> fx.Node:
        node = self._node
        with node.graph.inserting_before(node):
            new = create_node(node.graph, "call_function", target, args, kwargs, name)
        val = target(*fx.map_arg(args, lambda n: n.meta["val"]), **kwargs) if val is None else val
        new.meta = {**node.meta, "val": val}
        return new
