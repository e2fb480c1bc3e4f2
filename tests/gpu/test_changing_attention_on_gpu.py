"""Attention over sizes that change: PyTorch's fused kernels, as where sizes are numbers."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.gpu.compiled import DEVICE, needs_gpu

import torchglass as tg

pytestmark = needs_gpu
SIZES = ((2, 48), (3, 64), (4, 37), (2, 130), (5, 16))


def heads(x: torch.Tensor) -> list[torch.Tensor]:
    """Three of four heads each, which lie as a projection leaves them."""
    b, t, width = x.shape
    return [(x * n).view(b, t, 4, width // 4).transpose(1, 2) for n in (1.0, 0.5, 2.0)]


def plain(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(*heads(x))


def causal(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(*heads(x), is_causal=True, scale=0.3)


def padded(x: torch.Tensor) -> torch.Tensor:
    mask = (x[..., 0] < 1.5)[:, None, None, :] | torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
    return F.scaled_dot_product_attention(*heads(x), attn_mask=mask)


def biased(x: torch.Tensor) -> torch.Tensor:
    distance = torch.arange(x.shape[1], device=x.device)
    bias = -(distance[:, None] - distance[None]).abs().to(x.dtype) * x.mean()
    return F.scaled_dot_product_attention(*heads(x), attn_mask=bias[None, None])


def hides_nothing(x: torch.Tensor) -> torch.Tensor:
    places = torch.arange(x.shape[1], device=x.device)
    mask = (places[None, None, :, None] >= 0).expand(x.shape[0], 1, -1, x.shape[1])
    return F.scaled_dot_product_attention(*heads(x), attn_mask=mask)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("function", [plain, causal, padded, biased, hides_nothing])
def test_is_fused(function: Any, trains: bool, dynamic: bool | None, tmp_path: Any) -> None:
    with tg.prepare_debug(str(tmp_path)):
        compiled = tg.compile(function, dynamic=dynamic)
        for seed, (b, t) in enumerate(SIZES):
            torch.manual_seed(seed)
            x = torch.randn(b, t, 128, device=DEVICE, dtype=torch.bfloat16, requires_grad=trains)
            ours, exact = compiled(x), function(x.float())
            torch.testing.assert_close(ours.float(), exact, rtol=3e-2, atol=3e-2)
            if trains:
                grad = torch.randn_like(exact)
                (found,) = torch.autograd.grad(ours, x, grad.to(x.dtype))
                (wanted,) = torch.autograd.grad(exact, x, grad.to(x.dtype).float())
                torch.testing.assert_close(found, wanted, rtol=6e-2, atol=6e-2)
    wrappers = [path.read_text() for path in tmp_path.rglob("forward_wrapper.py")]
    assert len(wrappers) <= 3
    assert all(re.search(r"aten__scaled_dot_product_\w+\(", text) for text in wrappers)
