"""How a fused kernel runs on a CPU: rows shared by threads, passes along each row in vectors."""

from __future__ import annotations

from ..records.kernels import FusedKernel
from ..records.loops import Buffer
from ..records.schedule import CpuMapping, RowPass, Schedule
from ..records.target import Cpu
from .cost_model import work
from .nest import build
from .row_passes import row_passes


def scheduled(name: str, kernel: FusedKernel, buffers: dict[str, Buffer], target: Cpu) -> Schedule:
    """The schedule of one kernel."""
    nest = build(kernel, target.schedule.unrolled)
    plan = row_passes(nest)
    names = lambda loops: tuple(loop.name for loop in loops)
    passes = tuple(RowPass(names(one.full), names(one.row)) for one in plan.stages)
    done = work(nest)
    return Schedule(
        name, kernel, nest.dims, nest.outer_rank, nest.loops, nest.parallel_dims, names(plan.before), passes,
        names(plan.after), frozenset(plan.full), frozenset(plan.scratch),
        CpuMapping(done, target.threads != 1 and done > target.schedule.least_shared(target.sleeping)),
    )  # fmt: skip
