"""What pays on a GPU: every program has rows of its own, and what is reduced or scanned is within one.

A layernorm's backward is two kernels: dx by rows, which stores what the other needs; dw and db down the columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..records.loops import Loop
from ..records.sizes import Size
from ..records.tuned.fusion import GpuFusion
from .legality import Rows
from .policy import Policy, check_contiguous


@dataclass(frozen=True)
class GpuPolicy(Policy):
    """Programs run side by side: none adds to another's results, so that no kernel has to be split again."""

    tuned: GpuFusion
    carries: ClassVar[bool] = False

    def check_rows(self, loops: list[Loop], dims: tuple[Size, ...], inner: Rows | None) -> None:
        """Rows are what is reduced, or what memory holds together; a broadcast over outer dimensions makes no row."""
        super().check_rows(loops, dims, inner)
        if not any(loop.is_reduction or loop.is_scan for loop in loops):
            check_contiguous(loops, dims, inner)
