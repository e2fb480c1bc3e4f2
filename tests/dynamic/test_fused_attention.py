"""The fused attention of a GPU on symbolic sizes, as far as fake tensors tell without one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from torchglass.operators import symbolic_attention
from torchglass.operators.symbolic_shapes import leave_open
from torchglass.records.size_environment import SizeEnvironment
from torchglass.records.sizes import value
from torchglass.records.sources import Local
from torchglass.records.symbolic_ints import sizes_of
from torchglass.torch_compat import fake_like
from torchglass.torch_compat.fake_tensors import LightFakeMode

aten = torch.ops.aten
HEADS, WIDTH = 4, 32
FUSED: dict[str, Any] = {
    "flash": lambda q, k, v, bias: aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True),
    "cudnn": lambda q, k, v, bias: aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, True),
    "efficient": lambda q, k, v, bias: aten._scaled_dot_product_efficient_attention(q, k, v, None, True),
    "efficient, masked": lambda q, k, v, bias: aten._scaled_dot_product_efficient_attention(q, k, v, bias, True),
    "efficient, with a learned bias": lambda q, k, v, bias: FUSED["efficient, masked"](q, k, v, bias),
}


def results(function: Any, mode: LightFakeMode, batch: Any, length: Any, learned: bool) -> list[torch.Tensor]:
    """What is computed, and the gradients, of heads that lie as a projection leaves them."""
    like = SimpleNamespace(dtype=torch.bfloat16, device=torch.device("cpu"))
    step = HEADS * WIDTH
    with mode:
        heads = [
            fake_like(mode, like, (batch, HEADS, length, WIDTH), (step * length, WIDTH, step, 1)).requires_grad_()
            for _ in range(3)
        ]
        mask = fake_like(mode, like, (batch, 1, length, length), (length * length, length * length, length, 1))
        if learned:
            mask.requires_grad_()
        bias = symbolic_attention._aligned(mask, *heads[:2])
        found = function(*heads, bias)
        wanted = [*heads, bias] if learned else heads
        grads = torch.autograd.grad(found[0], wanted, torch.ones_like(found[0]))
    return [one for one in (*found, *grads) if isinstance(one, torch.Tensor)]


@pytest.mark.parametrize("name", FUSED)
def test_sizes_stay_symbols(name: str) -> None:
    environment, mode, learned = SizeEnvironment(), LightFakeMode(), name.endswith("learned bias")
    leave_open(mode)
    batch, length = (environment.symbol(Local(n), hint) for n, hint in (("batch", 3), ("length", 37)))
    open_ones = results(FUSED[name], mode, batch, length, learned)
    assert not environment.fixed()
    for at in ({"s0": 3, "s1": 37}, {"s0": 5, "s1": 64}, {"s0": 2, "s1": 130}):
        known = results(FUSED[name], LightFakeMode(), at["s0"], at["s1"], learned)
        for one, other in zip(open_ones, known, strict=True):
            for sizes, numbers in ((one.shape, other.shape), (one.stride(), other.stride())):
                assert tuple(value(size, at) for size in sizes_of(sizes)) == tuple(numbers)


@pytest.mark.parametrize("length", [16, 37])
def test_rows_of_a_mask_begin_at_multiples_of_sixteen(length: int) -> None:
    query, key = torch.randn(2, HEADS, 5, WIDTH), torch.randn(2, HEADS, length, WIDTH)
    mask = torch.randn(2, 1, 5, length)
    aligned = symbolic_attention._aligned(mask, query, key)
    torch.testing.assert_close(aligned, mask.expand(2, HEADS, 5, length))
    assert all(step % 16 == 0 for step in aligned.stride()[:-1])
