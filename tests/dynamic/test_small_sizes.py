"""Sizes of 1 that grow, and sizes that fall to 1 and to 0: eager's results, layouts and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torchglass as tg

from .test_changing_sizes import entries, results

FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "broadcast": lambda x: x + x[:, :1],
    "both ways": lambda x: x[:, 0] + x[0],  # an error but where they are equal, or one of them is 1
    "squeezed": lambda x: x.squeeze(),
    "rank of what is squeezed": lambda x: (x * 2, x.squeeze().dim(), x.squeeze(1).shape, x.squeeze((0, 1)).shape),
    "squeezed in place": lambda x: x.clone().squeeze_(0),
    "turned": lambda x: (x.transpose(0, 1).contiguous(), x.transpose(0, 1) * 2),
    "expanded": lambda x: x[:, :1].expand(-1, x.shape[1], -1) * x,
    "largest": lambda x: x.amax(1),
    "means": lambda x: (x.mean(1), x.sum(0), x.softmax(1)),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "layouts": lambda x: (x.is_contiguous(), (x * 2).transpose(0, 1).stride(), x.numel(), len(x)),
    "products": lambda x: x @ x.transpose(1, 2),
    "made": lambda x: x.new_empty(x.shape).fill_(1),
}
SEQUENCES = {
    "a first dimension of one grows": ((1, 6), (4, 6), (3, 5), (2, 2)),
    "a second one does": ((4, 1), (4, 6), (3, 5), (2, 1)),
    "both, together and apart": ((1, 1), (2, 2), (3, 3), (1, 3), (3, 1)),
    "they fall to none": ((4, 6), (3, 5), (0, 5), (2, 5), (3, 0), (0, 0), (1, 1), (1, 5)),
}


def outcome(function: Callable[..., Any], x: torch.Tensor) -> Any:
    try:
        return [(one, one.stride()) if isinstance(one, torch.Tensor) else one for one in results(function(x))]
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("sizes", SEQUENCES.values(), ids=SEQUENCES)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_as_in_eager(function: Any, sizes: Any, dynamic: bool | None) -> None:
    compiled = tg.compile(function, backend="aot_eager", dynamic=dynamic)
    for b, t in sizes:
        x = torch.randn(b, t, 16)
        ours, eager = outcome(compiled, x), outcome(function, x)
        if isinstance(eager, list):
            torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4, equal_nan=True)
        else:
            assert ours is eager


@pytest.mark.parametrize("sizes", [SEQUENCES["a first dimension of one grows"], SEQUENCES["a second one does"]])
def test_what_asks_nothing_of_ones_has_no_entry_for_them(sizes: Any) -> None:
    compiled = tg.compile(FUNCTIONS["means"], backend="aot_eager")
    for b, t in (*sizes, (1, 7), (5, 1), (9, 9)):
        compiled(torch.randn(b, t, 16))
    assert entries(compiled) <= 3


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_of_nothing(reduction: str) -> None:
    """Of which backward's meta functions divide by the number of elements, in Python."""
    losses = [F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.l1_loss, F.soft_margin_loss]

    def total(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.stack([loss(x, y, reduction=reduction).sum() for loss in losses])

    compiled = tg.compile(total, fullgraph=True)
    for rows in (8, 5, 0, 3, 0):
        x, y = torch.randn(rows, 3, requires_grad=True), torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x, y), total(x, y), equal_nan=True)
        gradients = [torch.autograd.grad(run(x, y).sum(), x) for run in (compiled, total)]
        torch.testing.assert_close(*gradients)


def test_a_size_that_its_range_makes_one_is_broadcast() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if not 3 <= x.shape[0] <= 4:
            return x.sum()
        return torch.arange(4.0) * x.sum() + y[:, : (x.shape[0] + 1) // 4]

    compiled: Any = tg.compile(function, dynamic=True)
    for n in (4, 3, 5):
        x, y = torch.randn(n), torch.randn(6, 4)
        torch.testing.assert_close(compiled(x, y), function(x, y))


def test_strides_of_one_row_count_where_they_are_asked() -> None:
    """They are in no guard otherwise, since no address depends on them."""
    rows = torch.arange(80.0).view(10, 8), torch.arange(16.0).view(4, 4), torch.arange(30.0).view(6, 5)
    asking: list[Callable[[torch.Tensor], Any]] = [
        lambda x: x * x.stride(0),
        lambda x: x.as_strided((1, 3), (1, 1), x.stride(0)).zero_(),
        lambda x: torch.as_strided(x, (2, 3), (x.stride(0), 1)) + 0,
    ]
    for function in asking:
        compiled = tg.compile(function)
        for wide in rows:
            torch.testing.assert_close(compiled(wide.clone()[:1, :3]), function(wide.clone()[:1, :3]))


def test_strides_of_a_row_that_came_to_be_the_only_one() -> None:
    def function(x: torch.Tensor) -> tuple[tuple[int, ...], torch.Tensor]:
        return x.stride(), x + 1

    compiled = tg.compile(function)
    for n, m in ((4, 5), (1, 5), (1, 4), (6, 1), (3, 2), (1, 1)):
        x = torch.zeros(n + 1, m + 2)[1:, 1:-1]
        assert compiled(x)[0] == function(x)[0]


def test_gradients_of_a_size_that_became_one() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return ((x @ x.t()).softmax(-1) @ x).t()

    compiled = tg.compile(function)
    for n in (4, 5, 1):
        x = torch.randn(n, 3, requires_grad=True)
        (ours,) = torch.autograd.grad(compiled(x), x, torch.ones(3, n))
        (eager,) = torch.autograd.grad(function(x), x, torch.ones(3, n))
        torch.testing.assert_close(ours, eager)


def test_a_diagonal_of_one_element_is_written_to() -> None:
    """Its length is ``max(min(rows, columns), 0)``, and no ``max(size, 1)`` as strides have it."""

    def function(x: torch.Tensor) -> torch.Tensor:
        x.diagonal().zero_()
        return x + 1

    compiled = tg.compile(function, dynamic=True)
    for rows, deep in ((4, 6), (1, 1), (2, 3)):
        x = torch.randn(rows, 3, deep, requires_grad=True)
        (ours,) = torch.autograd.grad(compiled(x * 1).sum(), x)
        (eager,) = torch.autograd.grad(function(x * 1).sum(), x)
        torch.testing.assert_close(ours, eager)
