"""The tile of a program of a GPU, and its warps: from sizes, bytes and registers, by the numbers of ``GpuSchedule``.

Rows of 100 floats, 65,536 of them, go eight to a program of one warp::

    x = [i0] parallel: 65536 in blocks of 8
    r = [i1] vector: 100 in blocks of 128

Sizes that are not known count by their hints where only speed depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..records.loops import Access, Buffer, item_bytes
from ..records.schedule import Nest, TileAxis
from ..records.sizes import Size, at_most, hint, known, product
from ..records.target import Gpu
from ..records.tuned.scheduling import GpuSchedule
from .nest import accesses

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
    each = tuned.thread_points if block == tuned.flat_block else tuned.few_thread_points
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
                    weights[k] = weights.get(k, 0) + moved(access, nest.dims)
    large = [k for k in weights if min(hint(nest.dims[k]), hint(nest.dims[last])) >= tuned.least_transposed]
    return max(large, key=lambda k: weights[k], default=None)


def _two(nest: Nest, near: int | None, rows: int, columns: int) -> tuple[TileAxis, ...]:
    """Two parallel axes: the last dimension, and all others, of which ``near`` comes last, so that it moves first."""
    last = len(nest.dims) - 1
    others = tuple(k for k in range(last) if k != near) + (() if near is None else (near,))
    size = product(nest.dims[k] for k in others)
    x = TileAxis("x", others, size, _block(size, rows), "parallel")
    y = TileAxis("y", (last,), nest.dims[last], _block(nest.dims[last], columns), "parallel")
    if at_most(y.blocks, MOST_BLOCKS):
        return x, y
    return replace(y, name="x"), replace(x, name="y")


# -- rows ------------------------------------------------------------------------------------------------------------
def row_tile(nest: Nest, target: Gpu) -> Tile:
    """The tile of some rows, whole or a block of each."""
    if _runs_down_columns(nest):
        return _column_tile(nest, target)
    tuned, scans = target.schedule, any(loop.is_scan for loop in nest.loops)
    longest = min(tuned.long_row, tuned.long_scan) if scans else tuned.long_row
    inner = _axis("r", nest.inner_dims, nest.outer_rank, longest, "vector")
    if not at_most(nest.columns, longest):
        inner = replace(inner, block=tuned.row_block, kind="serial")
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


def persistent_tile(nest: Nest, summed: Sequence[int], target: Gpu) -> Tile:
    """The tile of a program that walks a share of the rows, a few whole ones at a time, and adds up their columns.

    The dimensions ``summed`` are a program's; of the others each number is another one.
    """
    tuned = target.schedule
    inner = _axis("r", nest.inner_dims, nest.outer_rank, tuned.long_row, "vector")
    assert at_most(nest.columns, inner.block), "fuse lets no rows through that are too wide for their sums"
    others = tuple(k for k in range(nest.outer_rank) if k not in summed)
    share, rows = (product(nest.dims[k] for k in dims) for dims in (others, summed))
    few = _even(rows, max(1, tuned.persistent_tile // inner.block)) or 1
    axes = (TileAxis("x", others, share, 1, "parallel"), TileAxis("y", tuple(summed), rows, few, "serial"), inner)
    return axes, tuned.warps(few * inner.block, tuned.persistent_points)


def _thread_points(nest: Nest, tuned: GpuSchedule) -> int:
    """Points of a thread: fewer where the tile holds many buffers' numbers."""
    first = nest.outer_rank
    found = [a for loop in nest.loops for a in accesses(loop) if a.buffer not in nest.kernel.local]
    full = {a.buffer for a in found if any(s != 0 for s in a.strides[first:])}
    return 32 if len(full) <= tuned.light_tile else 16


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
    return (outer, inner), tuned.warps(outer.block * inner.block, tuned.scan_points if scans else 16)


def _runs_down_columns(nest: Nest) -> bool:
    """Whether most of what is read lies side by side for neighbouring rows, and not along a row."""
    along = across = 0
    for load in (load for loop in nest.loops for load in loop.loads if load.access.buffer not in nest.kernel.local):
        steps, count = load.access.strides, moved(load.access, nest.dims)
        along += count * (1 in steps[nest.outer_rank :])
        across += count * (1 in steps[: nest.outer_rank])
    return across > along


# -- sizes -----------------------------------------------------------------------------------------------------------
def moved(access: Access, dims: Sequence[Size]) -> int:
    """About how many elements an access touches."""
    return hint(product(d for s, d in zip(access.strides, dims) if s != 0))


def _fewer(most: int, least: int, enough: Callable[[int], bool]) -> int:
    """The largest of most, most / 2, ... that is enough, or the least."""
    while most > least and not enough(most):
        most //= 2
    return most


def _even(size: Size, most: int) -> int:
    """The largest power of two that divides a size, at most ``most``; 0 where it is not known."""
    number = known(size)
    return min(number & -number, most) if number else 0


def _axis(name: str, dims: tuple[Size, ...], first: int, most: int, kind: str) -> TileAxis:
    """An axis whose block is the least power of two that holds it, at most ``most``."""
    size = product(dims)
    return TileAxis(name, tuple(range(first, first + len(dims))), size, _block(size, most), kind)


def _block(size: Size, most: int) -> int:
    block = 1
    while block < most and not at_most(size, block):
        block *= 2
    return block
