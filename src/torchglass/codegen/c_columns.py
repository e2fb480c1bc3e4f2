"""Column reductions: sums of many rows in accumulators, which threads share by rows, by columns, or not at all.

``x.sum(0)`` of (4096, 256) on threads: blocks of 16 rows are added up in the values' own dtype, then joined to the
thread's totals in double, and the threads' totals at the end::

    for (int64_t first = 0; first < 4096; first += 16) {
        float acc1[256] ALIGNED;
        ...
        for (int64_t row = first; row < stop; ++row) { ... acc1[i1] = acc1[i1] + t2; }
        for (int64_t c = 0; c < 256; ++c) acc1_t[c] = acc1_t[c] + acc1[c];
    }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..records.sizes import Size, at_most, hint, is_known, product
from ..records.tuned.scheduling import CpuSchedule
from .c_body import Accumulator, BodyBuilder, PassCode, total_type, value_type
from .c_ops import reduction_start
from .c_scans import shifted
from .rewrites.transposed_tiles import within
from .statements import (
    Accumulate,
    Address,
    Assign,
    Block,
    Call,
    Count,
    Declare,
    For,
    Let,
    Place,
    Read,
    Stmt,
    When,
    constant,
    decode,
    in_c,
    limit,
    loops_changed,
    mapped,
    nested,
    renamed,
    shared,
)

C = Address((("c", 1),))


class Columns:
    """The rows of a kernel whose columns are added up. Row dimensions that all sums keep stay outside.

    ``is_simple``: all is one pass without reductions along rows; ``row_block``: rows that are added up before they join
    a total; ``team``: the most threads, None for as many as there are.
    """

    def __init__(
        self,
        builder: BodyBuilder,
        passes: Sequence[PassCode],
        tuned: CpuSchedule,
        *,
        is_simple: bool,
        parallel: bool,
        row_block: int,
        team: int | None,
    ) -> None:
        self.builder, self.nest, self.passes, self.tuned = builder, builder.nest, passes, tuned
        self.is_simple, self.parallel, self.block, self.team = is_simple, parallel, row_block, team
        self.columns = builder.accumulators
        kept = [k for k in range(self.nest.outer_rank) if not any(acc.loop.reduced[k] for acc in self.columns)]
        self.outer, self.inside = kept, [k for k in range(self.nest.outer_rank) if k not in kept]
        self.rows = product(self.nest.dims[k] for k in self.inside)

    def code(self, row: list[Stmt]) -> list[Stmt]:
        """The function's body, given the code of one row."""
        if not self.outer and self._is_wide():
            return self._column_blocks(row)
        if self.outer and self._few():
            code, share = self._rows_in_registers() or self._few_rows(row), self.parallel
        else:
            block = self._row_block(row, self.columns)
            enough = hint(product(self.nest.dims[k] for k in self.outer)) >= self.tuned.few_rows
            code, share = self._column_region(block, self.parallel and not enough), self.parallel and enough
        code = nested(code, self.nest.dims, self.outer)
        return shared(code, len(self.outer)) if share else code

    # -- a few rows --------------------------------------------------------------------------------------------------
    def _few(self) -> bool:
        """Whether the rows that columns add up are so few that they need no blocks."""
        return at_most(self.rows, self.block) and all(map(self._on_stack, self.columns))

    def _rows_in_registers(self) -> list[Stmt]:
        """The sums of very few rows, whose loop is written out inside the one over columns; empty if it cannot be.

        What is known once a row is a variable of its own for each of them: ``t2_0``, ``t2_1``.
        """
        nest, last, rows, passes = self.nest, len(self.nest.dims) - 1, self.rows, self.passes
        if not is_known(rows) or rows > self.tuned.rows_in_registers or len(self.inside) != 1:
            return []
        busy = [p for p in passes if p.body]
        if not self.is_simple or busy[0].masked or any(p.post for p in passes):
            return []
        if any(acc.size != nest.columns for acc in self.columns) or rows * len(busy[0].body) > self.tuned.most_unrolled:
            return []
        (dim,) = self.inside
        sums = {Place(acc.name, Address(((f"i{last}", 1),))): acc.name for acc in self.columns}
        once = [stmt for p in passes for stmt in p.pre]
        before: list[Stmt] = []
        body: list[Stmt] = [Declare(value_type(a.reduce.dtype), a.name, self._neutral(a)) for a in self.columns]
        for k in range(rows):
            own = {stmt.name: f"{stmt.name}_{k}" for stmt in once if isinstance(stmt, Let | Count | Read)}
            before += [_at(stmt, f"i{dim}", k) for stmt in renamed(once, own)]
            each = [_in_register(stmt, sums) for stmt in renamed(busy[0].body, own)]
            body.append(Block((constant(f"i{dim}", str(k)), *each)))
        for acc in self.columns:
            total = Declare(f"const {value_type(acc.reduce.dtype)}", "sum", acc.name)
            body.append(Block((constant("c", f"i{last}"), total, *self._finished(acc))))
        return [*before, For(f"i{last}", "0", nest.dims[last], tuple(body), kind="simd")]

    def _few_rows(self, row: list[Stmt]) -> list[Stmt]:
        """The sums of a few rows, stored as they are."""
        body = [stmt for acc in self.columns for stmt in self._started(acc)]
        body.append(For("row", "0", self.rows, (*self._counters(), *row)))
        for acc in self.columns:
            total = Declare(f"const {value_type(acc.reduce.dtype)}", "sum", f"{acc.name}[c]")
            body.append(For("c", "0", acc.size, (total, *self._finished(acc))))
        return [Block(tuple(body))]

    def _counters(self) -> list[Stmt]:
        return decode("row", [(k, self.nest.dims[k]) for k in self.inside])

    def _started(self, acc: Accumulator) -> list[Stmt]:
        """One block's sums, before the first row."""
        zero = _for_each(acc.size, Assign(Place(acc.name, C), self._neutral(acc)))
        own = Declare(value_type(acc.reduce.dtype), acc.name, count=acc.size)
        return [own, zero] if self._on_stack(acc) else [zero]

    @staticmethod
    def _neutral(acc: Accumulator) -> str:
        return reduction_start(acc.reduce.kind, acc.reduce.dtype)

    def _finished(self, acc: Accumulator) -> list[Stmt]:
        """What is done with the ``sum`` of column ``c``."""
        dims = list(enumerate(self.nest.dims))[self.nest.outer_rank :]
        return [*(decode("c", dims) if acc.size != 1 else []), *self.builder.finish_column(acc, "sum")]

    def _on_stack(self, acc: Accumulator) -> bool:
        return at_most(acc.size * 8, self.tuned.stack_bytes)

    # -- long rows ---------------------------------------------------------------------------------------------------
    def _is_wide(self) -> bool:
        """Whether threads should share out the columns: nothing in a row needs the whole row, and rows are long."""
        nest = self.nest
        if any(p.carried for p in self.passes) or hint(nest.columns) <= self.tuned.wide_row:
            return False
        alone = len(nest.passes) == 1 and not nest.row_arrays and len(nest.inner_dims) == 1
        simple = not any(loop.is_reduction and not any(loop.reduced[: nest.outer_rank]) for loop in nest.loops)
        return alone and simple and all(acc.size == nest.columns for acc in self.columns)

    def _column_blocks(self, row: list[Stmt]) -> list[Stmt]:
        """Threads share blocks of columns; each walks all rows of its block with sums that stay in cache."""
        nest, last, block = self.nest, len(self.nest.dims) - 1, self.tuned.column_block
        names = {acc.name for acc in self.columns}
        row = loops_changed(row, lambda loop: within(loop, last, nest.dims[last]))
        row = [mapped(stmt, place=lambda place: shifted(place, names)) for stmt in row]
        body: list[Stmt] = [limit("to", "from", block, nest.columns)]
        for acc in self.columns:
            body.append(Declare(total_type(acc.reduce), f"{acc.name}_t", count=block))
            body.append(_for_each(block, Assign(Place(f"{acc.name}_t", C), self._neutral(acc))))
        body += self._row_block(row, [replace(acc, size=block) for acc in self.columns])
        for acc in self.columns:
            total = Declare(f"const {value_type(acc.reduce.dtype)}", "sum", f"{acc.name}_t[i{last} - from]")
            body.append(For(f"i{last}", "from", "to", (total, *self.builder.finish_column(acc, "sum"))))
        kind = "parallel" if self.parallel else "serial"
        return [For("from", "0", nest.columns, tuple(body), step=block, kind=kind)]

    # -- blocks of rows ----------------------------------------------------------------------------------------------
    def _row_block(self, row: list[Stmt], columns: Sequence[Accumulator]) -> list[Stmt]:
        """One block of rows: sums in the values' own dtype, then joined to the thread's totals."""
        body = [stmt for acc in columns for stmt in self._started(acc)]
        body.append(limit("stop", "first", self.block, self.rows))
        body.append(For("row", "first", "stop", (*self._counters(), *row)))
        for acc in columns:
            body.append(_for_each(acc.size, self._joined(acc, Place(f"{acc.name}_t", C), f"{acc.name}[c]")))
        return [For("first", "0", self.rows, tuple(body), step=self.block)]

    @staticmethod
    def _joined(acc: Accumulator, target: str | Place, value: str) -> Stmt:
        return Accumulate(target, acc.reduce.kind, value, acc.reduce.dtype, exact=True)

    def _column_region(self, block: list[Stmt], threads: bool) -> list[Stmt]:
        """Totals per thread, the blocks shared out, then the threads' totals joined and stored."""
        team = str(self.team or "omp_get_max_threads()") if threads else "1"
        body: list[Stmt] = [Declare("const int", "team", team)]
        mine: list[Stmt] = []
        done: list[Stmt] = []
        for acc in self.columns:
            name, own, ctype = acc.name, value_type(acc.reduce.dtype), total_type(acc.reduce)
            if not self._on_stack(acc):
                size = f"({in_c(acc.size)} * sizeof({own}) + 63) / 64 * 64"
                mine.append(Declare(f"{own}* restrict", name, f"aligned_alloc(64, {size})"))
                done.append(Call("free", (name,)))
            body.append(constant(f"{name}_bytes", f"(({in_c(acc.size)} * sizeof({ctype}) + 63) / 64 * 64)"))
            body.append(Declare("char*", f"{name}_all", f"aligned_alloc(64, team * {name}_bytes)"))
            part = f"({ctype}*)({name}_all + thread * {name}_bytes)"
            mine.append(Declare(f"{ctype}* restrict", f"{name}_t", part))
        zero = [_for_each(acc.size, Assign(Place(f"{acc.name}_t", C), self._neutral(acc))) for acc in self.columns]
        if threads:
            assert len(block) == 1 and isinstance(block[0], For)
            share = replace(block[0], kind="shared")
            counted = When("thread == 0", Assign("used", "omp_get_num_threads()"))
            first: list[Stmt] = [Declare("const int", "thread", "omp_get_thread_num()"), counted]
            body.append(Declare("int", "used", "1"))
            body.append(Block((*first, *mine, *zero, share, *done), pragma="parallel num_threads(team)"))
        else:
            body.append(Declare("const int", "used", "1"))
            body.append(Block((Declare("const int", "thread", "0"), *mine, *zero, *block, *done)))
        for acc in self.columns:
            body += [self._stored(acc), Call("free", (f"{acc.name}_all",))]
        return [Block(tuple(body))]

    def _stored(self, acc: Accumulator) -> Stmt:
        """The threads' totals of each column as one, and what is done with it."""
        ctype = total_type(acc.reduce)
        part = f"(({ctype}*)({acc.name}_all + t * {acc.name}_bytes))[c]"
        joined = self._joined(acc, "total", part)
        return For("c", "0", acc.size, (
            Declare(ctype, "total", f"(({ctype}*){acc.name}_all)[c]"),
            For("t", "1", "used", (joined,), ctype="int", inline=True),
            Declare(f"const {value_type(acc.reduce.dtype)}", "sum", "total"),
            *self._finished(acc),
        ))  # fmt: skip


def _for_each(size: Size, stmt: Stmt) -> For:
    """A statement for each column ``c``, on one line."""
    return For("c", "0", size, (stmt,), inline=True)


def _at(stmt: Stmt, counter: str, number: int) -> Stmt:
    """The statement where a counter has this value."""
    if isinstance(stmt, Count):
        return replace(stmt, address=stmt.address.at(counter, number))
    return mapped(stmt, place=lambda place: Place(place.array, place.address.at(counter, number)))


def _in_register(stmt: Stmt, sums: dict[Place, str]) -> Stmt:
    """What joins to an element of an array, joining to a variable."""
    if isinstance(stmt, Accumulate) and isinstance(stmt.target, Place) and stmt.target in sums:
        return replace(stmt, target=sums[stmt.target])
    return stmt
