"""Whether tensors of a graph under construction share memory, in a way that makes a write to one meet another."""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

import torch

from ... import torch_compat
from ...aten.nested import is_mask, tensors_in
from ...aten.sizes import hints
from ...operators import symbolic_indexing

ELSEWHERE = frozenset(
    ("index_add_", "index_copy_", "index_fill_", "index_reduce_", "index_put_", "put_", "scatter_", "scatter_add_",
     "scatter_reduce_", "addr_"),
)  # fmt: skip
"""Methods that refuse to read what they write, where most read each element before they write it."""


def overlaps(function: Any, args: list[Any], tensors: list[torch.Tensor], written: list[torch.Tensor]) -> bool:
    """Whether elements that an operation wrote share memory with each other, or with other ones of another tensor.

    PyTorch's kernels refuse this where it is easy to see, and what they make of the rest depends on the order in which
    they go through memory. Fake tensors do not look.
    """
    elsewhere, read = getattr(function, "__name__", "") in ELSEWHERE, tensors[1:]
    if getattr(function, "of_tensors", function) in (operator.setitem, torch.Tensor.__setitem__):
        x, index = args[:2]
        if any(storage(t) == storage(x) for t in read):
            elsewhere = not all(map(is_mask, tensors_in(index)))  # the places of a mask lie elsewhere
            x = _indexed(x, index) if elsewhere else symbolic_indexing.getitem(x, index)
        tensors, written = read, [x]
    for target in written:
        if crosses_itself(target):
            return True
        if any(storage(other) == storage(target) and _cross(target, other) for other in tensors):
            return True
        if elsewhere and any(_is_same(one, target) for one in read):
            return True
    return False


def _indexed(x: torch.Tensor, index: Any) -> torch.Tensor:
    """What of ``x`` tensors in an index choose from: the view that the rest of it shows."""
    shown = list[Any]()
    for part in index if isinstance(index, tuple) else (index,):
        found = tensors_in(part)
        shown += [slice(None)] * sum(t.dim() if is_mask(t) else 1 for t in found) or [part]
    return symbolic_indexing.getitem(x, tuple(shown))


class Windows(NamedTuple):
    """What ``unfold`` shows of a dimension of ``length`` places."""

    length: Any
    size: Any
    step: Any

    @classmethod
    def of(cls, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Windows | None:
        """None of another operation."""
        if getattr(function, "of_tensors", function) is not torch.Tensor.unfold:
            return None
        return cls._shown(*args, **kwargs)

    @classmethod
    def _shown(cls, x: torch.Tensor, dimension: int, size: Any, step: Any) -> Windows:
        return cls(x.shape[dimension] if x.dim() else 1, size, step)

    def leave_gaps(self) -> bool:
        """Whether there are places that no window shows. Functionalization forgets these (2.11 to 2.13): a write
        through a view is written back by the view's inverse, for which it takes the derivative, which is 0 there.
        """
        return bool(self.size < self.step) or bool((self.length - self.size) % self.step != 0)


def memory(t: torch.Tensor) -> int | torch.SymInt:
    """How many bytes a fake tensor may lie in: for an input what its elements span, since guards know no more of it."""
    return _span(t)[1] if torch_compat.has_open_memory(t) else t.untyped_storage().nbytes()


def leaves_memory(t: torch.Tensor, before: int | torch.SymInt) -> bool:
    """Whether a tensor shows what lies behind the end of its memory, as ``as_strided`` does if it is told to. Kernels
    refuse that; fake tensors get more memory.
    """
    return bool(_span(t)[1] > before)


def storage(t: torch.Tensor) -> int:
    """Which memory a fake tensor lies in."""
    return torch_compat.without_transforms(t).untyped_storage()._cdata


def crosses_itself(t: torch.Tensor) -> bool:
    """Whether a dimension's steps are shorter than what lies inside it: then two elements may be one."""
    extent = 1
    for stride, size in sorted(zip(t.stride(), t.shape), key=hints):
        if stride < extent and size > 1:
            return True
        extent += stride * (size - 1)
    return False


def _cross(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one storage share bytes without being one and the same view of it."""
    if _is_same(one, other):
        return False
    first, second = _span(one), _span(other)
    if first[0] >= second[1] or second[0] >= first[1]:
        return False
    if all(end - begin == math.prod(t.shape) * t.itemsize for (begin, end), t in ((first, one), (second, other))):
        return True  # neither has gaps
    unit = math.gcd(one.itemsize, other.itemsize, *first, *second)
    size = max(first[1], second[1]) // unit
    return bool((_marked(one, size, unit) & _marked(other, size, unit)).any())


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether they are one view of one storage."""
    if one is other or storage(one) != storage(other):
        return one is other
    return _span(one) == _span(other) and (one.shape, one.stride()) == (other.shape, other.stride())


def _span(t: torch.Tensor) -> tuple[Any, Any]:
    """Where a tensor begins and ends in its storage, in bytes: whole numbers, or sizes of symbolic ones."""
    if any(size == 0 for size in t.shape):
        return 0, 0
    last = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride()))
    return t.storage_offset() * t.itemsize, (t.storage_offset() + last + 1) * t.itemsize


def _marked(t: torch.Tensor, size: int, unit: int) -> torch.Tensor:
    """Which units of its storage a tensor lies in."""
    marks, wide = torch.zeros(size, dtype=torch.bool, device="cpu"), t.itemsize // unit
    strides = [stride * wide for stride in t.stride()]
    marks.as_strided((*t.shape, wide), (*strides, 1), t.storage_offset() * wide).fill_(True)
    return marks
