"""Values carried from point to point: along a row, by OpenMP in vectors; from row to row, in an array over the row.

``x.cumsum(1)`` of (512, 1024) float32, each row::

    double r2 = 0;
    #pragma omp simd reduction(inscan,+:r2)
    for (int64_t i1 = 0; i1 < 1024; ++i1) {
        { const float t1 = x[1024*i0 + i1]; r2 = r2 + (double)t1; }
        #pragma omp scan inclusive(r2)
        { y[1024*i0 + i1] = (float)r2; }
    }

which takes 140 microseconds where one addition after the other takes 370. ``x.cumsum(0)`` has ``double acc1[512]`` for
a block of columns and walks the rows from the first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..records.schedule import Schedule
from ..records.sizes import Size, at_most, is_known
from ..records.target import Cpu
from .c_body import Line, PassCode, value_type
from .c_ops import reduction_start
from .rewrites.transposed_tiles import within
from .statements import (
    Address,
    Assign,
    Block,
    Call,
    Declare,
    For,
    Place,
    Pragma,
    Stmt,
    in_c,
    limit,
    loops_changed,
    mapped,
    nested,
    shared,
)


def along_row(p: PassCode, last: int, size: Size, short: int) -> For:
    """The innermost loop, along which values are carried; of fewer than ``short`` elements without vectors."""
    if not all(one.operator for one in p.carried) or at_most(size, short - 1):
        return For(f"i{last}", "0", size, (*p.body, *p.after))
    clauses = "".join(f" reduction(inscan,{one.operator}:{one.name})" for one in p.carried)
    scan = Pragma(f"scan inclusive({', '.join(one.name for one in p.carried)})")
    return For(f"i{last}", "0", size, (Block(tuple(p.body)), scan, Block(tuple(p.after))), kind="simd", clauses=clauses)


def from_row_to_row(
    nest: Schedule, row: Sequence[Stmt], lines: Sequence[Line], simple: bool, parallel: bool, target: Cpu
) -> list[Stmt]:
    """Rows along the lines run in order; threads share the other rows, and blocks of columns where nothing in a row
    needs the whole row (``simple``).
    """
    last, block = len(nest.dims) - 1, target.schedule.column_block
    along = [k for k in range(nest.outer_rank) if lines[0].scan.strides[k] != 0]
    outer = [k for k in range(nest.outer_rank) if k not in along]
    size: Size = nest.columns
    blocks = simple and is_known(size) and size > block
    body = list(row)
    if blocks:
        names = {line.name for line in lines}
        body = loops_changed(body, lambda loop: within(loop, last, nest.columns))
        body = [mapped(stmt, place=lambda place: shifted(place, names)) for stmt in body]
        size = block
    started: list[Stmt] = []
    done: list[Stmt] = []
    for line in lines:
        started += _started(line, size, done, target)
    code: list[Stmt] = [*started, *nested(body, nest.dims, along), *done]
    count = len(outer) + blocks
    if blocks:
        code = [limit("to", "from", block, nest.columns), *code]
        code = [For("from", "0", nest.columns, tuple(code), step=block)]
    elif not outer:
        code = [Block(tuple(code))]
    code = nested(code, nest.dims, outer)
    return shared(code, count) if parallel and count else code


def shifted(place: Place, arrays: Collection[str]) -> Place:
    """An element of an array over a row as that of one over the block that begins at ``from``."""
    return Place(place.array, place.address.plus("from", -1)) if place.array in arrays else place


def _started(line: Line, size: Size, done: list[Stmt], target: Cpu) -> list[Stmt]:
    """The array of a line before its first row; ``done`` gets what is to be freed after the last."""
    own, start = value_type(line.scan.dtype), reduction_start(line.scan.kind, line.scan.dtype)
    if at_most(size * 8, target.schedule.stack_bytes):
        room = Declare(own, line.name, count=size)
    else:
        many = f"({in_c(size)} * sizeof({own}) + 63) / 64 * 64"
        room = Declare(f"{own}* restrict", line.name, f"aligned_alloc(64, {many})")
        done.append(Call("free", (line.name,)))
    each = Assign(Place(line.name, Address((("c", 1),))), start)
    return [room, For("c", "0", size, (each,), inline=True)]
