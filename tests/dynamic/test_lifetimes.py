"""Nothing of a call outlives it: sizes that are left open hold on to no tensor, whichever stage met them."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

import torchglass as tg


def scaled(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x @ weight).sum()


def chosen(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (x[x > 0] * 2).sum() + weight.sum()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("function", [scaled, chosen])
def test_the_first_inputs_are_let_go(function: Any, training: bool) -> None:
    compiled: Any = tg.compile(function, dynamic=True, fullgraph=True)
    x, weight = torch.randn(6, 4, requires_grad=training), torch.randn(4, 4, requires_grad=training)
    result = compiled(x, weight)
    if training:
        result.backward()
    held = [weakref.ref(x), weakref.ref(weight)]
    del x, weight, result
    gc.collect()
    assert [one() for one in held] == [None, None]


def test_a_capture_that_starts_over_lets_go() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        print(y.sum().item())  # which breaks the graph
        return y * x.shape[0]

    compiled: Any = tg.compile(broken, dynamic=True)
    x = torch.randn(6, 4)
    held = weakref.ref(x)
    compiled(x)
    del x
    gc.collect()
    assert held() is None
