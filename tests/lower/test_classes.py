"""Losses by class numbers with weights, ignored classes and further sizes; reductions and creators beyond the usual."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.codegen.harness import check
from tests.lower.test_images import image

import torchglass as tg

Tensor = torch.Tensor


def same_losses(losses: Any, x: Tensor) -> None:
    """Losses and the gradient of their weighted sum, compiled and eager."""
    found = []
    for fn in (losses, tg.compile(losses, fullgraph=True)):
        leaf = x.detach().clone().requires_grad_()
        results = fn(leaf)
        weighted = sum((r * image(*r.shape)).sum() for r in results)
        found.append((*results, *torch.autograd.grad(weighted, leaf)))
    for theirs, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(6, 5), (3, 5, 4), (2, 5, 3, 4)])
def test_cross_entropy(shape: tuple[int, ...], reduction: str) -> None:
    target = torch.arange(math.prod(shape) // 5).reshape(shape[0], *shape[2:]) % 5
    x, weight = image(*shape), image(5).abs()

    def losses(x: Tensor) -> Any:
        return (
            F.cross_entropy(x, target, reduction=reduction),
            F.cross_entropy(x, target, weight=weight, ignore_index=1, reduction=reduction),
            F.cross_entropy(x, target, weight=weight, label_smoothing=0.1, ignore_index=2, reduction=reduction),
        )

    same_losses(losses, x)


def test_nll_is_loops(tmp_path: Path) -> None:
    target, weight = torch.tensor([[0, 1, 4], [2, -100, 3]]), image(5).abs()
    for reduction in ("mean", "sum", "none"):
        check(
            lambda x, t, w, r=reduction: F.nll_loss(x, t, w, reduction=r), (image(2, 5, 3), target, weight), tmp_path,
            loops_only=True,
        )  # fmt: skip


def test_binary_cross_entropy_backward() -> None:
    x, y, w = torch.sigmoid(image(4, 6)), image(4, 6).sigmoid(), image(6).abs()
    x[0, 0], x[0, 1] = 0.0, 1.0
    same_losses(lambda x: (F.binary_cross_entropy(x, y), F.binary_cross_entropy(x, y, w, reduction="sum")), x)


def test_norms_counts_and_extremes(tmp_path: Path) -> None:
    x = image(4, 5, 6)
    x[0, 1], x[2, 2, 3] = 0.0, float("nan")

    def fn(x: Tensor, b: Tensor) -> Any:
        norms = [torch.linalg.vector_norm(x, p, d) for p in (0, 1, 2, 3, 0.5, math.inf, -math.inf) for d in (None, 1)]
        return (
            *norms, torch.count_nonzero(x), torch.count_nonzero(x, (0, 2)), torch.nansum(x, 1), *torch.aminmax(x),
            *torch.aminmax(x, dim=1, keepdim=True), x.argmax(), x.argmin(), b.any(), b.all(1), b.any(0, keepdim=True),
        )  # fmt: skip

    check(fn, (x, (x > 0).to(torch.uint8)), tmp_path, loops_only=True)


def test_creators_and_roll(tmp_path: Path) -> None:
    def fn(x: Tensor) -> Any:
        return (
            torch.eye(3, 5), torch.eye(4, dtype=torch.int64), torch.arange(0, 1, 0.1), torch.arange(5.0, 1.0, -0.75),
            x.roll(1, 0), x.roll(-2, 1), x.roll(7, 1), x.roll((1, 2), (0, 1)), x.roll(0, 0), x.roll(3),
        )  # fmt: skip

    check(fn, (image(4, 5),), tmp_path)
    check(lambda x: (torch.eye(3), torch.arange(0, 1, 0.1) + x, x.roll(3, 0)), (image(10),), tmp_path, loops_only=True)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("loss", [F.huber_loss, F.soft_margin_loss])
def test_losses_of_the_first_operands_dtype(loss: Any, reduction: str) -> None:
    compiled = tg.compile(lambda x, y: loss(x, y, reduction=reduction), fullgraph=True)
    for x, y in ((image(40), image(40).double()), (image(40).half(), image(40)), (image(40), image(40).long())):
        rounding = {"rtol": 2e-3, "atol": 1e-4} if x.dtype is torch.half else {}  # eager's at each step
        torch.testing.assert_close(compiled(x, y), loss(x, y, reduction=reduction), **rounding)
    with pytest.raises(RuntimeError, match="can't be cast"):
        compiled(image(40).long(), image(40))
