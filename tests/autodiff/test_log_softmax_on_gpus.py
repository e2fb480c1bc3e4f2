"""``log_softmax`` of a GPU's tensors is traced in its parts: backward reads the logits and two numbers a row."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

from torchglass import autodiff

Graph = torch.fx.GraphModule


def saved(device: str, dtype: torch.dtype) -> tuple[Graph, list[tuple[tuple[int, ...], torch.dtype]]]:
    """The forward of a loss over a vocabulary, and shapes and dtypes of what it keeps beside its inputs."""

    class Loss(torch.nn.Module):
        def forward(self, logits: Any, labels: Any) -> Any:
            return F.cross_entropy(logits.float(), labels)

    mode = FakeTensorMode()
    with mode:
        logits = torch.empty(64, 1000, dtype=dtype, device=device, requires_grad=True)
        labels = torch.empty(64, dtype=torch.int64, device=device)
    graph = torch.fx.symbolic_trace(Loss())
    for node, val in zip(graph.graph.find_nodes(op="placeholder"), (logits, labels)):
        node.meta["val"] = val
    partition = autodiff.trace_training(graph, [logits, labels])
    (output,) = partition.forward.graph.find_nodes(op="output")
    vals = [output.args[0][s.place.index].meta["val"] for s in partition.saved if s.place.kind == "output"]
    return partition.forward, [(tuple(v.shape), v.dtype) for v in vals]


def names(graph: Graph) -> set[str]:
    return {str(node.target) for node in graph.graph.nodes if node.op == "call_function"}


def test_on_a_cpu_it_is_one_operator() -> None:
    graph, _ = saved("cpu", torch.bfloat16)
    assert "aten._log_softmax.default" in names(graph)


@pytest.mark.skipif(torch.version.cuda is None, reason="fake tensors of a GPU want a build that knows it")
def test_nothing_of_the_size_of_the_logits_is_kept() -> None:
    graph, kept = saved("cuda", torch.bfloat16)
    assert "aten._log_softmax.default" not in names(graph) and "aten.amax.default" in names(graph)
    assert kept and all(shape == (64, 1) or shape == () for shape, _ in kept)
