"""The programs whose texts ``test_golden_programs`` keeps: a function, its inputs, and whether it is differentiated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

Tensor = torch.Tensor


@dataclass(frozen=True)
class Program:
    """``inputs()`` makes the arguments; ``trains`` are the places of those that get gradients."""

    fn: Callable[..., Any]
    inputs: Callable[[], list[Tensor]]
    trains: tuple[int, ...] = ()


def softmax(x: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax(x * 0.5 + mask, -1)


def layernorm_gelu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.gelu(F.layer_norm(x, x.shape[-1:], w, b))


def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x, target)


def embedding(ids: Tensor, table: Tensor) -> Tensor:
    return F.embedding(ids, table) * 2


def batch_norm(x: Tensor, mean: Tensor, var: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.relu(F.batch_norm(x, mean, var, w, b, training=True))


def transposed_add(x: Tensor, t: Tensor) -> Tensor:
    return x + t.t()


def cat(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([x, y * 2], -1)


def cumulative_sum(x: Tensor) -> Tensor:
    return x.cumsum(-1) + 1


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def toy(a: Tensor, b: Tensor) -> Tensor:
    return a / (torch.abs(a) + 1) * (b * -1)


def column_sum(x: Tensor) -> Tensor:
    return (x * x).sum(0)


def scatter(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
    return x.index_add(0, index, source)


def _statistics() -> list[Tensor]:
    return [torch.zeros(8), torch.ones(8)]


PROGRAMS = {
    "softmax": Program(softmax, lambda: [torch.randn(64, 128), torch.randn(128)]),
    "layernorm_gelu": Program(
        layernorm_gelu, lambda: [torch.randn(512, 256), torch.randn(256), torch.randn(256)], trains=(0, 1, 2)
    ),
    "cross_entropy": Program(cross_entropy, lambda: [torch.randn(64, 1000), torch.arange(64)], trains=(0,)),
    "embedding": Program(embedding, lambda: [torch.arange(32), torch.randn(100, 64)], trains=(1,)),
    "batch_norm": Program(
        batch_norm,
        lambda: [torch.randn(4, 8, 16, 16), *_statistics(), torch.randn(8), torch.randn(8)],
        trains=(0, 3, 4),
    ),
    "transposed_add": Program(transposed_add, lambda: [torch.randn(256, 512), torch.randn(512, 256)]),
    "cat": Program(cat, lambda: [torch.randn(32, 64), torch.randn(32, 64)]),
    "cumulative_sum": Program(cumulative_sum, lambda: [torch.randn(64, 512)]),
    "attention": Program(attention, lambda: [torch.randn(2, 4, 64, 32) for _ in range(3)]),
    "toy": Program(toy, lambda: [torch.randn(10), torch.randn(10)]),
    "column_sum": Program(column_sum, lambda: [torch.randn(4096, 256)]),
    "scatter": Program(scatter, lambda: [torch.zeros(16, 64), torch.arange(8), torch.randn(8, 64)]),
}
