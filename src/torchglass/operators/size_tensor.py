"""A number that a graph reads off a tensor's shape, as it reads all sizes that change."""

from __future__ import annotations

import torch


def size_tensor(number: int) -> torch.Tensor:
    """A tensor of so many elements, all of them one byte in memory."""
    return torch.empty((1,), dtype=torch.uint8, device="cpu").expand(number)
