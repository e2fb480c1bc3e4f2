"""Functions whose operators take sizes as numbers, by others that take symbolic ones (``symbolic_shapes``)."""

from __future__ import annotations

from typing import Any

import torch

from ..process.tables import enters
from ..torch_compat import ON_SYMBOLS


@enters(ON_SYMBOLS)(torch.linspace)
def linspace(start: Any, end: Any, steps: Any, *, dtype: torch.dtype | None = None, **kwargs: Any) -> torch.Tensor:
    made = dtype or torch.get_default_dtype()
    numbers = all(isinstance(one, (int, float, torch.SymInt)) for one in (start, end))
    if not isinstance(steps, torch.SymInt) or not numbers or not made.is_floating_point or steps == 1:
        return torch.linspace(start, end, steps, dtype=dtype, **kwargs)
    return spaced(start, end, steps, dtype=dtype, **kwargs)


def spaced(start: Any, end: Any, steps: Any, *, dtype: torch.dtype | None = None, **kwargs: Any) -> torch.Tensor:
    """``torch.linspace`` of floats as the kernels compute it: the first half from ``start``, the second one from
    ``end``. Capture interprets it where these are numbers that change.
    """
    made = torch.get_default_dtype() if dtype is None else dtype
    places = torch.arange(steps, dtype=made, **kwargs)
    nothing = places.new_zeros(())
    first, last = nothing + start, nothing + end
    step = (last - first) / max(steps - 1, 1)
    # products and sums are rounded once (fused multiply-adds), as twice as many digits do it
    wide = torch.float64 if made is torch.float32 else made
    places, first, last, step = places.to(wide), first.to(wide), last.to(wide), step.to(wide)
    near_first = places < max(steps // 2, 1)
    return torch.where(near_first, places * step + first, (places - (steps - 1)) * step + last).to(made)


@enters(ON_SYMBOLS)(torch.nn.functional.one_hot)
def one_hot(tensor: torch.Tensor, num_classes: Any = -1) -> torch.Tensor:
    """Of the classes that the data have: of as many as are counted. What has no elements, which is refused, goes on."""
    if not isinstance(num_classes, int) or num_classes != -1 or tensor.dtype is not torch.int64:
        return torch.nn.functional.one_hot(tensor, num_classes)
    if tensor.numel() == 0:
        return torch.nn.functional.one_hot(tensor, num_classes)
    classes = torch.arange(torch.bincount(tensor.flatten()).shape[0], device=tensor.device)
    return (tensor.unsqueeze(-1) == classes).to(torch.int64)
