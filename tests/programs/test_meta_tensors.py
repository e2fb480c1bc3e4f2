"""Tensors without memory, by which programs learn shapes: graphs of them run as captured, by PyTorch's operators."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import torchglass as tg


def layers() -> torch.Tensor:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.LayerNorm(4), nn.Linear(4, 2))(torch.randn(2, 3))


def of_data() -> tuple[torch.Tensor, ...]:
    return torch.tensor(1.5) + 2, torch.tensor([1, 2]), torch.ones(2, device="cpu") + 1


def written() -> torch.Tensor:
    x = torch.zeros(2, 3)
    x[0] = torch.tensor([1.0, 2.0, 3.0])
    return x.add_(1).softmax(-1)


def attended() -> torch.Tensor:
    x = torch.randn(1, 2, 8, 4)
    return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("program", [layers, of_data, written, attended], ids=lambda p: p.__name__)
@pytest.mark.complains("tensors on meta, for which no code is generated: PyTorch runs it")
def test_results_are_eagers(program: Callable[[], object], caplog: pytest.LogCaptureFixture) -> None:
    with torch.device("meta"):
        wanted, found = program(), tg.compile(program)()
    torch.testing.assert_close(found, wanted)
    assert len(caplog.records) == 1


@pytest.mark.complains("tensors on meta, for which no code is generated: PyTorch runs it")
def test_a_module_that_is_first_called_on_meta() -> None:
    """Calls on the CPU are compiled."""
    module = nn.Linear(3, 3, device="meta")
    compiled = tg.compile(module)
    result = compiled(torch.randn(2, 3, device="meta"))
    assert result.is_meta and result.shape == (2, 3)
    result.sum().backward()
    assert module.weight.grad is not None and module.weight.grad.is_meta
    module.to_empty(device="cpu")
    x = torch.randn(2, 3)
    torch.testing.assert_close(compiled(x), module(x))
    entries = tg.explain(compiled).record.entries
    assert [len(entry.graphs[0].sides) > 1 for entry in entries] == [False, True]


def test_fullgraph_refuses() -> None:
    @tg.compile(fullgraph=True)
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.ones(2, device="meta") + 2

    with pytest.raises(tg.CompileError, match="no code is generated for tensors on meta"):
        function(torch.ones(2))
