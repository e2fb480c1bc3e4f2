"""Tensors as they are before an operation, and what it did to them besides giving a result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import Unsupported
from .autograd_history import gradient_state, is_detached
from .memory_overlap import storage


class Before:
    """``tensors`` are all that an operation is given, ``given`` says which of them the graph itself is given."""

    def __init__(self, tensors: Sequence[torch.Tensor], is_given: Callable[[torch.Tensor], bool]) -> None:
        self.tensors = tensors
        self._versions = [_version(t) for t in tensors]
        self._given = [(t, _layout(t), gradient_state(t)) for t in tensors if is_given(t)]

    def changed(self, written: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Those that it wrote to. The operators say what they write to: inference tensors count no versions, nor do
        fakes in lists (torch._foreach_mul_), and some operators write without counting (what GradScaler finds).
        """
        storages = set(map(storage, written))
        return [
            t
            for t, version in zip(self.tensors, self._versions)
            if _version(t) != version or (storages and storage(t) in storages)
        ]

    def refuse_lost(self, changed: Sequence[torch.Tensor]) -> None:
        """A graph works on aliases of its inputs: what changes about one beside its data is lost. Raises Unsupported
        where something did.
        """
        if any(_layout(t) != layout for t, layout, _ in self._given):
            raise Unsupported("an operation that changes the shape of an input in place")
        written = set(map(id, changed))
        if any(id(t) not in written and is_detached(t, state) for t, _, state in self._given):
            raise Unsupported("an operation that takes an input out of its history in place", "use `.detach()`")


def _layout(t: torch.Tensor) -> tuple[Any, ...]:
    return t.shape, t.stride(), t.storage_offset()


def _version(t: torch.Tensor) -> int:
    return 0 if t.is_inference() else t._version
