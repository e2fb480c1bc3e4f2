"""What ``benchmarks.kernels`` calls wrong, and what it does not."""

from __future__ import annotations

import math

import pytest
import torch
from benchmarks import kernels

EXACT = torch.linspace(-1, 1, 101, dtype=torch.float64)
EAGER = EXACT.bfloat16()


def changed(x: torch.Tensor, value: float) -> torch.Tensor:
    return torch.where(torch.arange(len(x)) == 7, value, x)


@pytest.mark.parametrize(
    ("eager", "ours", "worse"),
    [
        (EAGER, EAGER, False),
        (EAGER, EXACT.float(), False),
        (changed(EAGER, 3.0), EAGER, False),  # eager took another side of a relu
        (changed(EAGER, math.nan), EAGER, False),
        (EAGER, changed(EAGER, 3.0), True),
        (EAGER, changed(EAGER, math.nan), True),
        (changed(EAGER, math.nan), changed(EAGER, math.nan), True),
        (changed(EAGER, 3.0), EAGER + 1.0, True),  # one element far off does not excuse all
    ],
)
def test_worse_than_eager(eager: torch.Tensor, ours: torch.Tensor, worse: bool) -> None:
    assert kernels.worse((None, EXACT), (None, eager), (None, ours)) is worse


def test_gradients_begin_with_the_same_numbers() -> None:
    half, exact = torch.zeros(5, 7, dtype=torch.bfloat16), torch.zeros(5, 7, dtype=torch.float64)
    torch.manual_seed(1)
    first = kernels._weight(half, "bfloat16")
    torch.manual_seed(1)
    assert torch.equal(first.double(), kernels._weight(exact, "bfloat16"))


def test_infinite_results_are_compared() -> None:
    x = torch.tensor([1.0, math.inf, math.nan])
    assert kernels.difference(x, x.clone(), "float32") is None
    assert "WRONG" in str(kernels.difference(x, torch.tensor([1.5, math.inf, math.nan]), "float32"))
