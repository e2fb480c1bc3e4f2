"""What programs say about sizes and addresses of tensors: remembered on the tensor, as torch.compile keeps it.

    tg.mark_dynamic(x, 0, min=2, max=64)

The attributes are torch.compile's: what is marked by either is found by both. A mark stays on the tensor; capture reads
it of inputs when it compiles.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from ..process.arguments import require
from ..records.declared_sizes import DeclaredSize

Index = int | list[int] | tuple[int, ...]


class DimRange(NamedTuple):
    """Bounds of one size."""

    dim: int
    min: int | None
    max: int | None


def mark_dynamic(
    t: Any,
    index: Index,
    *,
    hint_override: int | None = None,
    min: int | None = None,
    max: int | None = None,
    specialize_on: list[Any] | None = None,
) -> None:
    """These sizes will change from call to call, within ``min`` and ``max``."""

    def note(dim: int) -> None:
        _of(t, "_dynamo_dynamic_indices", set).add(dim)
        _of(t, "_dynamo_dynamic_range", set).add(DimRange(dim, min, max))
        _note_hints(t, dim, hint_override, specialize_on)

    _check_bounds(min, max)
    _each(t, index, note)


def maybe_mark_dynamic(t: Any, index: Index) -> None:
    """These sizes may change from call to call."""
    _each(t, index, lambda dim: _of(t, "_dynamo_weak_dynamic_indices", set).add(dim))


def mark_unbacked(
    t: Any,
    index: Index,
    hint_override: int | None = None,
    strict: bool = False,
    specialize_on: list[Any] | None = None,
    shape_id: str | None = None,
    min: int | None = None,
    max: int | None = None,
) -> None:
    """These sizes are to be known to nothing that is compiled."""

    def note(dim: int) -> None:
        if strict:
            _of(t, "_dynamo_strict_unbacked_indices", set).add(dim)
            return
        _of(t, "_dynamo_unbacked_indices", set).add(dim)
        _note_hints(t, dim, hint_override, specialize_on)
        if min is not None or max is not None:
            _of(t, "_dynamo_unbacked_bounds", dict)[dim] = (min, max)
        if shape_id is not None:
            _of(t, "_dynamo_shape_ids", dict)[dim] = shape_id

    _check_bounds(min, max)
    _each(t, index, note)


def mark_static(t: Any, index: Index | None = None) -> Any:
    """These sizes, or all, will not change; of a module's class, its numbers will not. A class is returned."""
    if isinstance(t, type) and issubclass(t, torch.nn.Module):
        t._dynamo_marked_static = True  # type: ignore[attr-defined]
        return t
    require("t", t, torch.Tensor, "a tensor or a class of modules")
    dims = range(t.dim()) if index is None else index
    _each(t, dims, lambda dim: _of(t, "_dynamo_static_indices", set).add(dim))
    return None


def marked_ranges(t: torch.Tensor) -> dict[int, tuple[DeclaredSize, Hashable]]:
    """What marks say of a tensor's sizes, by dimension, each with the name that it has in common with others."""
    found: dict[int, tuple[DeclaredSize, Hashable]] = {}
    if not getattr(t, "_has_dynamo_dim_marking", False):
        return found
    for name, declared in _MARKS.items():
        for dim in getattr(t, name, ()):
            found[dim % t.dim()] = declared, None
    names, bounds = getattr(t, "_dynamo_shape_ids", {}), getattr(t, "_dynamo_unbacked_bounds", {})
    ranges = [*getattr(t, "_dynamo_dynamic_range", ()), *(DimRange(dim, *ends) for dim, ends in bounds.items())]
    for dim, low, high in ((one.dim % t.dim(), one.min, one.max) for one in ranges):
        if dim in found and found[dim][0].changes:
            found[dim] = replace(found[dim][0], low=low or 0, high=high), None
    for dim in names:
        found[dim % t.dim()] = found[dim % t.dim()][0], names[dim]
    return found


_MARKS = {
    "_dynamo_weak_dynamic_indices": DeclaredSize("maybe_mark_dynamic"),
    "_dynamo_unbacked_indices": DeclaredSize("mark_unbacked", strict=True),
    "_dynamo_strict_unbacked_indices": DeclaredSize("mark_unbacked", strict=True),
    "_dynamo_dynamic_indices": DeclaredSize("mark_dynamic", strict=True),
    "_dynamo_static_indices": DeclaredSize("mark_static", changes=False),
}
"""The attributes that marks leave on a tensor; what comes last counts."""


def mark_static_address(t: Any, guard: bool = False) -> None:
    """The tensor will lie where it lies."""
    require("t", t, torch.Tensor, "a tensor")
    t._dynamo_static_input_type = "guarded" if guard else "unguarded"


def _each(t: Any, index: int | Iterable[int], note: Callable[[int], None]) -> None:
    require("t", t, torch.Tensor, "a tensor")
    require("index", index, (int, list, tuple, range), "a number or a list or tuple of numbers")
    dims = (index,) if isinstance(index, int) else tuple(index)
    for dim in dims:
        require("index", dim, int, "a number or a list or tuple of numbers")
        if not -t.dim() <= dim < t.dim():
            raise IndexError(f"index must be a dimension of t, which has {t.dim()}, not {dim}")
    for dim in dims:
        note(dim)
        t._has_dynamo_dim_marking = True


def _check_bounds(least: int | None, most: int | None) -> None:
    if least is not None and most is not None and least > most:
        raise ValueError(f"min must not be above max: {least} > {most}")


def _note_hints(t: Any, dim: int, hint: int | None, specialize_on: list[Any] | None) -> None:
    hints = _of(t, "_dynamo_hint_overrides", dict)
    if hint:
        hints[dim] = hint
    _of(t, "_specialize_on", dict)[dim] = specialize_on or []


def _of(t: Any, name: str, kind: type) -> Any:
    if not hasattr(t, name):
        setattr(t, name, kind())
    return getattr(t, name)
