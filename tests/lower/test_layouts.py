"""Results lie in memory as eager's do, also where an operator's meta function says otherwise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import torchglass as tg

Tensor = torch.Tensor
OF_TWO = [
    torch.copysign, torch.heaviside, torch.logaddexp, torch.logaddexp2, torch.logical_and, torch.logical_or,
    torch.logical_xor, torch.special.xlog1py, torch.xlogy, torch.add, torch.eq, torch.maximum, torch.atan2, torch.fmod,
]  # fmt: skip


@pytest.mark.parametrize("function", [lambda x, y: tuple(f(x, y) for f in OF_TWO)])
def test_functions_of_two_tensors(function: Callable[..., Tensor]) -> None:
    turned = torch.rand(3, 4, 7).permute(1, 2, 0)
    compiled = tg.compile(function, fullgraph=True)
    for x, y in (
        (turned, turned.contiguous()),
        (torch.rand(()), turned),
        (torch.rand(1), turned),
        (turned, turned[:1]),
    ):
        for theirs, ours in zip(function(x, y), compiled(x, y), strict=True):
            assert ours.stride() == theirs.stride()
            torch.testing.assert_close(ours, theirs)


def test_unpooling_keeps_channels_last() -> None:
    x = torch.rand(2, 3, 8, 8).to(memory_format=torch.channels_last)

    def fn(x: Tensor) -> Tensor:
        return F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)

    ours, theirs = tg.compile(fn, fullgraph=True)(x), fn(x)
    assert ours.stride() == theirs.stride()
    assert torch.equal(ours, theirs)


def test_negative_numbers_as_bytes() -> None:
    """C leaves the conversion open; eager wraps."""
    x = torch.tensor([-2.0, -300.5, 3.7, 255.0, 256.0, -0.5] * 7)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        fn = lambda x: (x.to(torch.uint8), (x * 2).byte())
        for theirs, ours in zip(fn(x.to(dtype)), tg.compile(fn)(x.to(dtype)), strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_extremes_of_rounded_values_are_found_again(dtype: torch.dtype) -> None:
    """Backward compares values computed anew with the extremum that was stored: both must be rounded alike."""
    x = torch.randn(5, 33, generator=torch.Generator().manual_seed(0)).to(dtype)

    def fn(x: Tensor) -> tuple[Tensor, ...]:
        y = torch.atan(x)
        return y.amin(1), y.amax(0), y.amax(), torch.maximum(y, y.amax(1, keepdim=True)), y.argmax(1), y.max(1)[1]

    found = []
    for call in (fn, tg.compile(fn, fullgraph=True)):
        leaf = x.clone().requires_grad_()
        outputs = call(leaf)
        total = sum(o.float().sum() for o in outputs[:4])
        found.append((*outputs, *torch.autograd.grad(total, leaf)))
    for theirs, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)
