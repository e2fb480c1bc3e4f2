"""Graphs with ``torch.inference_mode`` blocks are traced without them.

    enter_inference_mode(True) ... exit_inference_mode(guard)  ->  set_grad_enabled(False) ... set_grad_enabled(True)

A traced graph computes in one mode. What eager makes in a block are inference tensors, so where all new results are,
the compiled graph runs under inference mode; where some are, these are copied under it (``runtime.inference_mode``).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.fx

from ..torch_compat import enter_inference_mode, exit_inference_mode, set_grad_mode


class WithoutBlocks(NamedTuple):
    """The same operations; ``inference`` says of each result whether eager's is an inference tensor, None where there
    were no blocks.
    """

    graph: torch.fx.GraphModule
    inference: tuple[bool, ...] | None = None


def without_inference_mode(gm: torch.fx.GraphModule) -> WithoutBlocks | None:
    """The graph itself if it has no blocks; None where results could not be made what eager's are."""
    if not any(node.target is enter_inference_mode for node in gm.graph.nodes):
        return WithoutBlocks(gm)
    made = _makes_inference_tensors(gm)
    if torch.is_inference_mode_enabled() or not (all(made) or _separable(gm)):
        return None
    return WithoutBlocks(_without_blocks(gm), made)


def _without_blocks(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The same operations, without gradients where inference mode was."""
    grad = torch.is_grad_enabled()
    before: list[bool] = []
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in gm.graph.nodes:
        if node.target is enter_inference_mode:
            before.append(grad)
            grad = not node.args[0]
        elif node.target is exit_inference_mode:
            grad = before.pop()
        else:
            grad = node.args[0] if node.target is set_grad_mode else grad
            copies[node] = graph.node_copy(node, copies.__getitem__)
            continue
        graph.call_function(set_grad_mode, (grad,)).meta = dict(node.meta)
    return torch.fx.GraphModule(gm, graph, class_name="captured")


def _makes_inference_tensors(gm: torch.fx.GraphModule) -> tuple[bool, ...]:
    """For each result, whether eager's is an inference tensor."""
    (results,) = gm.graph.output_node().args
    return tuple(isinstance(n, torch.fx.Node) and n.meta["val"].is_inference() for n in results)


def _separable(gm: torch.fx.GraphModule) -> bool:
    """Whether each result that is an inference tensor has memory of its own, so that a copy is as good."""
    (results,) = gm.graph.output_node().args
    fakes = [n.meta["val"] for n in (*gm.graph.find_nodes(op="placeholder"), *results)]
    storages = [t.untyped_storage()._cdata for t in fakes]
    return all(storages.count(s) == 1 for t, s in zip(fakes, storages) if t.is_inference())
