"""Weight gradients of depthwise convolutions: loops where oneDNN has no kernel for the window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.codegen.harness import Compiled

from torchglass.records.loops import ExternCall

aten = torch.ops.aten
Tensor = torch.Tensor
CALL = "torch.ops.aten.convolution_backward.default"


class Depthwise:
    """A depthwise convolution of 12 x 13 images: its gradients by ATen, and compiled."""

    def __init__(
        self, window: tuple[int, int], stride: int = 1, padding: Any = (0, 0), dilation: int = 1, channels: int = 40,
        mask: tuple[bool, bool, bool] = (True, True, True), last: bool = True, dtype: torch.dtype = torch.float32,
    ) -> None:  # fmt: skip
        torch.manual_seed(0)
        image, weight = torch.randn(2, channels, 12, 13), torch.randn(channels, 1, *window)
        self.geometry = [stride, stride], list(padding), [dilation, dilation]
        grad = torch.randn_like(torch.conv2d(image, weight, None, *self.geometry, groups=channels))
        form = torch.channels_last if last else torch.contiguous_format
        self.args = [x.to(dtype).contiguous(memory_format=form) for x in (grad, image, weight)]
        self.channels, self.mask = channels, list(mask)

    def __call__(self, grad: Tensor, image: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        rest = (*self.geometry, False, [0, 0], self.channels, self.mask)
        found = aten.convolution_backward(grad, image, weight, [self.channels], *rest)
        return tuple(g for g, wanted in zip(found, self.mask) if wanted)

    def check(self, folder: Path) -> list[list[bool]]:
        """Compare with float64; which gradients are asked of ATen, call by call."""
        compiled = Compiled(self, self.args, folder)
        exact = self(*(x.double().contiguous() for x in self.args))
        for got, eager, want in zip(compiled.call(list(self.args)), self(*self.args), exact, strict=True):
            assert got.shape == eager.shape and got.dtype == eager.dtype
            error, of_eager = ((x.double() - want).abs().max().item() for x in (got, eager))
            assert error <= max(2 * of_eager, 1e-6 * want.abs().max().item())
        return [s.args[-1] for s in compiled.fused.steps if isinstance(s, ExternCall) and s.target == CALL]


BY_LOOPS = {
    "5 x 5": Depthwise((5, 5), padding=(2, 2)),
    "7 x 7 with a wide border": Depthwise((7, 7), padding=(5, 5)),
    "without a border": Depthwise((7, 7)),
    "every other place": Depthwise((7, 7), stride=2, padding=(3, 3)),
    "a border on two sides": Depthwise((1, 5), stride=3, padding=(0, 2)),
    "gaps": Depthwise((3, 3), padding=(2, 2), dilation=2),
    "gaps and steps": Depthwise((5, 3), stride=2, padding=(4, 2), dilation=2),
    "half precision": Depthwise((5, 5), padding=(2, 2), dtype=torch.bfloat16),
    "no bias": Depthwise((5, 5), padding=(2, 2), mask=(True, True, False)),
}
BY_ATEN = {
    "a window that oneDNN knows": Depthwise((3, 3), padding=(1, 1)),
    "few channels": Depthwise((5, 5), padding=(2, 2), channels=8),
    "channels first": Depthwise((5, 5), padding=(2, 2), last=False),
}


@pytest.mark.parametrize("name", BY_LOOPS)
def test_wide_windows_take_no_scratch(name: str, tmp_path: Path) -> None:
    """ATen is asked for the image's gradient alone: for the weight's it would fill up groups of channels."""
    assert BY_LOOPS[name].check(tmp_path) == [[True, False, False]]


@pytest.mark.parametrize("name", BY_ATEN)
def test_what_oneDNN_does_as_well_stays_one_call(name: str, tmp_path: Path) -> None:
    assert BY_ATEN[name].check(tmp_path) == [[True, True, True]]


def test_no_call_where_the_image_needs_no_gradient(tmp_path: Path) -> None:
    assert Depthwise((5, 5), padding=(2, 2), mask=(False, True, True)).check(tmp_path) == []


def test_a_row_of_the_window_runs_as_one(tmp_path: Path) -> None:
    """Its places lie a step of the sum apart, and read one row of the image."""
    wide = Depthwise((5, 5), padding=(2, 2))
    kernels = Compiled(wide, wide.args, tmp_path).fused.kernels
    assert any(kernel.columns == 5 * 40 for kernel in kernels)
