"""Rows that lie across memory: where what a column comes to is needed by all of the column.

A softmax over the first dimension of (64, 256): maximum, exponentials and their sum, division. By rows of 256 that is
three kernels, since a column's maximum is known only when the last row is done. Down the columns it is one: of 32
neighbouring columns all stays in cache, as of a row. Where there is much to read, three passes along memory
took less time than one across it.
"""

from __future__ import annotations

from ..records.loops import Access, Loop
from ..records.sizes import Size, all_known, is_known, product
from ..records.tuned.fusion import CpuFusion


def strided_rows(loops: list[Loop], dims: tuple[Size, ...], tuned: CpuFusion) -> tuple[bool, ...] | None:
    """The dimensions that the loops reduce, if these make rows across memory that are worth walking; else None."""
    reduced = {loop.reduced for loop in loops if loop.is_reduction}
    if len(reduced) != 1 or not all_known(dims):
        return None
    (inner,) = reduced
    each = tuple(1 if i else d for d, i in zip(dims, inner))
    if any(loop.is_scan or loop.is_scatter or loop.dims not in (dims, each) for loop in loops):
        return None
    lanes = [k for k, i in enumerate(inner) if not i and all(_neighbours(loop, k) for loop in loops)]
    if len(lanes) != 1 or any(not _is_plain(access) for loop in loops for access in _accesses(loop)):
        return None
    if any(load.mask for loop in loops for load in loop.loads):
        return None
    return inner if _is_worth_it(dims, inner, dims[lanes[0]], tuned) else None


def _accesses(loop: Loop) -> list[Access]:
    return [*(load.access for load in loop.loads), *(store.access for store in loop.stores)]


def _is_plain(access: Access) -> bool:
    return not access.indirect and all_known(access.strides)


def _neighbours(loop: Loop, k: int) -> bool:
    """Whether all that is read and written lies side by side along a dimension, or is the same."""
    return all(access.strides[k] in (0, 1) for access in _accesses(loop))


def _is_worth_it(dims: tuple[int, ...], inner: tuple[bool, ...], width: int, tuned: CpuFusion) -> bool:
    """``width``: columns side by side."""
    points, rows = product(dims), product(d for d, i in zip(dims, inner) if not i)
    assert is_known(points) and is_known(rows)
    if points > tuned.strided_points or width < tuned.strided_lanes:
        return False
    panels = rows // width * -(-width // tuned.strided_panel)
    return panels >= tuned.strided_panels or points <= tuned.alone
