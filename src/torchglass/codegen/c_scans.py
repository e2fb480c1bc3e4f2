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

from ..records.schedule import Schedule
from ..records.sizes import Size
from .c_body import Line, Pass, value_type
from .c_ops import reduction_start
from .c_text import indent, limit, loop_over, wrap

BLOCK = 512  # columns whose values stay in cache while rows go by
SHORT_LINE = 32  # elements below which a vector is hardly filled
STACK_BYTES = 32768


def along_row(p: Pass, last: int, size: Size) -> list[str]:
    """The innermost loop, along which values are carried."""
    if not all(op for op, _ in p.carried) or (isinstance(size, int) and size < SHORT_LINE):
        return [loop_over(last, size), *indent([*p.body, *p.after]), "}"]
    clauses = "".join(f" reduction(inscan,{op}:{var})" for op, var in p.carried)
    scan = f"#pragma omp scan inclusive({', '.join(var for _, var in p.carried)})"
    body = ["{", *indent(p.body), "}", scan, "{", *indent(p.after), "}"]
    return [f"#pragma omp simd{clauses}", loop_over(last, size), *indent(body), "}"]


def from_row_to_row(nest: Schedule, row: list[str], lines: list[Line], simple: bool, parallel: bool) -> list[str]:
    """Rows along the lines run in order; threads share the other rows, and blocks of columns where nothing in a row
    needs the whole row (``simple``).
    """
    last = len(nest.dims) - 1
    along = [k for k in range(nest.outer_rank) if lines[0].scan.strides[k] != 0]
    outer = [k for k in range(nest.outer_rank) if k not in along]
    size: Size = nest.columns
    blocks = simple and isinstance(size, int) and size > BLOCK
    if blocks:
        block = f"for (int64_t i{last} = from; i{last} < to; ++i{last}) {{"
        row = [text.replace(loop_over(last, size), block) for text in row]
        for line in lines:
            row = [text.replace(f"{line.name}[i{last}]", f"{line.name}[i{last} - from]") for text in row]
        size = BLOCK
    code: list[str] = []
    done: list[str] = []
    for line in lines:
        code += _started(line, size, done)
    code += [*wrap(row, nest.dims, along), *done]
    if blocks:
        code = [limit("to", "from", BLOCK, nest.columns), *code]
        code = [f"for (int64_t from = 0; from < {nest.columns}; from += {BLOCK}) {{", *indent(code), "}"]
    elif not outer:
        code = ["{", *indent(code), "}"]
    count = len(outer) + blocks
    threads = [f"#pragma omp parallel for schedule(static) collapse({count})"] if parallel and count else []
    return [*threads, *wrap(code, nest.dims, outer)]


def _started(line: Line, size: Size, done: list[str]) -> list[str]:
    """The array of a line before its first row; ``done`` gets what is to be freed after the last."""
    own, start = value_type(line.scan.dtype), reduction_start(line.scan.kind, line.scan.dtype)
    if isinstance(size, int) and size * 8 <= STACK_BYTES:
        room = f"{own} {line.name}[{size}] ALIGNED;"
    else:
        room = f"{own}* restrict {line.name} = aligned_alloc(64, ({size} * sizeof({own}) + 63) / 64 * 64);"
        done.append(f"free({line.name});")
    return [room, f"for (int64_t c = 0; c < {size}; ++c) {line.name}[c] = {start};"]
