"""What pays on a CPU: threads share rows that memory holds together, and sums of columns ride along."""

from __future__ import annotations

from dataclasses import dataclass

from ..records.loops import Loop
from ..records.sizes import Size, hint, product
from ..records.tuned.fusion import CpuFusion
from .legality import COLUMN, Refused, Rows, scan_kind
from .policy import Policy, check_contiguous
from .strided_reduction import strided_rows


@dataclass(frozen=True)
class CpuPolicy(Policy):
    """A layernorm's backward is one kernel: by rows, with the sums of columns added up as rows go by."""

    tuned: CpuFusion

    def check_rows(self, loops: list[Loop], dims: tuple[Size, ...], inner: Rows | None) -> None:
        """Rows are what memory holds together, and threads have lines enough to share."""
        super().check_rows(loops, dims, inner)
        if inner is not None:
            self._check_lines(loops, dims, inner)
        check_contiguous(loops, dims, inner)

    def other_rows(self, loops: list[Loop], dims: tuple[Size, ...]) -> Rows | None:
        """Down the columns, where these are short enough to stay in cache."""
        return strided_rows(loops, dims, self.tuned)

    def _check_lines(self, loops: list[Loop], dims: tuple[Size, ...], inner: Rows) -> None:
        """Where rows are needed whole, threads cannot share out columns: there must be rows apart from lines."""
        carrying = next((loop for loop in loops if scan_kind(loop) == COLUMN), None)
        if carrying is None or not _needs_rows(loops, dims):
            return
        lines = product(tuple(d for d, c, i in zip(dims, carrying.scanned, inner) if not c and not i))
        if hint(lines) < self.tuned.few_lines:
            raise Refused(f"{carrying.name} runs from row to row, which leaves threads nothing to share")


def _needs_rows(loops: list[Loop], dims: tuple[Size, ...]) -> bool:
    """Whether a loop takes whole rows: it reduces or scans along them, or runs once for each."""
    once = any(own == 1 and d != 1 for loop in loops for own, d in zip(loop.dims, dims))
    return once or any(loop.is_reduction or (loop.is_scan and scan_kind(loop) != COLUMN) for loop in loops)
