"""What pays on a GPU: every program has rows of its own, and what is reduced or scanned is within one.

A layernorm's backward is two kernels: one by rows, whose programs each walk a share of them and add up its columns
(``split_reductions``), and one that adds up their sums. Where rows are few, or too wide, dx is one kernel, which stores
what dw and db read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..records.loops import Load, Loop, Reduce, item_bytes
from ..records.sizes import Size, at_most, hint, product
from ..records.tuned.fusion import GpuFusion
from .legality import Refused, Rows
from .policy import Policy, check_contiguous


@dataclass(frozen=True)
class GpuPolicy(Policy):
    """Programs run side by side: none adds to another's results, so that no kernel has to be split again."""

    tuned: GpuFusion
    carries: ClassVar[bool] = False
    launched_points: ClassVar[int] = 1

    def check_rows(self, loops: list[Loop], dims: tuple[Size, ...], inner: Rows | None) -> None:
        """Rows are what is reduced, or what memory holds together; a broadcast over outer dimensions makes no row."""
        super().check_rows(loops, dims, inner)
        if inner is not None and any(is_column_sum(loop, inner) for loop in loops):
            self._check_persistent(loops, dims, inner)
        elif not any(loop.is_reduction or loop.is_scan for loop in loops):
            check_contiguous(loops, dims, inner)

    def _check_persistent(self, loops: list[Loop], dims: tuple[Size, ...], inner: Rows) -> None:
        """A program holds a whole row, and the sums of its columns; a wider row as memory has it, in half the room."""
        check_contiguous(loops, dims, inner)
        columns = product(d for d, i in zip(dims, inner) if i)
        if any(loop.is_scan for loop in loops):
            raise Refused("a scan leaves no registers for the sums of columns")
        programs = product(d for d, i, s in zip(dims, inner, _summed(loops, inner)) if not i and not s)
        if hint(programs) < self.tuned.persistent_programs:
            raise Refused(f"{programs} programs would walk all rows")
        wide = not at_most(columns, self.tuned.persistent_columns)
        if not at_most(columns, self.tuned.packed_columns):
            raise Refused(f"rows of {columns} are too wide for a program that holds them and the sums of their columns")
        made = {name for loop in loops for name in loop.writes}
        loads = [o.access for loop in loops for o in loop.body if isinstance(o, Load) and o.access.buffer not in made]
        moves = lambda access, within: any(s != 0 and i == within for s, i in zip(access.strides, inner))
        # what all rows have in common does not stay beside a wide row: it is fetched again for each
        along = {a.buffer for a in loads if moves(a, True) and (not wide or moves(a, False))}
        room = [item_bytes(self.buffers[name].dtype) / 4 if wide else 1 for name in along]
        if wide and max(room, default=0) > 0.5:
            raise Refused(f"rows of {columns} are too wide for a program, but for numbers of two bytes")
        sums = sum(isinstance(o, Reduce) for loop in loops if is_column_sum(loop, inner) for o in loop.body)
        if (sum(room) + sums) * hint(columns) > (self.tuned.packed_numbers if wide else self.tuned.persistent_numbers):
            raise Refused(f"{len(along)} buffers' rows and {sums} sums of columns are more than registers hold")


def _summed(loops: list[Loop], inner: Rows) -> Rows:
    """The dimensions of the rows that a program walks."""
    return next(loop.reduced for loop in loops if is_column_sum(loop, inner))


def is_column_sum(loop: Loop, inner: Rows) -> bool:
    """Whether it reduces rows, where others have them."""
    return loop.is_reduction and not any(r and i for r, i in zip(loop.reduced, inner))
