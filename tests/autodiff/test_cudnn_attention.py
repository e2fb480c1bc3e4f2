"""The gradient that cuDNN's attention is given lies as its result does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torchglass import autodiff

aten = torch.ops.aten
BACKWARD = aten._scaled_dot_product_cudnn_attention_backward.default


class Attention(torch.nn.Module):
    """Heads as a projection leaves them, and a result whose gradient arrives head by head, or as it lies."""

    def __init__(self, head_by_head: bool) -> None:
        super().__init__()
        self.head_by_head = head_by_head

    def forward(self, x: Any) -> Any:
        heads = [(x * n).view(2, 48, 4, 32).transpose(1, 2) for n in (1.0, 0.5, 2.0)]
        out = aten._scaled_dot_product_cudnn_attention(*heads, None, True)[0]
        return out.contiguous() if self.head_by_head else out * 2


@pytest.mark.parametrize("head_by_head", [False, True])
def test_gradients_lie_as_the_result(head_by_head: bool) -> None:
    with FakeTensorMode():
        x = torch.empty(2, 48, 128, requires_grad=True)
    graph = torch.fx.symbolic_trace(Attention(head_by_head))
    (placeholder,) = graph.graph.find_nodes(op="placeholder")
    placeholder.meta["val"] = x
    backward = autodiff.trace_training(graph, [x]).backward
    assert backward is not None
    (call,) = backward.graph.find_nodes(op="call_function", target=BACKWARD)
    gradient, out = call.args[0].meta["val"], call.args[4].meta["val"]
    assert gradient.stride() == out.stride() == (6144, 32, 128, 1)
    copies = backward.graph.find_nodes(op="call_function", target=aten.clone.default)
    assert bool(copies) == head_by_head
