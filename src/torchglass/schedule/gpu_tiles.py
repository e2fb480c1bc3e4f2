"""The tile of a program of a GPU, and its warps: from sizes, bytes and registers, by the numbers of ``GpuSchedule``.

Rows of 100 floats, 65,536 of them, go eight to a program of one warp::

    x = [i0] parallel: 65536 in blocks of 8
    r = [i1] vector: 100 in blocks of 128

Sizes that are not known count by their hints where only speed depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from ..records.loops import Access, Buffer, item_bytes
from ..records.schedule import Nest, TileAxis
from ..records.sizes import Size, at_most, divides, hint, known, product
from ..records.target import Gpu
from ..records.tuned.scheduling import GpuSchedule
from .nest import accesses

WIDE = 16
"""Bytes that a thread moves at once at most."""
MOST_BLOCKS = 65_535
"""Programs that a grid may have along any dimension but its first."""
Tile = tuple[tuple[TileAxis, ...], int]
"""Axes, and warps."""


# -- points ----------------------------------------------------------------------------------------------------------
def point_tile(nest: Nest, buffers: dict[str, Buffer], target: Gpu) -> Tile:
    """The tile where nothing is carried from point to point: flat, unless rows and columns are worth telling apart."""
    tuned, points = target.schedule, hint(product(nest.dims))
    across = _transposed_dim(nest, tuned)
    if across is not None:
        wide = max(item_bytes(buffers[b].dtype) for b in (*nest.kernel.reads, *nest.kernel.writes)) > 2
        side = tuned.transposed_tile if wide else tuned.half_transposed_tile
        return _two(nest, across, side, side), tuned.warps(side * side, tuned.thread_points)
    wanted = tuned.busy * target.multiprocessors
    block = _fewer(tuned.flat_block, tuned.least_block, lambda b: -(-points // b) >= wanted)
    each = tuned.few_thread_points
    if block == tuned.flat_block:
        light = len({*nest.kernel.reads, *nest.kernel.writes}) <= tuned.light_points
        each = 2 * tuned.thread_points if light else tuned.thread_points
    line = _even(nest.dims[-1], block) if len(nest.dims) > 1 else 0
    if line >= tuned.least_line and hint(nest.dims[-1]) // line <= MOST_BLOCKS:
        return _two(nest, None, block // line, line), tuned.warps(block, each)
    axis = _axis("x", nest.dims, 0, block, "parallel")
    return (axis,), tuned.warps(axis.block, each)


def _transposed_dim(nest: Nest, tuned: GpuSchedule) -> int | None:
    """A dimension that most bytes are accessed along while the last one makes the same accesses jump; None if none."""
    last, weights = len(nest.dims) - 1, dict[int, int]()
    for loop in nest.loops:
        for access in accesses(loop):
            steps = access.strides
            if access.buffer in nest.kernel.local or not steps or steps[last] == 0 or abs(hint(steps[last])) == 1:
                continue
            for k in range(last):
                if abs(hint(steps[k])) == 1:
                    weights[k] = weights.get(k, 0) + access.touched(nest.dims)
    large = [k for k in weights if min(hint(nest.dims[k]), hint(nest.dims[last])) >= tuned.least_transposed]
    return max(large, key=lambda k: weights[k], default=None)


def _two(nest: Nest, near: int | None, rows: int, columns: int) -> tuple[TileAxis, ...]:
    """Two parallel axes: the last dimension, and all others, of which ``near`` comes last, so that it moves first.

    Without ``near`` the last moves first, as it lies in memory: what a row's programs gather from is fetched once.
    """
    last = len(nest.dims) - 1
    others = tuple(k for k in range(last) if k != near) + (() if near is None else (near,))
    size = product(nest.dims[k] for k in others)
    x = TileAxis("x", others, size, _block(size, rows), "parallel")
    y = TileAxis("y", (last,), nest.dims[last], _block(nest.dims[last], columns), "parallel")
    first, second = (y, x) if near is None else (x, y)
    if not at_most(second.blocks, MOST_BLOCKS):
        first, second = second, first
    return replace(first, name="x"), replace(second, name="y")


# -- rows ------------------------------------------------------------------------------------------------------------
def row_tile(nest: Nest, target: Gpu) -> Tile:
    """The tile of some rows, whole or a block of each."""
    if _runs_down_columns(nest):
        return _column_tile(nest, target)
    tuned, scans = target.schedule, any(loop.is_scan for loop in nest.loops)
    longest = min(tuned.long_row, tuned.long_scan) if scans else tuned.long_row
    inner = _axis("r", nest.inner_dims, nest.outer_rank, longest, "vector")
    if not at_most(nest.columns, longest):
        inner = replace(inner, block=tuned.long_scan if scans else _walked_block(nest.columns, tuned), kind="serial")
    rows, wanted = hint(product(nest.row_dims)), tuned.busy * target.multiprocessors
    each = _thread_points(nest, tuned)
    share = _fewer(max(1, 32 * each // inner.block), 1, lambda n: -(-rows // n) >= wanted)
    axes = (_axis("x", nest.row_dims, 0, share, "parallel"), inner) if nest.outer_rank else (inner,)
    points = inner.block * (axes[0].block if nest.outer_rank else 1)
    if scans:
        return axes, tuned.warps(points, tuned.scan_points)
    if inner.block > tuned.short_row:
        least = tuned.warps(points, each)
        return axes, max(least, tuned.row_warps(hint(nest.columns)))
    if rows >= share * wanted:
        return axes, tuned.warps(points, each)
    return axes, min(tuned.waiting_warps, tuned.warps(points, tuned.thread_points))


def _walked_block(columns: Size, tuned: GpuSchedule) -> int:
    """Columns of a block of a row that is walked: where their number is not known, all that a row has by its hint."""
    if known(columns) is not None:
        return tuned.row_block
    return _block(max(hint(columns), tuned.least_block), tuned.row_block)


def persistent_tile(nest: Nest, summed: Sequence[int], buffers: dict[str, Buffer], target: Gpu) -> Tile:
    """The tile of a program that walks a share of the rows, a few whole ones at a time, and adds up their columns.

    The dimensions ``summed`` are a program's; of the others each number is another one. Fewer rows at a time where more
    would leave no memory to ask for the next ones before they are needed.
    """
    tuned = target.schedule
    inner = _axis("r", nest.inner_dims, nest.outer_rank, tuned.long_row, "vector")
    assert at_most(nest.columns, inner.block), "fuse lets no rows through that are too wide for their sums"
    others = tuple(k for k in range(nest.outer_rank) if k not in summed)
    share, rows = (product(nest.dims[k] for k in dims) for dims in (others, summed))
    x, y = TileAxis("x", others, share, 1, "parallel"), TileAxis("y", tuple(summed), rows, 1, "serial")
    fitting = _room(target) // max(1, tuned.stages * _loaded_bytes(nest, (x, y, inner), buffers))
    few = _even(rows, max(1, min(tuned.persistent_tile // inner.block, fitting))) or 1
    each = tuned.packed_points if inner.block > tuned.packed_row else tuned.persistent_points
    return (x, replace(y, block=few), inner), tuned.warps(few * inner.block, each)


# -- software pipelining ---------------------------------------------------------------------------------------------
def pipeline_stages(nest: Nest, axes: tuple[TileAxis, ...], buffers: dict[str, Buffer], target: Gpu) -> int:
    """Blocks of the axis that a program walks that are under way at a time: as many as shared memory has room for.

    One alone where numbers would be copied there in pieces of less than 16 bytes, which takes longer than waiting.
    """
    walked = next((axis for axis in axes if axis.kind == "serial"), None)
    needed = 0 if walked is None else _loaded_bytes(nest, axes, buffers)
    if walked is None or not needed or not all(_is_wide(a, axes, buffers) for a in _loaded(nest)):
        return 1
    if is_packed(axes, target):  # each pass fetches what all rows have in common, and that too ahead
        common = sum(_bytes(access, axes[-1:], buffers) for access in _loaded(nest)) - needed
        return target.schedule.packed_stages if needed + 2 * common < target.shared_memory else 1
    return max(1, min(target.schedule.stages, hint(walked.blocks), _room(target) // needed))


def is_packed(axes: tuple[TileAxis, ...], target: Gpu) -> bool:
    """Whether a program walks rows, wide ones, of which it makes the sums of columns."""
    *_, walked, columns = (None, *axes)
    serial = walked is not None and walked.kind == "serial" and columns.kind == "vector"
    return serial and columns.block > target.schedule.packed_row


def _room(target: Gpu) -> int:
    """Bytes of shared memory of each of the programs that a multiprocessor is to run at once."""
    return target.shared_memory // target.schedule.busy


def _loaded_bytes(nest: Nest, axes: tuple[TileAxis, ...], buffers: dict[str, Buffer]) -> int:
    """Bytes that a program loads for one block of the axis that it walks."""
    walked = next(axis for axis in axes if axis.kind == "serial")
    return sum(_bytes(access, axes, buffers) for access in _loaded(nest) if walked in _moving(access, axes))


def _bytes(access: Access, axes: tuple[TileAxis, ...], buffers: dict[str, Buffer]) -> int:
    """Of the block that is accessed."""
    return item_bytes(buffers[access.buffer].dtype) * prod(axis.block for axis in _moving(access, axes))


def _moving(access: Access, axes: tuple[TileAxis, ...]) -> list[TileAxis]:
    """The axes along which it has other numbers."""
    return [axis for axis in axes if access.indirect or any(access.strides[k] != 0 for k in axis.dims)]


def _loaded(nest: Nest) -> set[Access]:
    return {op.access for loop in nest.loops for op in loop.loads if op.access.buffer not in nest.kernel.local}


def _is_wide(access: Access, axes: tuple[TileAxis, ...], buffers: dict[str, Buffer]) -> bool:
    """Whether a thread's accesses may be of 16 bytes: neighbours lie together, rows begin and end at such."""
    items = WIDE // item_bytes(buffers[access.buffer].dtype)
    last = [axis for axis in axes if any(access.strides[k] == 1 for k in axis.dims)]
    steps = (access.offset, *(s for s in access.strides if s != 1), *(axis.size for axis in last if axis.is_ragged))
    return not access.indirect and (bool(last) or not any(access.strides)) and all(divides(items, n) for n in steps)


def _thread_points(nest: Nest, tuned: GpuSchedule) -> int:
    """Points of a thread: fewer where the tile holds many buffers' numbers."""
    return 32 if _moved_buffers(nest) <= tuned.light_tile else 16


def _moved_buffers(nest: Nest) -> int:
    """How many buffers a row has numbers of for each of its columns."""
    found = [a for loop in nest.loops for a in accesses(loop) if a.buffer not in nest.kernel.local]
    return len({a.buffer for a in found if any(s != 0 for s in a.strides[nest.outer_rank :])})


def register_limit(nest: Nest, tile: Tile, target: Gpu) -> int | None:
    """The most registers of a thread, where a few less are a second program for the multiprocessor: rows that fill half
    of it, read, reduced and written, leave it waiting for memory when they are alone."""
    (*_, columns), warps = tile
    tuned = target.schedule
    few = hint(product(nest.row_dims)) < tuned.busy * target.multiprocessors
    if columns.kind != "vector" or columns.block <= tuned.half_row or few or _moved_buffers(nest) > 2:
        return None
    return tuned.registers // (tuned.busy * 32 * warps)


def _column_tile(nest: Nest, target: Gpu) -> Tile:
    """The tile where neighbouring rows lie side by side: fewer of them, and longer parts, where there are few."""
    tuned, rows = target.schedule, hint(product(nest.row_dims))
    points = tuned.column_block**2
    share = _fewer(tuned.column_block, tuned.least_columns, lambda n: -(-rows // n) >= target.multiprocessors)
    inner = _axis("r", nest.inner_dims, nest.outer_rank, max(1, points // share), "vector")
    if not at_most(nest.columns, inner.block):
        inner = replace(inner, kind="serial")
    outer = _axis("x", nest.row_dims, 0, share, "parallel")
    scans = any(loop.is_scan for loop in nest.loops)
    each = 2 * tuned.column_points if _moved_buffers(nest) <= 2 else tuned.column_points
    return (outer, inner), tuned.warps(outer.block * inner.block, tuned.scan_points if scans else each)


def _runs_down_columns(nest: Nest) -> bool:
    """Whether most of what is read lies side by side for neighbouring rows, and not along a row."""
    along = across = 0
    for load in (load for loop in nest.loops for load in loop.loads if load.access.buffer not in nest.kernel.local):
        steps, count = load.access.strides, load.access.touched(nest.dims)
        along += count * (1 in steps[nest.outer_rank :])
        across += count * (1 in steps[: nest.outer_rank])
    return across > along


# -- sizes -----------------------------------------------------------------------------------------------------------
def _fewer(most: int, least: int, enough: Callable[[int], bool]) -> int:
    """The largest of most, most / 2, ... that is enough, or the least."""
    while most > least and not enough(most):
        most //= 2
    return most


def _even(size: Size, most: int) -> int:
    """The largest power of two that divides a size, at most ``most``; 0 where it is not known."""
    number = known(size)
    return min(number & -number, 1 << (most.bit_length() - 1)) if number else 0


def _axis(name: str, dims: tuple[Size, ...], first: int, most: int, kind: str) -> TileAxis:
    """An axis whose block is the least power of two that holds it, at most ``most``."""
    size = product(dims)
    return TileAxis(name, tuple(range(first, first + len(dims))), size, _block(size, most), kind)


def _block(size: Size, most: int) -> int:
    block = 1
    while block < most and not at_most(size, block):
        block *= 2
    return block
