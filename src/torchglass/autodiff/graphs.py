"""Builds an FX graph module from ops; and what captured graphs say of gradients.

Input: ops in execution order, which of them are inputs and which are returned. Output: a ``torch.fx.GraphModule`` whose
nodes carry ``meta["val"]`` (FakeTensor), ``meta["origin"]`` (Origin) and ``meta["captured"]`` (name of the captured
node).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
import torch.fx

from ..torch_compat import create_node, graph_module, set_grad_mode
from .ops import CALL, CONSTANT, Op, substitute


def build(
    name: str,
    inputs: Sequence[Op],
    ops: Iterable[Op],
    outputs: Sequence[Op],
    stand_ins: Mapping[Op, Op] | None = None,
) -> torch.fx.GraphModule:
    """A graph module called ``name``: ``inputs`` become placeholders, calls and constants of ``ops`` nodes.

    ``stand_ins[a] = b`` reads ``b`` wherever the ops read ``a``.
    """
    graph = torch.fx.Graph()
    nodes: dict[Op, torch.fx.Node] = {}
    held: dict[str, torch.Tensor] = {}
    for op in inputs:
        nodes[op] = _stamped(graph.create_node("placeholder", op.name, name=op.name), op)
    for op, stand_in in (stand_ins or {}).items():
        nodes[op] = nodes[stand_in]
    swap = nodes.__getitem__
    for op in ops:
        if op in nodes:
            continue
        if op.kind is CONSTANT:
            held[op.name] = op.target
            nodes[op] = _stamped(graph.create_node("get_attr", op.name, name=op.name), op)
        elif op.kind is CALL:
            args = substitute(op.args, swap)
            kwargs = {key: substitute(arg, swap) for key, arg in op.kwargs.items()}
            nodes[op] = _stamped(create_node(graph, "call_function", op.target, args, kwargs, op.name), op)
    graph.create_node("output", "output", (tuple(nodes[op] for op in outputs),), name="output")
    return graph_module(held, graph, name)


def _stamped(node: torch.fx.Node, op: Op) -> torch.fx.Node:
    node.meta["val"] = op.val
    node.meta["origin"] = op.origin
    node.meta["captured"] = op.captured
    return node


def enables_grad(gm: torch.fx.GraphModule) -> bool:
    """Whether a captured graph switches grad mode on."""
    return any(n.target is set_grad_mode and n.args[0] for n in gm.graph.nodes)


def differentiates(gm: torch.fx.GraphModule) -> bool:
    """Whether a captured graph asks for gradients itself, perhaps by tensors that it makes."""
    return any(n.target is torch.autograd.grad for n in gm.graph.nodes)
