"""How a fused kernel runs on a CPU: rows shared by threads, passes along each row in vectors."""

from __future__ import annotations

from ..records.kernels import FusedKernel
from ..records.loops import Buffer
from ..records.schedule import CpuMapping, Nest, Schedule
from ..records.sizes import Size, at_least, hint, known, magnitude, product
from ..records.target import Cpu
from .cost_model import work
from .nest import build
from .row_passes import row_passes


def scheduled(
    name: str, kernel: FusedKernel, buffers: dict[str, Buffer], target: Cpu, elements: Size | None = None
) -> Schedule:
    """The schedule of one kernel. C counts in 64 bits, however few the ``elements`` are."""
    nest = build(kernel, target.schedule.unrolled, target.schedule.total_block)
    done = work(nest)
    parallel = target.threads != 1 and done > target.schedule.least_shared(target.sleeping)
    mapping = CpuMapping(done, parallel, _panel_rows(nest, target), _transposed_dim(nest, target))
    return row_passes(name, nest, mapping, target.schedule.cheap_loads)


def _panel_rows(nest: Nest, target: Cpu) -> int:
    """How many rows a panel has; 0 where rows do not lie across memory."""
    if not nest.kernel.strided:
        return 0
    tuned, width, rows = target.schedule, known(nest.dims[nest.outer_rank - 1]), product(nest.row_dims)
    most = tuned.panel if hint(rows) >= tuned.panel * tuned.enough_panels else tuned.few_panel
    if width is None:
        return most
    even = (n for n in range(most, most // 2 - 1, -16) if width % n == 0)
    return width if width <= most else next(even, most)


def _transposed_dim(nest: Nest, target: Cpu) -> int | None:
    """A row dimension that some load walks element by element while the inner loop makes it jump; None if none does."""
    last, least = len(nest.dims) - 1, target.schedule.least_step
    for load in (load for loop in nest.loops for load in loop.loads):
        steps = load.access.strides
        if not load.access.indirect and at_least(magnitude(steps[last]) if steps else 0, least):
            for k in range(nest.outer_rank):
                if steps[k] == 1 and at_least(nest.dims[k], least):
                    return k
    return None
