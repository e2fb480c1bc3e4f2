"""Tensors in nested arguments and results, and in indices."""

from __future__ import annotations

from typing import Any

import torch


def tensors_in(value: Any) -> list[torch.Tensor]:
    """All tensors in a structure of tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [t for item in value for t in tensors_in(item)]
    if isinstance(value, dict):
        return [t for item in value.values() for t in tensors_in(item)]
    return []


def is_mask(index: torch.Tensor) -> bool:
    """Whether an index says by truth which places it means: how many these are is data."""
    return index.dtype in (torch.bool, torch.uint8)
