"""Reading at places that are computed of sizes, by functions that take symbolic ones (``symbolic_shapes``)."""

from __future__ import annotations

import operator
from types import EllipsisType, NoneType
from typing import Any

import torch

from ..process.tables import enters
from ..torch_compat import ON_SYMBOLS


@enters(ON_SYMBOLS)(torch.take_along_dim, torch.Tensor.take_along_dim)
def take_along_dim(x: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    """Both are expanded to what they are together in the other dimensions, where places may count from the end."""
    if dim is None:
        return x.reshape(-1).gather(0, indices.reshape(-1))
    if x.dim() != indices.dim() or not -x.dim() <= dim < x.dim() or indices.dtype is not torch.int64:
        return torch.take_along_dim(x, indices, dim)  # which says what is wrong
    others = torch.broadcast_shapes(*([*one.shape[:dim], 1, *one.shape[dim:][1:]] for one in (x, indices)))
    x, indices = (one.expand([*others[:dim], one.shape[dim], *others[dim:][1:]]) for one in (x, indices))
    return x.gather(dim, indices % x.shape[dim])


PLAIN = (int, torch.SymInt, slice, NoneType, EllipsisType)
"""What names at most one dimension each, and reads nowhere twice."""


@enters(ON_SYMBOLS)(operator.getitem, torch.Tensor.__getitem__)
def getitem(x: Any, index: Any) -> Any:
    """Places and slices, one dimension after the other."""
    shown = _shown(x, index)
    return operator.getitem(x, index) if shown is None else shown


@enters(ON_SYMBOLS)(operator.setitem, torch.Tensor.__setitem__)
def setitem(x: Any, index: Any, value: Any) -> None:
    """A write to the view of these places."""
    shown = _shown(x, index)
    if shown is None:
        operator.setitem(x, index, value)
    else:
        operator.setitem(shown, ..., value)


def _shown(x: Any, index: Any) -> torch.Tensor | None:
    """The view that an index with symbolic places reads; None of any other, which C++ takes."""
    parts = index if isinstance(index, tuple) else (index,)
    if not isinstance(x, torch.Tensor) or not any(isinstance(part, torch.SymInt) for part in parts):
        return None
    rest = x.dim() - sum(isinstance(part, (int, torch.SymInt, slice)) for part in parts)
    several = sum(part is Ellipsis for part in parts) > 1
    if rest < 0 or several or any(type(part) not in PLAIN for part in parts):
        return None
    dim = 0
    for part in parts:
        if isinstance(part, (int, torch.SymInt)):
            x = x.select(dim, part)
            continue
        x = x.unsqueeze(dim) if part is None else x[(slice(None),) * dim + (part,)] if part is not Ellipsis else x
        dim += rest if part is Ellipsis else 1
    return x
