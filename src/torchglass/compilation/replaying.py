"""Whether a side's kernels can run as a CUDA graph: a graph in loops in, a ``Replay`` out.

What is captured computes with the memory, and with the numbers of the host, that there were then. So all that a graph
reads and makes must be on one GPU, and nothing may ask what a tensor holds.
"""

from __future__ import annotations

import torch
import torch.fx

from ..records.loops import Buffer, LoopGraph
from ..records.side_call import Replay
from ..torch_compat import HigherOrderOperator, OpOverload

MODES = frozenset({"reduce-overhead", "max-autotune"})
"""Modes in which GPUs replay CUDA graphs."""

WAITING = tuple(
    getattr(torch.Tag, name)
    for name in ("data_dependent_output", "dynamic_output_shape", "cudagraph_unsafe")
    if hasattr(torch.Tag, name)
)
"""Tags of operators that tell the host what the GPU has computed, or say themselves that no graph may hold them."""


def replay_of(gm: torch.fx.GraphModule, loops: LoopGraph, returned: int | None = None) -> Replay | None:
    """What is known of a side that ``gm`` was lowered to; None for one without tensors on a GPU."""
    devices = {buffer.device for buffer in loops.buffers.values() if not _is_handed(buffer)}
    if not any(device.startswith("cuda") for device in devices):
        return None
    places = {name: place for place, name in enumerate(loops.inputs)}
    written = tuple(sorted(places[old] for _, old in loops.updates))
    return Replay(returned, written, _unsafe(gm, devices))


def _is_handed(buffer: Buffer) -> bool:
    """Whether a replay gives it to the graph, or it is there: a number of the CPU's, a constant."""
    number = buffer.role == "input" and buffer.device == "cpu" and buffer.numel == 1
    return number or buffer.role not in ("input", "temp")


def _unsafe(gm: torch.fx.GraphModule, devices: set[str]) -> str:
    if len(devices) > 1:
        return f"it has tensors on {' and '.join(sorted(devices))}"
    return next(filter(None, (_unsafe_call(node) for node in gm.graph.nodes if node.op == "call_function")), "")


def _unsafe_call(node: torch.fx.Node) -> str:
    if any(isinstance(one, torch.Generator) for one in (*node.args, *node.kwargs.values())):
        return f"{node.target} draws from a generator of the program's"
    if isinstance(node.target, HigherOrderOperator):
        return f"{node.target} calls graphs"
    if not isinstance(node.target, OpOverload):
        return ""
    if _is_attention_that_drops_out(node, node.target):
        return f"{node.target} drops out, whose seed lies on the GPU while a graph is captured and on the CPU else"
    return next((f"{node.target} is tagged {tag.name}" for tag in WAITING if tag in node.target.tags), "")


def _is_attention_that_drops_out(node: torch.fx.Node, operator: OpOverload) -> bool:
    """PyTorch's, forward or backward: what one of the two kinds of call has saved crashes the other."""
    names = [argument.name for argument in operator._schema.arguments]
    if "dropout_p" not in names or "attention" not in str(operator):
        return False
    place = names.index("dropout_p")
    value = node.args[place] if place < len(node.args) else node.kwargs.get("dropout_p", 0.0)
    return value != 0.0
