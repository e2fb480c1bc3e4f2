"""Rows across memory: what a column comes to, read by all of the column, in one kernel."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.codegen.harness import Compiled, check, tensors

Tensor = torch.Tensor


def standardize(x: Tensor) -> Tensor:
    return (x - x.mean(0)) / (x.std(0) + 1e-5)


def softmax_and_scale(x: Tensor) -> Tensor:
    return x.softmax(0) * x.sum(0)


def softmax_of_middle(x: Tensor) -> Tensor:
    return x.view(x.shape[0] // 4, 4, -1).softmax(1)


def largest(x: Tensor) -> tuple[Tensor, Tensor]:
    top = x.amax(0, keepdim=True)
    return x - top, top


def of_two_dimensions(x: Tensor) -> Tensor:
    y = x.view(x.shape[0] // 4, 4, -1)
    return y - y.mean((0, 1))


FUNCTIONS = [standardize, softmax_and_scale, softmax_of_middle, largest, of_two_dimensions]
SHAPES = [(64, 256), (100, 300), (12, 17), (4, 1040), (60, 1024)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_columns_are_one_kernel(function, shape, dtype, tmp_path):
    compiled = check(function, [torch.randn(shape, dtype=dtype)], tmp_path, loops_only=True)
    assert [kernel.strided for kernel in compiled.fused.kernels] == [True]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_half_precision_is_no_less_exact_than_eager(function, shape, tmp_path):
    x = torch.randn(shape).bfloat16()
    compiled = Compiled(function, [x], tmp_path)
    assert [kernel.strided for kernel in compiled.fused.kernels] == [True]
    for exact, eager, ours in zip(*map(tensors, (function(x.double()), function(x), compiled.call([x]))), strict=True):
        assert (ours - exact).square().mean() <= 1.1 * (eager - exact).square().mean()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_one_column_of_no_number_leaves_the_others(value, tmp_path):
    x = torch.randn(50, 70)
    x[20, 3] = value
    x[:, 5] = -float("inf")
    check(lambda x: x.softmax(0), [x], tmp_path)
    (tmp_path / "largest").mkdir()
    check(largest, [x], tmp_path / "largest")


def test_integers(tmp_path):
    def from_largest(x: Tensor) -> Tensor:
        return x.amax(0) - x + x.sum(0)

    compiled = check(from_largest, [torch.randint(-1000, 1000, (40, 100))], tmp_path)
    assert [kernel.strided for kernel in compiled.fused.kernels] == [True]


def test_names_that_panels_use_themselves(tmp_path):
    def scaled(lane: Tensor, kept0: Tensor) -> Tensor:
        return (lane.softmax(0) - kept0) * kept0.amax(0)

    check(scaled, [torch.randn(40, 100), torch.randn(40, 100)], tmp_path)


@pytest.mark.parametrize(
    "function, shape",
    [
        (standardize, (2000, 1024)),  # much to read
        (standardize, (3000, 40)),  # few columns for threads to share
        (standardize, (3000, 5)),  # and none beside another to speak of
    ],
)
def test_rows_stay_along_memory(function: Callable[..., Tensor], shape: tuple[int, ...], tmp_path):
    compiled = check(function, [torch.randn(shape)], tmp_path)
    assert not any(kernel.strided for kernel in compiled.fused.kernels)


def test_what_is_read_across_keeps_rows_along_memory(tmp_path):
    def turned(x: Tensor, y: Tensor) -> Tensor:
        return x.softmax(0) * y.t()

    compiled = check(turned, [torch.randn(64, 96), torch.randn(96, 64)], tmp_path)
    for kernel in compiled.fused.kernels:
        assert not kernel.strided or all(load.access.strides[1] in (0, 1) for lp in kernel.loops for load in lp.loads)
