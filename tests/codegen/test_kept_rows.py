"""Sums over some of the rows beside what each row needs whole: the rows that are kept go outside."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.codegen.harness import check

Tensor = torch.Tensor


def two_sums(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return x * y, (x * y).sum(0), (x + y).sum(0)


def of_softmax(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    s = x.softmax(-1)
    return s, (s * y).sum(0)


def largest_and_mean(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    d = x - x.mean(-1, keepdim=True)
    return d, (d * y).amax(0), d.square().mean(0)


def of_heads(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    turned = x.transpose(0, 1) * y.transpose(0, 1)
    return turned.sum(1), (turned * 2).sum(1), turned + 1


def single_numbers(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    s = x.sum(-1)
    return s, (s * 2).sum(0), x * s.unsqueeze(-1)


@pytest.mark.parametrize("shape", [(2, 3, 5), (20, 7, 40), (70, 33, 17)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("function", [two_sums, of_softmax, largest_and_mean, of_heads, single_numbers])
def test_as_eager(function: Callable, dtype: torch.dtype, shape: tuple[int, ...], tmp_path):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.rand(shape, generator=generator).to(dtype) for _ in range(2))
    check(function, [x, y], tmp_path, tol=0.1 if dtype is torch.bfloat16 else 1e-5)


def test_two_sums_are_one_kernel(tmp_path):
    compiled = check(two_sums, [torch.rand(20, 7, 40), torch.rand(20, 7, 40)], tmp_path)
    assert len(compiled.fused.kernels) == 1
