"""What is read only after a sum over all rows is not made beside that sum, to be stored and read again."""

from __future__ import annotations

import pytest
import torch
from tests.codegen.harness import check

Tensor = torch.Tensor


def standardize(x: Tensor) -> Tensor:
    return (x - x.mean(0)) / (x.std(0) + 1e-5)


def read_at_once_too(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    return y / x.exp().sum(0), y + 1


def returned(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    return y / (x * x).sum(0), y


def test_a_difference_joins_the_division_that_waits_for_the_sum(tmp_path):
    compiled = check(standardize, [torch.rand(1500, 40)], tmp_path)  # too long for rows across memory
    assert any("waits for the whole of std" in d.why for d in compiled.fused.decisions)
    assert any("sub" in kernel.local for kernel in compiled.fused.kernels)


@pytest.mark.parametrize("function", [read_at_once_too, returned])
def test_what_is_returned_or_read_at_once_joins_the_sum(function, tmp_path):
    compiled = check(function, [torch.rand(300, 40)], tmp_path)
    assert not any("waits for" in d.why for d in compiled.fused.decisions)
