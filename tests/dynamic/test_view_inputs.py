"""Arguments that are views with a history, as after a graph break: their sizes stay open, and autograd refuses and
follows writes to them as in eager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchglass as tg

from .test_changing_sizes import entries

Function = Callable[..., Any]


def viewed_without_grad(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return x.view(len(x), -1)


VIEWS: dict[str, Function] = {
    "view": lambda x: x.view(len(x), -1),
    "turned": lambda x: x.transpose(0, 1),
    "slice": lambda x: x[1:],
    "one of several": lambda x: x.chunk(2, 0)[0],
    "expanded": lambda x: x[:1].expand(4, x.shape[1]),
    "of complex": lambda x: torch.view_as_real(torch.complex(x, x))[..., 0],
    "without grad": viewed_without_grad,
}
READS: dict[str, Function] = {
    "computed with": lambda v, w: (v * w).tanh(),
    "viewed again": lambda v, w: v.transpose(0, 1),
    "detached": lambda v, w: v.detach() + w,
}


def written(v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    v.add_(w)
    return v * 2


def written_through_a_view(v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    v.view(-1).mul_(2)
    return v * w


def written_where(v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    v[v > 0] = 0.5
    return v + w


def outcome(function: Function, view: Function, leaf: bool, n: int) -> list[Any]:
    torch.manual_seed(n)
    x = torch.randn(n, 6, requires_grad=True)
    base = x if leaf else x * 3
    try:
        v = view(base)
        result = function(v, torch.randn(v.shape[-1]))
        (base * base).sum().backward(retain_graph=True)
        if result.requires_grad:
            result.sum().backward()
    except RuntimeError as error:
        return [str(error).split(":")[0]]
    return [result.detach(), base.detach(), x.grad, v.requires_grad, result._is_view(), type(v.grad_fn).__name__]


def assert_as_eager(ours: list[Any], eager: list[Any]) -> None:
    assert len(ours) == len(eager), (ours, eager)
    for one, other in zip(ours, eager):
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(one, other)
        else:
            assert one == other


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("function", READS.values(), ids=READS)
def test_read(view: Function, function: Function) -> None:
    compiled = tg.compile(function, dynamic=True)
    for n in (4, 6, 5):
        assert_as_eager(outcome(compiled, view, False, n), outcome(function, view, False, n))
    assert entries(compiled) <= 2


@pytest.mark.filterwarnings("ignore:Use of")
@pytest.mark.parametrize("leaf", (False, True), ids=("of a result", "of a leaf"))
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("function", (written, written_through_a_view, written_where))
def test_written(view: Function, function: Function, leaf: bool) -> None:
    compiled = tg.compile(function, dynamic=True)
    for n in (4, 6, 5):
        assert_as_eager(outcome(compiled, view, leaf, n), outcome(function, view, leaf, n))


def test_results_of_a_graph_that_are_views_are_open_after_the_break() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        rows = (x * 2).view(-1, 4)
        tg.graph_break()
        return rows.tanh()

    compiled = tg.compile(function, dynamic=True)
    for n in (2, 3, 5):
        x = torch.randn(n, 4, 4, requires_grad=True)
        torch.testing.assert_close(compiled(x), function(x))
    assert [len(each.entries) for each in tg.explain(compiled).record.walk()] == [1, 1]
