"""Cumulative operators: values, places and layouts as eager's, alone and in one kernel with what surrounds them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.codegen.harness import Compiled, check
from torch.fx.experimental.proxy_tensor import make_fx

import torchglass as tg
from torchglass import lower
from torchglass.records.target import Targets

Tensor = torch.Tensor
NAMES = ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")
SHAPES = [(), (1,), (0, 3), (3, 0), (37,), (2100,), (4, 100), (3, 5, 7), (2, 33, 600), (2, 3, 2), (9, 1)]


def every(x: Tensor) -> tuple[Tensor, ...]:
    """All five along every dimension."""
    names = NAMES if x.is_floating_point() else NAMES[:4]
    found: list[Tensor] = []
    for dim in range(max(x.dim(), 1)):
        for name in names:
            result = getattr(torch, name)(x, dim)
            found += [result] if isinstance(result, Tensor) else result
    return tuple(found)


def numbers(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    torch.manual_seed(0)
    x = torch.randn(shape).mul(1.5).to(dtype)
    if x.is_floating_point() and x.dim() > 1:
        flat = x.view(-1)
        flat[3::7], flat[5::211], flat[7::305], flat[9::377] = 0.5, math.nan, math.inf, -math.inf
    return x


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_as_eager(shape: Sequence[int], dtype: torch.dtype, tmp_path: Path) -> None:
    tol = 5e-6 if dtype is torch.float32 else None  # of logcumsumexp: both are rounded at every step
    check(every, [numbers(shape, dtype)], tmp_path, loops_only=True, tol=tol)


def strided(x: Tensor) -> tuple[Tensor, ...]:
    return (*every(x.t()), *every(x[:, ::2].flip(1)), *every(x.expand(3, *x.shape)))


def converted(x: Tensor) -> tuple[Tensor, ...]:
    half = (x * 3).cumsum(0, dtype=torch.bfloat16)
    wide = x.cumsum(1, dtype=torch.float64)
    return wide, half, (x * 40).cumprod(1, dtype=torch.int8), (x * 40).cumsum(0, dtype=torch.int64)


def nucleus(x: Tensor) -> Tensor:
    p = torch.softmax(x, -1)
    return torch.where(p.cumsum(-1) - p > 0.9, 0.0, p)


def corner_sums(x: Tensor) -> Tensor:
    return (x * 2).cumsum(0).cumsum(1) + 1


def corner_sums_of_many(x: Tensor) -> Tensor:
    return (x * x[:16, :1, None]).cumsum(1).cumsum(2) + 1


def whole_line_needed(x: Tensor) -> Tensor:
    y = x.abs().cumsum(1)
    return y / y.sum(1, keepdim=True) + y[:, -1:]


def columns_summed(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.cumsum(1)
    return y.sum(0), x.cumsum(0).sum(0)


def across_rows(x: Tensor) -> Tensor:
    return torch.softmax(x, 1).cumsum(0) - x.cummax(0)[0]


def halves(x: Tensor) -> Tensor:
    return x.flatten().cumsum(0).view(x.shape).relu() + x


def flat_beside_a_total(x: Tensor) -> tuple[Tensor, Tensor]:
    y = (x - x.mean(0)).flatten().cumsum(0).view(x.shape) * 0.1
    return y, x.sum() * 0.01


def places_of_what_rounds(x: Tensor) -> tuple[Tensor, ...]:
    return tuple((x.bfloat16() * 1.001).cummax(1))


def shared_lines(x: Tensor) -> Tensor:
    return x[0].cumsum(0) * x + x


@pytest.mark.parametrize(
    ("function", "kernels"),
    [(strided, None), (converted, None), (nucleus, 1), (corner_sums, 2),
     (corner_sums_of_many, 1), (whole_line_needed, None), (columns_summed, None),
     (across_rows, 2), (halves, None), (flat_beside_a_total, None), (places_of_what_rounds, 1), (shared_lines, None)],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(24, 40), (70, 1300)], ids=str)
def test_with_what_surrounds_them(
    function: Callable[..., Any], kernels: int | None, shape: Sequence[int], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    compiled = check(function, [torch.randn(shape)], tmp_path, loops_only=True, tol=2e-5)
    assert kernels is None or len(compiled.fused.kernels) == kernels, str(compiled.fused)


def test_products_of_neighbours_may_leave_the_range(tmp_path: Path) -> None:
    """1e-300 * 1e200 * 1e200 is 1e100: nothing may multiply the last two first."""
    x = torch.ones(2, 64, dtype=torch.float64)
    x[0, :3] = torch.tensor([1e-300, 1e200, 1e200])
    x[1, 7:12] = torch.tensor([1e300, 1e-200, 1e-200, 1e-200, 1e200])
    check(lambda x: x.cumprod(1), [x], tmp_path, loops_only=True)
    check(lambda x: x.cumprod(1), [(torch.full((4, 100), 1e-30)).bfloat16()], tmp_path)


def test_errors_are_no_larger_than_eagers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 30_000)
    for name in ("cumsum", "logcumsumexp"):
        for dim in (0, 1):
            fn = lambda x, name=name, dim=dim: getattr(torch, name)(x, dim)
            right = fn(x.double())
            (ours,) = Compiled(fn, [x], tmp_path).call([x])
            error, eagers = ((y - right).abs().max().item() for y in (ours, fn(x)))
            assert error <= 1.05 * eagers + 1e-6, (name, dim, error, eagers)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dim", [0, 1])
def test_gradients(name: str, dim: int) -> None:
    def loss(x: Tensor) -> Tensor:
        result = getattr(torch, name)(x * 1.5, dim)
        return ((result if isinstance(result, Tensor) else result[0]).tanh() * torch.arange(20.0)).sum()

    torch.manual_seed(0)
    ours, eagers = (torch.rand(12, 20, requires_grad=True) for _ in range(2))
    eagers.data.copy_(ours.data)
    tg.compile(loss, fullgraph=True)(ours).backward()
    loss(eagers).backward()
    torch.testing.assert_close(ours.grad, eagers.grad, rtol=1e-4, atol=1e-5)


def test_printed_loop() -> None:
    graph = lower.run(make_fx(lambda x: x.cumsum(0), tracing_mode="fake")(torch.randn(4, 5)), Targets())
    assert str(graph.nodes[0]).splitlines() == [
        "loop cumsum over [4, 5]:", "    t0 = load x_1[5*i0 + i1] : float32", "    t1 = cast t0 : float64",
        "    t2 = scan_sum t1 along i0 : float64", "    t3 = cast t2 : float32", "    store cumsum[5*i0 + i1] t3",
    ]  # fmt: skip
