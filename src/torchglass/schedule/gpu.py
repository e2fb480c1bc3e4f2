"""How a fused kernel runs on a GPU: one program for each few rows, or for a block of points where there are none.

A row is what values are carried along: the dimensions that loops reduce or scan, whichever way they lie in memory. A
row that the registers hold is read once; a longer one is walked block by block, once for each reduction that must be
complete before the next can begin.
"""

from __future__ import annotations

from dataclasses import replace

from ..records.index_range import covers
from ..records.kernels import FusedKernel
from ..records.loops import Buffer, Index, Loop
from ..records.schedule import GpuMapping, Nest, RowPass, Schedule, TileAxis
from ..records.sizes import Size, at_most, divides, hint, is_known, product
from ..records.target import Gpu
from .gpu_tiles import Tile, is_packed, persistent_tile, pipeline_stages, point_tile, register_limit, row_tile
from .narrow import narrowed
from .nest import build
from .row_passes import names, row_passes

INT32_MOST = 2**31 - 1
LAST_BLOCK = 2**16
"""Points by which counters may go past the end: where one wrapped there, it would be below it again."""


def scheduled(
    name: str, kernel: FusedKernel, buffers: dict[str, Buffer], target: Gpu, elements: Size | None = None
) -> Schedule:
    """The schedule of one kernel. ``elements``: as ``LoopGraph`` has them."""
    row = _row_of(kernel)
    nest = build(replace(kernel, inner=row), target.schedule.unrolled, total_block=None)
    rank = nest.outer_rank if any(row) else len(nest.dims)
    nest = replace(nest, kernel=kernel, outer_rank=rank, parallel_dims=None)  # scattered sums are atomic
    axes, warps = tile = _tile(nest, row, buffers, target)
    bits = _index_bits(nest, [buffers[b] for b in (*kernel.reads, *kernel.writes)], elements)
    if bits == 32:
        nest = replace(nest, loops=tuple(narrowed(loop, nest.dims) for loop in nest.loops))
    stages = pipeline_stages(nest, axes, buffers, target)
    registers = register_limit(nest, tile, target) if any(row) else None
    packed = is_packed(axes, target)
    mapping = GpuMapping(axes, warps, bits, _last_apart(nest, axes, target), stages, registers, packed)
    if packed:
        return row_passes(name, nest, mapping, cheap_loads=None)
    if mapping.looped:
        walked = row_passes(name, nest, mapping, cheap_loads=None)
        return replace(walked, held=_held(walked, nest))
    return _in_one_pass(name, nest, mapping)


def _in_one_pass(name: str, nest: Nest, mapping: GpuMapping) -> Schedule:
    return Schedule(**vars(nest), name=name, passes=(RowPass(names(nest.loops)),), mapping=mapping)


def _held(walked: Schedule, nest: Nest) -> Schedule | None:
    """The schedule for rows of an unknown size that one block has room for: they are read once."""
    mapping: GpuMapping = walked.mapping
    row = mapping.columns
    again = len(walked.passes) > 1 and not any(loop.is_scan for loop in nest.loops)
    if not again or is_known(row.size) or hint(row.size) > row.block:
        return None
    axes = tuple(replace(axis, kind="vector") if axis is row else axis for axis in mapping.axes)
    return _in_one_pass(walked.name, nest, replace(mapping, axes=axes, stages=1))


def _tile(nest: Nest, row: tuple[bool, ...], buffers: dict[str, Buffer], target: Gpu) -> Tile:
    if not any(row):
        return point_tile(nest, buffers, target)
    summed = sorted({k for loop in nest.loops for k in range(nest.outer_rank) if loop.reduced[k]})
    return persistent_tile(nest, summed, buffers, target) if summed else row_tile(nest, target)


def _last_apart(nest: Nest, axes: tuple[TileAxis, ...], target: Gpu) -> bool:
    """Whether a mask would keep all blocks' accesses from being wide, and the code for two kinds of blocks is short."""
    tuned, first = target.schedule, axes[0]
    if len(axes) > 1 or first.kind != "parallel" or divides(tuned.aligned, first.size):
        return False
    operations = sum(len(loop.body) for loop in nest.loops)
    return hint(first.size) >= tuned.apart_points and operations <= tuned.apart_operations


def carried(loop: Loop) -> tuple[bool, ...]:
    """The dimensions along which a loop carries a value from point to point: it reduces or scans them."""
    return tuple(r or s for r, s in zip(loop.reduced, loop.scanned))


def _row_of(kernel: FusedKernel) -> tuple[bool, ...]:
    """The dimensions that the kernel's loops carry values along, the same for all.

    Or the rows' where others make sums of columns and a dimension tells programs apart; else ValueError.
    """
    found = {carried(loop): loop.name for loop in kernel.loops if any(carried(loop))}
    summed = [dims for dims in found if dims != kernel.inner]
    if any(kernel.inner) and len(summed) == 1 and _tells_apart(kernel, summed[0]):
        return kernel.inner
    if len(found) > 1:
        raise ValueError(f"{kernel.name}: {' and '.join(found.values())} carry values along different dimensions")
    return next(iter(found), (False,) * len(kernel.dims))


def _tells_apart(kernel: FusedKernel, summed: tuple[bool, ...]) -> bool:
    roles = list(zip(kernel.dims, kernel.inner, summed))
    return not any(row and s for _, row, s in roles) and any(d != 1 and not row and not s for d, row, s in roles)


def _index_bits(nest: Nest, buffers: list[Buffer], elements: Size | None) -> int:
    """64 where the points, or the elements from a buffer's first to its last, may be too many for 32, or what counters
    are multiplied by for numbers that are no addresses.
    """

    def few(size: Size, after: int = 0) -> bool:
        return at_most(size, INT32_MOST - after) or (elements is not None and covers(elements, size))

    if not (few(product(nest.dims), LAST_BLOCK) and all(few(b.extent) for b in buffers)):
        return 64
    counted = [op for loop in nest.loops for op in loop.body if isinstance(op, Index)]
    steps = [size for op in counted for size in (op.offset, *op.strides) if not is_known(size)]
    return 32 if all(few(size) and few(-size) for size in steps) else 64
