"""Attention whose mask follows from numbers alone is called without one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import torchglass as tg
from torchglass import autodiff

Mask = Callable[[torch.Tensor], torch.Tensor]


def everything(q: torch.Tensor) -> torch.Tensor:
    """As transformers makes it where nothing is padded."""
    places = torch.arange(q.shape[-2], device=q.device)
    return (places[None, None, :, None] >= 0).expand(q.shape[0], -1, q.shape[-2], q.shape[-2])


def causal(q: torch.Tensor) -> torch.Tensor:
    places = torch.arange(q.shape[-2], device=q.device)
    return places[None, None, None, :] <= places[None, None, :, None]


MASKS: dict[str, tuple[Mask, str]] = {
    "everything": (everything, ""),
    "causal": (causal, "causal"),
    "a triangle": (lambda q: torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).tril(), "causal"),
    "nothing added": (lambda q: torch.zeros(q.shape[-2], q.shape[-2]) * 2, ""),
    "a window": (lambda q: causal(q) & ~causal(q).roll(3, -2), "mask"),
    "of the data": (lambda q: causal(q) & (q[:, :1, :, :1] > 0), "mask"),
    "an upper triangle": (lambda q: torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(), "mask"),
    "written to": (lambda q: _without(2, torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool)), "mask"),
}


def _without(key: int, mask: torch.Tensor) -> torch.Tensor:
    mask[:, key] = False
    return mask


def attend(mask: Mask) -> Callable[..., torch.Tensor]:
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask(q), scale=0.3)


@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str) -> None:
    mask, expected = MASKS[name]
    q, k, v = (torch.randn(2, 4, 40, 16) for _ in range(3))
    graphs: list[torch.fx.GraphModule] = []

    def keep(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        graphs.append(autodiff.trace_inference(gm, inputs).forward)
        return gm

    tg.compile(attend(mask), backend=keep)(q, k, v)
    (node,) = (n for n in graphs[0].graph.nodes if "attention" in str(n.target))
    called = "mask" if node.kwargs.get("attn_mask") is not None else "causal" if any(node.args[4:5]) else ""
    assert called == expected
    assert torch.allclose(tg.compile(attend(mask))(q, k, v), attend(mask)(q, k, v), atol=1e-5)


def test_longer_keys_are_no_triangle() -> None:
    q, k = torch.randn(1, 2, 8, 16), torch.randn(1, 2, 12, 16)
    fn = lambda q, k: F.scaled_dot_product_attention(q, k, k, attn_mask=torch.ones(8, 12, dtype=torch.bool).tril())
    assert torch.allclose(tg.compile(fn)(q, k), fn(q, k), atol=1e-5)


def test_gradients() -> None:
    q, k, v = (torch.randn(2, 4, 40, 16, requires_grad=True) for _ in range(3))
    for mask in (everything, causal):
        wanted = torch.autograd.grad(attend(mask)(q, k, v).square().sum(), (q, k, v))
        found = torch.autograd.grad(tg.compile(attend(mask))(q, k, v).square().sum(), (q, k, v))
        assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(wanted, found))


def test_what_the_function_refuses_it_still_refuses() -> None:
    q = torch.randn(2, 4, 8, 16)
    with pytest.raises(TypeError):
        tg.compile(lambda q: F.scaled_dot_product_attention(q, q, q, attn_mask=everything(q), wrong=1))(q)
