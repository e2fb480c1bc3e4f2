"""Strides that follow from no size, as of a slice of something that grows: symbols of their own once they changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torchglass as tg

from .test_changing_sizes import entries

SLICES: dict[str, Callable[[int], torch.Tensor]] = {
    "the last row": lambda n: torch.randn(2, n, 8)[:, -1],
    "all but the last": lambda n: torch.randn(2, n, 8)[:, :-1],
    "columns": lambda n: torch.randn(5, n)[:, :3],
    "of both": lambda n: torch.randn(3, n, 2 * n)[:, :, :n],
    "with an offset": lambda n: torch.randn(2 * n, 7, 2 * n)[n:, :, :n],
    "turned": lambda n: torch.randn(n, 6, 8)[:, :4].permute(2, 0, 1),
    "a window": lambda n: torch.randn(2, 3, n, n + 1)[:, :, 1:4, 1:4],
}
PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "a softmax": lambda x: (x / 0.7).softmax(-1),
    "sums": lambda x: (x.sum(0), x.amax(-1), x * 2 + 1),
    "views": lambda x: (x.transpose(0, 1) * 2, x[1:] + 1, x.reshape(-1) * 3, x.flatten(0, 1)),
    "layouts": lambda x: (x.contiguous(), x.is_contiguous(), x.stride(), x.view(-1) if x.is_contiguous() else x.sum()),
    "written to": lambda x: x.mul_(2).sum(0),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("slice_", SLICES)
def test_one_entry_for_all(slice_: str, program: str, dynamic: bool | None) -> None:
    function = PROGRAMS[program]
    compiled = tg.compile(function, dynamic=dynamic)
    for seed, n in enumerate((6, 9, 5, 12, 10)):
        torch.manual_seed(seed)
        x = SLICES[slice_](n)
        same = torch.empty_strided(x.shape, x.stride()).copy_(x)
        ours, eager = compiled(x), function(same)
        torch.testing.assert_close(ours, eager)
        torch.testing.assert_close(x, same)
        for one, other in zip(*([it] if isinstance(it, torch.Tensor) else it for it in (ours, eager))):
            assert not isinstance(one, torch.Tensor) or one.stride() == other.stride()
    assert entries(compiled) <= (2 if program != "layouts" else 5)  # whose results are numbers


def test_gradients_reach_what_was_sliced() -> None:
    def loss(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(scores.reshape(-1, 7), labels.reshape(-1))

    compiled = tg.compile(loss)
    for n in range(4, 9):
        x = torch.randn(2, n, 7, requires_grad=True)
        labels = torch.randint(0, 7, (2, n))
        (ours,) = torch.autograd.grad(compiled(x[:, :-1], labels[:, 1:]), x)
        (eager,) = torch.autograd.grad(loss(x[:, :-1], labels[:, 1:]), x)
        torch.testing.assert_close(ours, eager)
    assert entries(compiled) == 2


def test_what_is_said_of_it() -> None:
    compiled = tg.compile(PROGRAMS["sums"])
    for n in (6, 9, 5):
        compiled(SLICES["the last row"](n))
    text = str(tg.explain(compiled))
    assert "float32[2, 8] strides (48, 1)" in text and "float32[2, 8] strides (*, 1)" in text
    assert "x.stride(0) >= " in text
    (recompile,) = tg.explain(compiled).to_dict()["recompiles"]
    assert "x.stride(0) is left open" in recompile["advice"]


def test_after_a_graph_break() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        last = (x * 2)[:, -1]
        tg.graph_break()
        return last.softmax(-1)

    compiled = tg.compile(function)
    for n in range(3, 12):
        x = torch.randn(2, n, 5)
        torch.testing.assert_close(compiled(x), function(x))
    assert len(list(tg.explain(compiled).all_entries())) == 4
