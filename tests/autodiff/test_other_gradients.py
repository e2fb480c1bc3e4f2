"""Gradients that arrive in another way than the first ones did: each has a backward of its own."""

from __future__ import annotations

import gc

import pytest
import torch

import torchglass as tg


def outputs(x, w):
    y = torch.tanh(x @ w)
    return y.t(), (y * x).sum(-1), x.exp()


def gradients(function, uses, x, w):
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    found = function(x, w)
    sum((found[use] * (use + 2)).sum() for use in uses).backward()
    return x.grad, w.grad


@pytest.mark.parametrize("backend", ["aot_eager", "glass"])
@pytest.mark.parametrize("order", [[(0,), (0, 1, 2), (1, 2)], [(0, 1, 2), (2,), (0, 1)], [(2,), (1,), (0, 1, 2), (2,)]])
def test_each_is_eagers(backend, order) -> None:
    compiled = tg.compile(outputs, backend=backend, fullgraph=True)
    x, w = torch.randn(4, 4), torch.randn(4, 4)
    for uses in order:
        found, expected = gradients(compiled, uses, x, w), gradients(outputs, uses, x, w)
        for one, other in zip(found, expected):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other)


def graphs_of(count: int) -> int:
    gc.collect()
    found = [o for o in gc.get_objects() if type(o) is torch.fx.Graph and o.owning_module is not None]
    return sum(len(graph.nodes) > count for graph in found)


def test_the_backward_that_was_not_needed_goes() -> None:
    def deep(x):
        for _ in range(700):
            x = torch.sin(x)
        return x, x * 2

    compiled = tg.compile(deep, backend="aot_eager", dynamic=False)
    before = graphs_of(700)
    for size in range(2, 7):
        x = torch.randn(size, requires_grad=True)
        compiled(x)[0].sum().backward()
    assert graphs_of(700) - before <= 4  # of the latest: what all is kept of, in case an equal graph comes
