"""How a fused kernel runs on a GPU: one program for each few rows, or for a block of points where there are none."""

from __future__ import annotations

from ..records.kernels import FusedKernel
from ..records.loops import Buffer
from ..records.schedule import Schedule
from ..records.target import Gpu
from .nest import build


def scheduled(name: str, kernel: FusedKernel, buffers: dict[str, Buffer], target: Gpu) -> Schedule:
    """The schedule of one kernel."""
    nest = build(kernel, target.schedule.unrolled, target.schedule.total_block)
    total = bool(nest.loops) and all(all(loop.reduced) for loop in nest.loops)  # which is one row, however long
    return Schedule(name, kernel, nest.dims, 0 if total else nest.outer_rank, nest.loops, nest.parallel_dims)
