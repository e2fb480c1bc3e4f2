"""Writes through a mask, ``x[:, mask] = values``, of values that need a gradient.

The gradient by values of which the mask's dimension takes one each has a size that is data. Where one value is for all
places of the mask, choosing between the two says the same and has sizes that are known.
"""

from __future__ import annotations

from types import EllipsisType
from typing import Any, NamedTuple

import torch


class Choice(NamedTuple):
    """What stands for the write: ``x[places] = torch.where(mask, values, x[places])``, the three broadcast."""

    places: tuple[Any, ...]
    mask: torch.Tensor
    values: torch.Tensor


def needs_choice(indices: Any, values: Any) -> bool:
    """Whether a mask is among the indices of a write of something that needs a gradient."""
    return (
        torch.is_grad_enabled()
        and isinstance(values, torch.Tensor)
        and values.requires_grad
        and any(_is_mask(index) for index in _listed(indices))
    )


def choice(x: torch.Tensor, indices: Any, values: torch.Tensor) -> Choice | None:
    """The choice for ``x[indices] = values``; None if there is none, or none for such indices."""
    listed = _listed(indices)
    found = [n for n, index in enumerate(listed) if isinstance(index, torch.Tensor)]
    others = [index for index in listed if not isinstance(index, torch.Tensor)]
    if len(found) != 1 or not all(index is None or type(index) in (slice, int, EllipsisType) for index in others):
        return None
    at = found[0]
    mask, before, after = listed[at], listed[:at], listed[at + 1 :]
    if not _is_mask(mask) or not mask.dim():
        return None
    taken = sum(type(index) in (slice, int) for index in others) + mask.dim()
    behind = sum(index is None or type(index) is slice for index in after)  # dimensions behind the mask's
    if not any(index is Ellipsis for index in before):
        behind += x.dim() - taken
    shape = values.shape
    if len(shape) > behind:
        end = len(shape) - behind
        if isinstance(shape[end - 1], torch.SymInt) or shape[end - 1] != 1:
            return None
        shape = torch.Size((*shape[: end - 1], *(1,) * mask.dim(), *shape[end:]))
    places = (*before, *(slice(None),) * mask.dim(), *after)
    wide = mask.reshape(*mask.shape, *(1,) * behind)
    try:
        target = x[places].shape
        fits = torch.broadcast_shapes(target, wide.shape, shape) == target
    except (RuntimeError, IndexError):
        return None  # eager's error is the operator's own
    return Choice(places, wide.to(x.device), values.reshape(shape)) if fits else None  # a mask may be on the CPU


def _listed(indices: Any) -> tuple[Any, ...]:
    return tuple(indices) if isinstance(indices, (tuple, list)) else (indices,)


def _is_mask(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.dtype is torch.bool
