"""Padding, resizing and pooling of images, forward and backward, against eager: as loops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.codegen.harness import check

import torchglass as tg

Tensor = torch.Tensor


def gradients(fn: Any) -> Any:
    """The gradient of a sum weighted element by element."""

    def backward(x: Tensor, *weights: Tensor) -> Any:
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad([(o * w).sum() for o, w in zip(fn(leaf), weights, strict=True)], leaf)

    backward.trains = True  # type: ignore[attr-defined]
    return backward


def image(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_padding(mode: str, tmp_path: Path) -> None:
    def fn(a: Tensor, b: Tensor, c: Tensor) -> Any:
        return F.pad(a, (2, 1), mode), F.pad(b, (1, 2, 3, 0), mode), F.pad(c, (1, 0, 2, 1, 1, 1), mode)

    check(fn, (image(3, 4, 5), image(2, 3, 5, 4).transpose(2, 3), image(2, 2, 3, 4, 5)), tmp_path, loops_only=True)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_a_padding_alone_is_a_call(mode: str, tmp_path: Path) -> None:
    """Loops are for what is computed beside it, for small images and for those that lie channels last."""
    alone = lambda x: F.pad(x, (2, 2, 2, 2), mode)
    beside = lambda x: alone(x).relu()
    before = lambda x: alone(x.relu())
    large, small = image(2, 8, 32, 32), image(1, 3, 16, 16)
    compiled = check(alone, (large,), tmp_path)
    assert len(compiled.externs) == 1 and any("rows that ATen copies" in note for note in compiled.graph.notes)
    assert len(check(beside, (large.bfloat16(),), tmp_path).externs) == 1
    for fn, x in ((beside, large), (before, large), (alone, small), (alone, small.bfloat16())):
        check(fn, (x,), tmp_path, loops_only=True)
    if torch.__version__ >= "2.13":  # before, the meta function lays the result out otherwise than the kernel
        check(alone, (large.to(memory_format=torch.channels_last),), tmp_path, loops_only=True)


@pytest.mark.parametrize("shape, pad", [((2, 3, 8), (2, 8)), ((2, 3, 5, 6), (1, 2, 0, 3)), ((1, 2, 3, 4, 5), (1,) * 6)])
def test_circular_padding(shape: Any, pad: Any) -> None:
    fn = lambda x: F.pad(x, pad, mode="circular") * 2
    whole = image(*shape)
    for laid in (whole, whole.transpose(0, 1).contiguous().transpose(0, 1)):
        x = laid.requires_grad_()
        compiled = tg.compile(fn)
        expected, found = fn(x), compiled(x)
        assert torch.equal(found, expected) and found.stride() == expected.stride()
        weights = torch.rand_like(expected)
        slopes = [torch.autograd.grad(y, x, weights)[0] for y in (expected, found)]
        torch.testing.assert_close(*slopes)


def test_what_is_no_circular_padding() -> None:
    for pad in ((7, 1), (-1, 2)):
        fn = lambda x, pad=pad: F.pad(x, pad, mode="circular")
        x = image(2, 3, 6)
        try:
            expected = fn(x)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match="wrapping around"):
                tg.compile(fn)(x)
            assert "wrapping around" in str(error)
        else:
            assert torch.equal(tg.compile(fn)(x), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_padding_backward(mode: str, dtype: torch.dtype, tmp_path: Path) -> None:
    def fn(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Any:
        kind = "reflection" if mode == "reflect" else "replication"
        wide = 2 if mode == "reflect" else 4
        pads = [(2, 1), (wide, wide), (1, 2, wide, 0), (1, 0, 2, 1, 1, 1), (2, 2, 2, 2), (0, 0)]
        found = []
        for x, pad in zip((a, a, b, c, d, a), pads, strict=True):
            backward = getattr(torch.ops.aten, f"{kind}_pad{len(pad) // 2}d_backward")
            grad = torch.cat([F.pad(x, pad, mode) + 1, F.pad(x, pad, mode)], -1).narrow(
                -1, 1, x.shape[-1] + sum(pad[:2])
            )
            found.append(backward(grad, x, pad))
        return tuple(found)

    args = image(3, 4, 5), image(2, 3, 5, 4).transpose(2, 3), image(2, 2, 3, 4, 5), image(1, 3, 40, 61)
    check(fn, [x.to(dtype) for x in args], tmp_path, loops_only=True, tol=None if dtype is torch.float32 else 0.1)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", [(7, 9), (3, 4), (10, 14), (1, 1), (5, 7)])
def test_resizing(size: tuple[int, int], align: bool, tmp_path: Path) -> None:
    def fn(x: Tensor, line: Tensor, box: Tensor) -> Any:
        return (
            F.interpolate(x, size, mode="bilinear", align_corners=align),
            F.interpolate(x, size, mode="bicubic", align_corners=align),
            F.interpolate(x, size, mode="nearest"), F.interpolate(x, size, mode="nearest-exact"),
            F.interpolate(line, size[0], mode="linear", align_corners=align), F.interpolate(line, size[1]),
            F.interpolate(box, (2, *size), mode="trilinear", align_corners=align), F.interpolate(box, (4, *size)),
        )  # fmt: skip

    args = (image(2, 3, 5, 7), image(2, 3, 6), image(1, 2, 3, 4, 5))
    check(fn, args, tmp_path, loops_only=True)
    check(fn, [a.bfloat16() for a in args], tmp_path, loops_only=True, tol=2e-2)


@pytest.mark.parametrize("factor", [1.5, 2.3, 0.7, 3.0])
def test_resizing_by_a_factor(factor: float, tmp_path: Path) -> None:
    def fn(x: Tensor) -> Any:
        return (
            F.interpolate(x, scale_factor=factor), F.interpolate(x, scale_factor=factor, mode="bilinear"),
            F.interpolate(x, scale_factor=factor, mode="bicubic"),
        )  # fmt: skip

    check(fn, (image(2, 3, 8, 11),), tmp_path, loops_only=True)
    check(fn, (image(2, 3, 8, 11).double().to(memory_format=torch.channels_last),), tmp_path, loops_only=True)


@pytest.mark.parametrize(
    "kernel, stride, padding", [(3, 2, 1), (3, 1, 0), (2, 3, 1), ((3, 2), (1, 2), (1, 0)), (2, 2, 0)]
)
def test_overlapping_windows(kernel: Any, stride: Any, padding: Any, tmp_path: Path) -> None:
    x = image(2, 3, 9, 8)
    x[0, 0] = -float("inf")
    x[0, 1, 3, 3] = float("nan")

    def highest(x: Tensor) -> Any:
        return F.max_pool2d(x, kernel, stride, padding, return_indices=True)

    for laid in (x, x.to(memory_format=torch.channels_last)):
        check(highest, (laid,), tmp_path, loops_only=True)
    x = image(2, 3, 9, 8)
    for pool in (F.max_pool2d, F.avg_pool2d):
        backward = gradients(lambda x, pool=pool: (pool(x, kernel, stride, padding),))
        weights = image(*pool(x, kernel, stride, padding).shape)
        called = [] if pool is F.avg_pool2d else ["torch.ops.aten.max_pool2d_with_indices_backward.default"]
        assert check(backward, (x, weights), tmp_path).externs == called


def test_means_of_padded_channels_last_are_calls(tmp_path: Path) -> None:
    x = image(2, 3, 9, 8).to(memory_format=torch.channels_last)
    pool = lambda x: F.avg_pool2d(x, 3, 2, 1)
    compiled = check(pool, (x,), tmp_path)
    assert compiled.externs == ["torch.ops.aten.avg_pool2d.default"]
    assert any("ATen leaves out what is outside" in note for note in compiled.graph.notes)
    assert len(check(gradients(lambda x: (pool(x),)), (x, pool(x)), tmp_path).externs) == 1
    check(lambda x: F.avg_pool2d(x, 2), (x,), tmp_path, loops_only=True)


def test_adaptive_means(tmp_path: Path) -> None:
    x = image(2, 3, 12, 8)
    check(
        lambda x: (F.adaptive_avg_pool2d(x, (3, 4)), F.adaptive_avg_pool2d(x, (4, 1))), (x,), tmp_path, loops_only=True
    )
    check(gradients(lambda x: (F.adaptive_avg_pool2d(x, (3, 4)),)), (x, image(2, 3, 3, 4)), tmp_path, loops_only=True)
