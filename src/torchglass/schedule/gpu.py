"""How a fused kernel runs on a GPU: one program for each few rows, or for a block of points where there are none.

A row is what values are carried along: the dimensions that loops reduce or scan, whichever way they lie in memory. A
row that the registers hold is read once; a longer one is walked block by block, once for each reduction that must be
complete before the next can begin.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..records.kernels import FusedKernel
from ..records.loops import Buffer, Loop
from ..records.schedule import GpuMapping, Nest, RowPass, Schedule, TileAxis
from ..records.sizes import Size, at_most, product
from ..records.target import Gpu
from ..records.tuned.scheduling import GpuSchedule
from .nest import build
from .row_passes import names, row_passes

INT32_MOST = 2**31 - 1


def scheduled(name: str, kernel: FusedKernel, buffers: dict[str, Buffer], target: Gpu) -> Schedule:
    """The schedule of one kernel."""
    tuned = target.schedule
    row = _row_of(kernel)
    nest = build(replace(kernel, inner=row), tuned.unrolled, total_block=None)
    rank = nest.outer_rank if any(row) else len(nest.dims)
    nest = replace(nest, kernel=kernel, outer_rank=rank, parallel_dims=None)  # scattered sums are atomic
    axes = _rows(nest, tuned) if any(row) else (_axis("x", nest.dims, 0, tuned.flat_block, "parallel"),)
    warps = tuned.warps(prod(axis.block for axis in axes))
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


def _rows(nest: Nest, tuned: GpuSchedule) -> tuple[TileAxis, ...]:
    """The tile of some rows, whole or a block of each."""
    down = _runs_down_columns(nest)
    longest, step = (tuned.column_block, tuned.column_block) if down else (tuned.long_row, tuned.row_block)
    if any(loop.is_scan for loop in nest.loops):
        longest = min(longest, tuned.long_scan)
    inner = _axis("r", nest.inner_dims, nest.outer_rank, longest, "vector")
    if not at_most(nest.columns, longest):
        inner = replace(inner, block=step, kind="serial")
    if not nest.outer_rank:
        return (inner,)
    share = tuned.column_block if down else max(1, tuned.row_tile // inner.block)
    return _axis("x", nest.row_dims, 0, share, "parallel"), inner


def _runs_down_columns(nest: Nest) -> bool:
    """Whether neighbouring rows, and not neighbours within a row, are side by side in memory."""
    strides = [op.access.strides for loop in nest.loops for op in loop.loads]
    return not any(1 in s[nest.outer_rank :] for s in strides) and any(1 in s[: nest.outer_rank] for s in strides)


def _axis(name: str, dims: tuple[Size, ...], first: int, most: int, kind: str) -> TileAxis:
    """An axis whose block is the least power of two that holds it, at most ``most``."""
    size, block = product(dims), 1
    while block < most and not at_most(size, block):
        block *= 2
    return TileAxis(name, tuple(range(first, first + len(dims))), size, block, kind)


def _index_bits(dims: tuple[Size, ...], buffers: list[Buffer]) -> int:
    """64 where the points, or the elements from a buffer's first to its last, may be too many for 32."""
    return 32 if all(at_most(size, INT32_MOST) for size in (product(dims), *(b.extent for b in buffers))) else 64
