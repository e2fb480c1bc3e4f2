"""How a fused kernel runs on a GPU: one program for each few rows, or for a block of points where there are none.

A row is what values are carried along: the dimensions that loops reduce or scan, whichever way they lie in memory. A
row that the registers hold is read once; a longer one is walked block by block, once for each reduction that must be
complete before the next can begin.
"""

from __future__ import annotations

from dataclasses import replace

from ..records.kernels import FusedKernel
from ..records.loops import Buffer, Loop
from ..records.schedule import GpuMapping, RowPass, Schedule
from ..records.sizes import Size, at_most, product
from ..records.target import Gpu
from .gpu_tiles import point_tile, row_tile
from .nest import build
from .row_passes import names, row_passes

INT32_MOST = 2**31 - 1


def scheduled(name: str, kernel: FusedKernel, buffers: dict[str, Buffer], target: Gpu) -> Schedule:
    """The schedule of one kernel."""
    row = _row_of(kernel)
    nest = build(replace(kernel, inner=row), target.schedule.unrolled, total_block=None)
    rank = nest.outer_rank if any(row) else len(nest.dims)
    nest = replace(nest, kernel=kernel, outer_rank=rank, parallel_dims=None)  # scattered sums are atomic
    axes, warps = row_tile(nest, target) if any(row) else point_tile(nest, buffers, target)
    mapping = GpuMapping(axes, warps, _index_bits(nest.dims, [buffers[b] for b in (*kernel.reads, *kernel.writes)]))
    if mapping.looped:
        return row_passes(name, nest, mapping, cheap_loads=None)
    return Schedule(**vars(nest), name=name, passes=(RowPass(names(nest.loops)),), mapping=mapping)


def carried(loop: Loop) -> tuple[bool, ...]:
    """The dimensions along which a loop carries a value from point to point: it reduces or scans them."""
    return tuple(r or s for r, s in zip(loop.reduced, loop.scanned))


def _row_of(kernel: FusedKernel) -> tuple[bool, ...]:
    """The dimensions that the kernel's loops carry values along; ValueError if these are not the same for all."""
    found = {carried(loop): loop.name for loop in kernel.loops if any(carried(loop))}
    if len(found) > 1:
        raise ValueError(f"{kernel.name}: {' and '.join(found.values())} carry values along different dimensions")
    return next(iter(found), (False,) * len(kernel.dims))


def _index_bits(dims: tuple[Size, ...], buffers: list[Buffer]) -> int:
    """64 where the points, or the elements from a buffer's first to its last, may be too many for 32."""
    return 32 if all(at_most(size, INT32_MOST) for size in (product(dims), *(b.extent for b in buffers))) else 64
