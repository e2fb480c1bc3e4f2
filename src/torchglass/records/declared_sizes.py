"""What a program says beforehand of sizes and whole numbers: by marks on tensors, and by ``dynamic_shapes=``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from .origin import Origin
from .sources import Source


@dataclass(frozen=True)
class DeclaredSize:
    """One size, or whole number, of a call. ``by`` is who says so, ``low`` and ``high`` bound it.

    ``changes``: whether it is left open; ``strict``: whether it is an error if it cannot be, or if the program needs it
    as a number. ``like`` is where a size is read that has the same name and is always equal.
    """

    by: str
    changes: bool = True
    strict: bool = False
    low: int = 0
    high: int | None = None
    like: Source | None = None

    def range(self) -> str:
        """``at least 2 and at most 64``; '' for any."""
        if self.low == self.high:
            return f"always {self.low}"
        least = f"at least {self.low}" if self.low else ""
        most = f"at most {self.high}" if self.high is not None else ""
        return " and ".join(filter(None, (least, most)))

    def has(self, value: int) -> bool:
        """Whether a value is in the range."""
        return self.low <= value and (self.high is None or value <= self.high)


DeclaredSizes: TypeAlias = Mapping[Source, DeclaredSize]

FixedSizes: TypeAlias = "dict[Source, tuple[str, Origin]]"
"""Sizes that change and were numbers in the end, each with why and for which line."""
