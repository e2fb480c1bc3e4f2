"""What is another tensor's memory at some sizes and a copy at others: writes, results and questions are eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchglass as tg

from .test_changing_sizes import entries

SIZES = [(4, 6), (3, 5), (1, 7), (5, 1), (1, 1), (2, 8)]


def turned(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(0, 1).contiguous()


def writes_what_may_be_a_copy(x: torch.Tensor) -> Any:
    y = turned(x)
    y.add_(1)
    return x * 2


def writes_what_may_be_copied(x: torch.Tensor) -> Any:
    y = turned(x).reshape(-1)
    x.mul_(2)
    return y + 1


def writes_through_two(x: torch.Tensor) -> Any:
    y = x * 2
    z = turned(y).flatten(0, 1)
    z[0] = 7
    return y.sum(0)


def asks(x: torch.Tensor) -> Any:
    y = x.transpose(0, 1)
    return y * 2 if y.is_contiguous() else y * 3


SEEN: dict[str, Callable[[torch.Tensor], Any]] = {
    "written": writes_what_may_be_a_copy, "written to": writes_what_may_be_copied, "through two": writes_through_two,
    "asked": asks, "an argument is handed out": turned, "in rows": lambda x: x.transpose(0, 1).reshape(-1),
    "both are handed out": lambda x: (y := x * 2, turned(y)), "flat": lambda x: x.mT.flatten(),
    "the last kept": lambda x: (turned(x), turned(x * 2)),
    "as images": lambda x: x[None].to(memory_format=torch.channels_last),
}  # fmt: skip


def changed(x: torch.Tensor, result: Any) -> list[torch.Tensor]:
    """All that a program sees when it writes to the last of its results."""
    results = list(result) if isinstance(result, tuple) else [result]
    before = [one.clone() for one in (x, *results)]
    results[-1].fill_(3)
    return [*before, x, *results]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])
@pytest.mark.parametrize("function", SEEN.values(), ids=SEEN)
def test_whether_it_is_a_copy_shows(function: Callable[..., Any], backend: str) -> None:
    compiled = tg.compile(function, backend=backend)
    for b, t in SIZES:
        ours, eager = (torch.arange(b * t * 2.0).view(b, t, 2) for _ in range(2))
        torch.testing.assert_close(changed(ours, compiled(ours)), changed(eager, function(eager)))


HIDDEN: dict[str, Callable[[torch.Tensor], Any]] = {
    "computed with": lambda x: turned(x) * 2,
    "heads": lambda x: (x @ x.mT).unflatten(-1, (1, -1)).transpose(1, 2).reshape(x.shape[0], x.shape[1], -1) + 1,
    "windows": lambda x: (x * 2).view(x.shape[0], -1, 1, 2).transpose(1, 2).reshape(-1, x.shape[1], 2).softmax(-1),
}


@pytest.mark.parametrize("function", HIDDEN.values(), ids=HIDDEN)
def test_where_it_does_not_sizes_of_one_have_no_entry(function: Callable[..., Any]) -> None:
    compiled = tg.compile(function, backend="glass")
    for b, t in [(4, 6), (3, 5), (1, 7), (5, 1), (1, 1), (2, 8)]:
        x = torch.randn(b, t, 2)
        torch.testing.assert_close(compiled(x), function(x))
    assert entries(compiled) == 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])
def test_gradients_through_what_may_be_a_copy(backend: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = turned(x.sin()).reshape(-1, 2)
        return turned((y * y.detach().mean(0)).view(x.shape[1], -1, 2)).cos()

    compiled = tg.compile(function, backend=backend)
    for b, t in SIZES:
        x = torch.randn(b, t, 2, requires_grad=True)
        ours, eager = (torch.autograd.grad(f(x).square().sum(), x)[0] for f in (compiled, function))
        torch.testing.assert_close(ours, eager)
    assert entries(compiled) <= 3


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_write_to_what_is_a_view_where_a_size_is_1(backend: str) -> None:
    def function(x):
        return x.flatten(1, -1).mul_(2) + 1

    compiled = tg.compile(function, backend=backend)
    for a, b in ((4, 6), (5, 7), (3, 1), (1, 5), (1, 1), (6, 6)):
        ours, eager = (torch.ones(4, b, a).permute(2, 1, 0) for _ in range(2))
        torch.testing.assert_close(compiled(ours), function(eager))
        torch.testing.assert_close(ours, eager)
