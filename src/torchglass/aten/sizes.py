"""Sizes that may be symbolic, for those who only estimate or try."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


def hint(size: int | torch.SymInt) -> int:
    """The number that a size was when the program was compiled; nothing is assumed of it."""
    return int(size.node.hint) if isinstance(size, torch.SymInt) else size


def hints(sizes: Iterable[Any]) -> list[int]:
    return [hint(size) for size in sizes]


def hinted(value: Any) -> Any:
    """An argument with the numbers in the places of symbolic sizes; tensors keep theirs."""
    if isinstance(value, torch.SymInt):
        return hint(value)
    return type(value)(map(hinted, value)) if type(value) in (list, tuple) else value


def elements(tensor: torch.Tensor) -> int:
    """How many elements it had when the program was compiled."""
    return hint(tensor.numel())
