"""Loops over what is read of them, and no more."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import torchglass as tg

Tensor = torch.Tensor


def shifted(x: Tensor) -> Tensor:
    return F.pad(x, (1, 0))[:, :-1] * 0.5 + x


def neighbours(x: Tensor) -> Tensor:
    y = x.exp()
    return y[2:, 1:] - y[:-2, :-1]


def one_row(x: Tensor) -> Tensor:
    return (x * 2 + torch.arange(x.shape[1]))[3] + 1


def a_corner(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.sin() * 3
    return y[1:3, 2:4].cos(), y[1:3, 2:4].sum(0)


def time_shift(x: Tensor) -> Tensor:
    before = F.pad(x.view(2, -1, x.shape[1]), (0, 0, 1, -1))
    return before * 0.25 + x.view(2, -1, x.shape[1])


def whole(x: Tensor) -> Tensor:
    y = x.exp()
    return y[1:] + y[:-1] + y.sum()


def returned(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.exp()
    return y, y[1:] * 2


@pytest.mark.parametrize(
    "function, smaller",
    [(shifted, True), (neighbours, False), (one_row, True), (a_corner, True), (time_shift, False), (whole, False),
     (returned, False)],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_as_eager(function, smaller, dtype, tmp_path):
    torch.manual_seed(0)
    x = torch.randn(6, 8, dtype=dtype)
    with tg.prepare_debug(tmp_path):
        found = tg.compile(function, fullgraph=True)(x)
    # eager rounds to half precision between operations
    close = {"rtol": 0.02, "atol": 0.05} if dtype is torch.bfloat16 else {}
    torch.testing.assert_close(found, function(x), **close)
    (loops,) = tmp_path.rglob("forward.loops")
    assert ("no more is read" in loops.read_text()) == smaller


def test_a_shifted_sum_is_one_kernel(tmp_path):
    x = torch.randn(6, 8, requires_grad=True)
    with tg.prepare_debug(tmp_path):
        tg.compile(shifted)(x).sum().backward()
    found = x.grad
    x.grad = None
    shifted(x).sum().backward()
    torch.testing.assert_close(found, x.grad)
    (wrapper,) = tmp_path.rglob("forward_wrapper.py")
    assert wrapper.read_text().count("    kernel_") == 1
