"""A kernel that goes from point to point writes its result over what it reads for the last time."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from tests.codegen.harness import Compiled, check

from torchglass.records.kernels import Allocate

Tensor = torch.Tensor
TENSORS = [torch.randn(64, 32), torch.randn(32, 32)]


def over(compiled: Compiled) -> list[tuple[str, str]]:
    return [pair for kernel in compiled.fused.kernels for pair in kernel.inplace]


def returned(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).relu()


def read_by_a_call(x: Tensor, w: Tensor) -> Tensor:
    return ((x @ w).sigmoid() + 1) @ w


def seen_otherwise(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).view(8, 8, 32).tanh()


def several(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Only the result that is written last can lie over what both need."""
    one, other = x @ w, (x + 1) @ w
    return one * other, one + other


def one_of_two(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """The first result needs memory of its own."""
    product = x @ w
    return product.exp(), product.cos()


@pytest.mark.parametrize(
    ("function", "count"), [(returned, 1), (read_by_a_call, 1), (seen_otherwise, 1), (several, 1), (one_of_two, 1)]
)
def test_over_what_is_read_for_the_last_time(function: Callable, count: int, tmp_path):
    compiled = check(function, TENSORS, tmp_path, tol=1e-5)
    assert len(over(compiled)) == count
    allocated = {s.buffer: s.inplace for s in compiled.fused.steps if isinstance(s, Allocate) and s.inplace}
    assert list(allocated.items()) == over(compiled)
    assert compiled.sources.wrapper_text.count("# written over it") == count
    assert len(re.findall(r"float\* (?!restrict)", compiled.sources.texts["c"])) == 2 * count


def an_input(x: Tensor, w: Tensor) -> Tensor:
    return x.relu() @ w


def read_again(x: Tensor, w: Tensor) -> Tensor:
    product = x @ w
    return product.relu() @ w + product


def turned(x: Tensor, w: Tensor) -> Tensor:
    return (w @ w).t().exp().contiguous()


def read_at_two_places(x: Tensor, w: Tensor) -> Tensor:
    product = w @ w
    return product + product.t()


def moved(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).flip(0) * 2


def row_by_row(x: Tensor, w: Tensor) -> Tensor:
    return torch.softmax(x @ w, 1)


def wider(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).double() * 2


@pytest.mark.parametrize("function", [an_input, turned, read_at_two_places, moved, row_by_row, wider])
def test_elsewhere_in_memory_of_its_own(function: Callable, tmp_path):
    assert not over(check(function, TENSORS, tmp_path, tol=1e-5))


def test_what_another_kernel_reads_later_stays(tmp_path):
    """The first kernel may not write over the product; the last one, which adds it, may."""
    compiled = check(read_again, TENSORS, tmp_path, tol=1e-5)
    assert not compiled.fused.kernels[0].inplace


def test_memory_is_held_once(tmp_path):
    compiled = check(returned, TENSORS, tmp_path, tol=1e-5)
    assert compiled.fused.peak_bytes == 64 * 32 * 4
