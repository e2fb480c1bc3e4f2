"""What is known of a tensor before it is there: ``TensorSpec((2, 3), (3, 1), torch.float32, cpu)``."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class TensorSpec:
    """Shape, strides, dtype and device of one tensor. Shapes are ints; symbols come with dynamic shapes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @property
    def is_continuous(self) -> bool:
        return is_continuous(self.dtype)


def is_continuous(dtype: torch.dtype) -> bool:
    """Whether tensors of this dtype may have a gradient."""
    return dtype.is_floating_point or dtype.is_complex
