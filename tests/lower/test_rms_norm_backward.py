"""``_fused_rms_norm_backward``, which eager has on GPUs alone: as loops it runs here."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.codegen.harness import Compiled, compare


@pytest.mark.parametrize("dtype, tol", [(torch.float32, 2e-5), (torch.bfloat16, 4e-2)])
@pytest.mark.parametrize("mask", [(True, True), (True, False), (False, True)], ids=str)
def test_gradients(mask: tuple[bool, bool], dtype: torch.dtype, tol: float, tmp_path: Path) -> None:
    x, w, grad = (torch.randn(shape).to(dtype) for shape in ((3, 8, 40), (40,), (3, 8, 40)))
    rstd = (x.float().square().mean(-1, keepdim=True) + 1e-6).rsqrt()

    def fn(grad: torch.Tensor, x: torch.Tensor, rstd: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = torch.ops.aten._fused_rms_norm_backward(grad, x, [40], rstd, w, list(mask))
        return tuple(one for one, wanted in zip(found, mask) if wanted)

    made = Compiled(fn, [grad, x, rstd, w], tmp_path)
    assert not made.externs
    leaves = [x.clone().requires_grad_(), w.clone().requires_grad_()]
    wanted = torch.autograd.grad(F.rms_norm(leaves[0], (40,), leaves[1], 1e-6), leaves, grad)
    for want, got in zip(
        (one for one, asked in zip(wanted, mask) if asked), made.call([grad, x, rstd, w]), strict=True
    ):
        compare(want, got, tol)
