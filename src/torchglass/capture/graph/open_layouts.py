"""Tensors that are another one's memory or a copy of it, as sizes have it that are left open.

    y = x.transpose(0, 1).contiguous()        # x's memory where one of its sizes is 1, a copy where none is

A graph copies for all sizes. Whether it did shows only to a program that writes to one of the two, hands out both, or
asks; for these the capture begins again, and asks sizes where it matters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch

from ...records.symbolic_ints import has_symbols, lies_contiguous
from .memory_overlap import storage

MAYBE_COPIES = frozenset(("reshape", "reshape_as", "flatten", "ravel", "contiguous", "to", "channel_shuffle"))
"""Functions whose result is their argument's memory where that lies well for it."""
QUESTIONS = frozenset(("is_contiguous",))


def may_copy(name: str, args: Sequence[Any], result: Any) -> bool:
    """Whether a function gave a copy of a tensor whose memory it would give if that lay well for it."""
    copies = name in MAYBE_COPIES and _of_symbols(args) and isinstance(result, torch.Tensor)
    return copies and storage(args[0]) != storage(result)


def _of_symbols(args: Sequence[Any]) -> bool:
    return bool(args) and isinstance(args[0], torch.Tensor) and has_symbols(args[0])


class LayoutsMatter(BaseException):
    """The program sees whether something is a copy. No error of the program's, and nothing that handles errors is to
    see it.
    """


class OpenLayouts:
    """Groups of storages that are perhaps one."""

    def __init__(self) -> None:
        self._groups: dict[int, set[int]] = {}

    def watch(self, name: str, args: Sequence[Any], result: Any) -> None:
        """Look at a function's call. Raises LayoutsMatter where it asks how a tensor lies."""
        if name in QUESTIONS and _of_symbols(args) and not lies_contiguous(args[0]):
            raise LayoutsMatter
        if may_copy(name, args, result):
            self._join(storage(args[0]), storage(result))

    def _join(self, one: int, other: int) -> None:
        group = self._groups.get(one, {one}) | self._groups.get(other, {other})
        self._groups.update(dict.fromkeys(group, group))

    def written(self, storages: Iterable[int]) -> None:
        """Raises LayoutsMatter where what was written to is perhaps another tensor too."""
        if not self._groups.keys().isdisjoint(storages):
            raise LayoutsMatter

    def leaving(self, storages: Collection[int]) -> None:
        """Raises LayoutsMatter where two storages that programs see are perhaps one."""
        if any(len(group.intersection(storages)) > 1 for group in self._groups.values()):
            raise LayoutsMatter
