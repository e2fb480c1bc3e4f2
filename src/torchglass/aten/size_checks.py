"""Sizes that kernels want to be equal, and at which meta functions do not look.

``x.index_put_((i,), v)`` takes a ``v`` that broadcasts to ``x[i]``; the meta function takes any, and a loop made of it
would read memory that is not ``v``'s. Of symbolic sizes it is assumed that they are equal.
Input: an operator and its fake arguments. An error is raised where the kernel raises one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .nested import is_mask
from .sizes import hint_of

aten = torch.ops.aten


def _index_put(x: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, *args: Any) -> None:
    given = {dim: index for dim, index in enumerate(indices) if index is not None}
    if any(map(is_mask, given.values())):
        return  # how many places they say is data, and the kernel's affair
    places = list[Any]()
    for index in given.values():
        places = [1] * (index.dim() - len(places)) + places
        for back, size in enumerate(reversed(index.shape), 1):
            places[-back] = size if hint_of(size) != 1 else places[-back]
    first = min(given) if max(given) - min(given) < len(given) else 0
    sizes = [size for dim, size in enumerate(x.shape) if dim not in given]
    _broadcasts(values, [*sizes[:first], *places, *sizes[first:]])


def _index_add(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *args: Any, **kwargs: Any) -> None:
    if not x.dim() or not source.dim():
        return
    _require(source.dim() == x.dim(), "source tensor and self tensor must have as many dimensions")
    dim %= x.dim()
    for place, (size, whole) in enumerate(zip(source.shape, x.shape)):
        if place != dim:
            _require(size == whole, "source tensor shape must match self tensor shape, but for the dimension")
    _require(index.numel() == source.shape[dim], "as many indices as the source has rows", IndexError)


def _select_scatter(x: torch.Tensor, source: torch.Tensor, dim: int, index: Any) -> None:
    dim %= max(x.dim(), 1)
    whole = [*x.shape[:dim], *x.shape[dim + 1 :]]
    said = f"shape mismatch: a source of {list(source.shape)} for {whole}"
    _require(source.dim() == len(whole), said)
    for size, wanted in zip(source.shape, whole):
        _require(size == wanted, said)


def _as_strided(
    x: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], offset: Any = None, *args: Any, **kwargs: Any
) -> None:
    """How far it reaches upwards, whoever knows the memory looks."""
    for number in size:
        _require(number >= 0, f"as_strided: sizes of {list(size)}")
    if offset is not None:
        _require(offset >= 0, f"as_strided: invalid storage offset {offset}")


def _broadcasts(values: torch.Tensor, whole: list[Any]) -> None:
    said = f"shape mismatch: values of {list(values.shape)} for {whole}"
    sizes = list(values.shape)
    while len(sizes) > len(whole):
        _require(sizes.pop(0) == 1, said)
    for size, wanted in zip(reversed(sizes), reversed(whole)):
        _require(size == (1 if hint_of(size) == 1 != hint_of(wanted) else wanted), said)


def _require(holds: bool | torch.SymBool, said: str, error: type[Exception] = RuntimeError) -> None:
    if not (holds.node.expect_true("", 0) if isinstance(holds, torch.SymBool) else holds):
        raise error(said)


SIZE_CHECKS: dict[Any, Callable[..., None]] = {
    aten.as_strided.default: _as_strided,
    aten.as_strided_.default: _as_strided,
    aten.as_strided_copy.default: _as_strided,
    aten.as_strided_scatter.default: lambda x, source, *args, **kwargs: _as_strided(x, *args, **kwargs),
    aten.index_add.default: _index_add,
    aten.index_add_.default: _index_add,
    aten.index_copy.default: _index_add,
    aten.index_copy_.default: _index_add,
    aten.index_put.default: _index_put,
    aten.index_put_.default: _index_put,
    aten.select_scatter.default: _select_scatter,
}
