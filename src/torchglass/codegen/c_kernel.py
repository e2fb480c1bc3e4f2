"""One kernel as a C function: the row loops, how they run in parallel, the passes.

A layernorm over (512, 256) becomes::

    static void kernel_0(const float* restrict x, ..., float* restrict y)
    {
        #pragma omp parallel for schedule(static)
        for (int64_t i0 = 0; i0 < 512; ++i0) {
            float r1 = 0;
            #pragma omp simd reduction(+:r1)
            for (int64_t i1 = 0; i1 < 256; ++i1) { ... }

The function is made as statements (``statements``), which rewrites change where it pays, and printed at the end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..process.cached import cached_property
from ..records.kernels import TuningConfig
from ..records.loops import Buffer, item_bytes
from ..records.schedule import Schedule
from ..records.sizes import Size, at_least, at_most, hint, is_known, known, product
from ..records.target import Cpu
from . import c_scans
from .c_body import BodyBuilder, PassCode
from .c_columns import Columns
from .c_ops import CTYPES
from .c_printer import indent, lines_of
from .rewrites.bf16_pairs import bf16_pairs
from .rewrites.column_panels import Panels
from .rewrites.column_tables import column_tables
from .rewrites.opaque_strides import opaque_strides
from .rewrites.separate_gathers import separate_gathers
from .rewrites.transposed_tiles import Tiles, within
from .rewrites.unroll import unroll
from .rewrites.vector_accumulators import in_lanes, lanes_of
from .statements import (
    Assign,
    Block,
    Declare,
    For,
    Stmt,
    constant,
    in_c,
    limit,
    loops_changed,
    nested,
    places,
    shared,
)

DEFAULT = TuningConfig()


class CKernel:
    """Prints one schedule. ``text(name)`` is the function; ``arguments`` its buffers in order."""

    def __init__(
        self,
        schedule: Schedule,
        buffers: dict[str, Buffer],
        ident: Callable[[str], str],
        target: Cpu,
        choice: TuningConfig = DEFAULT,
    ) -> None:
        self.nest, self.buffers, self.ident, self.target, self.choice = schedule, buffers, ident, target, choice
        self.team = choice.threads or target.threads
        self.builder = BodyBuilder(schedule, buffers, ident, schedule.mapping.lanes)
        self.parallel = schedule.mapping.parallel if choice.threads is None else choice.threads != 1
        self.passes = self._passes()

    # -- the function ------------------------------------------------------------------------------------------------
    def text(self, name: str) -> str:
        body = lines_of(map(self._with_team, self._body()))
        return "\n".join([f"static void {name}({self.signature()})", "{", *indent(body), "}"])

    def _body(self) -> list[Stmt]:
        if self.builder.lanes:
            return self._panels()
        row = self._row_arrays() + self._row_code()
        if self.builder.lines:
            body = c_scans.from_row_to_row(
                self.nest, row, self.builder.lines, self.is_simple, self.parallel, self.target
            )
        elif self.builder.accumulators:
            body = Columns(
                self.builder, self.passes, self.target.schedule, is_simple=self.is_simple, parallel=self.parallel,
                row_block=self.choice.row_block, team=self.team,
            ).code(row)  # fmt: skip
        else:
            body = self._with_tables(self._row_loops(row))
        body = [*self._late_locals(), *body, *self._after()]
        return opaque_strides(body, self.nest.loops, len(self.nest.dims) - 1, self.target.schedule.shuffled)

    def _with_tables(self, body: list[Stmt]) -> list[Stmt]:
        """The rows behind arrays of what they compute of the columns alone."""
        *rows, size = (*self.nest.dims, 0)[: len(self.nest.dims)] or (0,)
        tuned = self.target.schedule
        if not is_known(size) or not at_least(product(rows), tuned.few_rows) or size > tuned.longest_table:
            return body
        narrow = frozenset(self.ident(b) for b in self.nest.kernel.reads if at_most(self._items(b), 2**31 - 1))
        ahead, body = column_tables(body, f"i{len(rows)}", size, narrow, tuned.most_tables)
        return [*ahead, *body]

    def _items(self, buffer: str) -> Size:
        return product(self.buffers[buffer].shape)

    def signature(self) -> str:
        shared = {name for pair in self.nest.kernel.inplace for name in pair}  # written where it is read
        pointers = {b: "*" if b in shared else "* restrict" for b in self.nest.arguments}
        reads, writes = self.nest.kernel.reads, self.nest.kernel.writes
        parts = [f"const {self.memory(b)}{pointers[b]} {self.ident(b)}" for b in reads]
        parts += [f"{self.memory(b)}{pointers[b]} {self.ident(b)}" for b in writes]
        return ", ".join((*parts, *(f"const int64_t {name}" for name in self.nest.symbols)))

    def memory(self, buffer: str) -> str:
        """The C type of a buffer's elements."""
        return CTYPES[self.buffers[buffer].dtype]

    def _with_team(self, stmt: Stmt) -> Stmt:
        """A statement whose threads are as many as the kernel may use."""
        if self.team is None or not isinstance(stmt, For | Block):
            return stmt
        stmt = replace(stmt, body=tuple(map(self._with_team, stmt.body)))
        more = f" num_threads({self.team})"
        if isinstance(stmt, For):
            return replace(stmt, clauses=stmt.clauses + more) if stmt.kind.startswith("parallel") else stmt
        return replace(stmt, pragma=stmt.pragma + more) if stmt.pragma == "parallel" else stmt

    def _late_locals(self) -> list[Stmt]:
        """Room for results of reductions over all rows that only the loops after them read."""
        kernel = self.nest.kernel
        late = {b for acc in self.builder.accumulators for b in acc.loop.writes if b in kernel.local}
        return [Declare(self.memory(b), self.ident(b), count=1, aligned=False) for b in sorted(late)]

    def _after(self) -> list[Stmt]:
        """The loops that need what only the last row completes: single numbers, once."""
        if not self.nest.after:
            return []
        p = PassCode()
        self.builder.row_values, self.builder.row_seen = {}, {}
        writer = {b: loop for loop in self.nest.loops for b in loop.writes if b in self.nest.kernel.local}
        needed = set(self.nest.after)
        for loop in reversed(self.nest.loops):
            if loop.name in needed:
                needed |= {writer[b].name for b in loop.reads if b in writer and not writer[b].is_reduction}
        for loop in self.nest.loops:
            if loop.name in needed:
                self.builder.loop(p, loop, full=False, again=loop.name not in self.nest.after)
        return [Block((*p.pre, *p.body, *p.post))]

    # -- passes over a row -------------------------------------------------------------------------------------------
    def _passes(self) -> list[PassCode]:
        before = PassCode()
        for name in self.nest.before:
            self.builder.loop(before, self.nest.by_name[name], full=False, again=False)
        self.builder.end_pass(before)
        passes = [before]
        stored: set[str] = set()
        for one in self.nest.passes:
            p = PassCode()
            for name in one.full:
                self.builder.loop(p, self.nest.by_name[name], full=bool(self.nest.inner_dims), again=name in stored)
                stored.add(name)
            for name in one.row:
                self.builder.loop(p, self.nest.by_name[name], full=False, again=False)
            self.builder.end_pass(p)
            passes.append(p)
        return passes

    @cached_property
    def is_simple(self) -> bool:
        """One pass without reductions, scans or row arrays: its inner loop itself can run in parallel."""
        busy = [p for p in self.passes if p.body]
        if len(busy) != 1 or busy[0].carried or busy[0].reductions:
            return False
        return not self.nest.row_arrays and len(self.nest.inner_dims) == 1

    def _row_code(self) -> list[Stmt]:
        code: list[Stmt] = []
        for p in self.passes:
            code += [*p.pre, *(self._inner_loops(p) if p.body else []), *p.post]
        return code

    def _inner_loops(self, p: PassCode) -> list[Stmt]:
        """The inner dimensions around a pass's body, the last one vectorized."""
        dims, first, last = self.nest.dims, self.nest.outer_rank, len(self.nest.dims) - 1
        if first > last:
            return [Block(tuple(p.body))] if p.reductions else list(p.body)
        size, tuned = dims[last], self.target.schedule
        if p.carried:
            loop = c_scans.along_row(p, last, size, tuned.short_line)
            return nested([loop], dims, range(first, last))
        if p.reductions:
            return self._reductions(p, first, last)
        inner = self._innermost(p)
        # GCC 12 gives zeros for the second of two masked loads that are written out (-O1 and above)
        if not p.masked and is_known(size) and size <= tuned.unrolled:
            if self.builder.lines:
                return nested(unroll(inner, size), dims, range(first, last))
            if last > first:  # the dimension before it is vectorized: its neighbours interleave in memory
                beside = For(f"i{last - 1}", "0", dims[last - 1], tuple(unroll(inner, size)), kind="simd")
                return nested([beside], dims, range(first, last - 1))
        return nested(self._simd(p, inner), dims, range(first, last))

    def _innermost(self, p: PassCode, clauses: str = "") -> For:
        last = len(self.nest.dims) - 1
        return For(f"i{last}", "0", self.nest.dims[last], tuple(p.body), kind="simd", clauses=clauses)

    def _simd(self, p: PassCode, loop: For) -> list[Stmt]:
        """The innermost loop, behind one of its own for what it gathers."""
        before, loop = self._gathered(p, loop)
        pairs = bf16_pairs(loop, self.target.lanes) if self.nest.parallel_dims is None else None
        return [*before, pairs or loop]

    def _gathered(self, p: PassCode, loop: For) -> tuple[list[Stmt], For]:
        """The loop that gathers what a pass needs, where it has one of its own, and the loop after it."""
        size = known(loop.stop) if not isinstance(loop.stop, str) else None
        if not self.nest.outer_rank or size is None or p.masked:
            return [], loop
        memory = {self.ident(b): self.memory(b) for b in self.nest.kernel.reads}
        return separate_gathers(loop, size, memory, self.target.schedule.longest_gather) or ([], loop)

    def _reductions(self, p: PassCode, first: int, last: int) -> list[Stmt]:
        """The inner dimensions around what is reduced; floats are added to totals in double before they are many."""
        dims, size, tuned, counter = self.nest.dims, self.nest.dims[last], self.target.schedule, f"i{last}"
        clauses = "".join(f" reduction({one.operator}:{one.name})" for one in p.reductions)
        loop = self._innermost(p, clauses)
        gather, apart = self._gathered(p, loop) if first == last else ([], loop)
        lanes = None  # GCC 12 and masked loads, as above
        if not p.masked and {(one.operator, one.ctype) for one in p.reductions} == {("+", "float")}:
            lanes = lanes_of(apart.body, self._touched(apart.body), counter, size, self.target.lanes, tuned.light_body)
        many, most = product(dims[first:]), tuned.lane_steps * (lanes.count if lanes else self.target.lanes)
        sums = {one.name: one.ctype for one in p.reductions if one.operator == "+"}
        if not sums or (at_most(many, most) and (first == last or lanes)):
            if lanes is None:
                return nested(self._simd(p, loop), dims, range(first, last))
            before, loops, found = in_lanes(apart.body, list(sums), lanes, counter, size)
            after = [Assign(name, text, "+=") for name, text in zip(sums, found)]
            return [*gather, *before, *nested(loops, dims, range(first, last)), *after]
        whole = at_most(size, most)
        start, end = ("0", size) if whole else ("block", "end")
        if lanes is None:
            inner: list[Stmt] = [*(Declare(ctype, name, "0") for name, ctype in sums.items())]
            inner, found = [*inner, replace(loop, start=start, stop=end)], list(sums)
        else:
            before, loops, found = in_lanes(p.body, list(sums), lanes, counter, end, start)
            inner = [*before, *loops]
        inner += [Assign(f"{name}_t", text, "+=") for name, text in zip(sums, found)]
        if not whole:
            inner = [For("block", "0", size, (limit("end", "block", most, size), *inner), step=most)]
        exact = {name: "double" if ctype == "float" else ctype for name, ctype in sums.items()}
        totals = [Declare(ctype, f"{name}_t", "0") for name, ctype in exact.items()]
        return [*totals, *nested(inner, dims, range(first, last)), *(Assign(name, f"{name}_t") for name in sums)]

    def _touched(self, body: Sequence[Stmt]) -> set[str]:
        """The C types of the buffers that statements name."""
        arrays = {place.array for stmt in body for place in places(stmt)}
        return {self.memory(b) for b in self.nest.arguments if self.ident(b) in arrays}

    # -- rooms -------------------------------------------------------------------------------------------------------
    def _row_arrays(self) -> list[Stmt]:
        """Declares the arrays in which rows are kept between passes."""
        return self._rooms([(*self._row_array(name), self.nest.columns) for name in sorted(self.nest.row_arrays)])

    def _row_array(self, name: str) -> tuple[str, str]:
        return self.ident(name), self.builder.row_array_dtype(name)

    def _rooms(self, rooms: Sequence[tuple[str, str, Size]]) -> list[Stmt]:
        """Declares arrays, by name, dtype and elements: on the stack while they fit, else in a thread's heap block."""
        made: list[Stmt] = []
        offset: Size = 0
        total: Size = 0
        most = sum((((size * 8 + 63) // 64) * 64 for _, _, size in rooms), 0)
        for name, dtype, size in rooms:
            item, ctype = item_bytes(dtype), CTYPES[dtype]
            if at_most(size * item + total, self.target.schedule.stack_bytes):
                made.append(Declare(ctype, name, count=size))
                total = total + size * item
            else:
                place = f"({ctype}*)(tg_scratch({in_c(most)}) + {in_c(offset)})"
                made.append(Declare(f"{ctype}* restrict", name, place))
                offset = offset + ((size * item + 63) // 64) * 64
        return made

    def _panels(self) -> list[Stmt]:
        """Rows across memory, several at once."""
        panels = Panels(self.builder, self.passes, self.choice.row_block, self.target.schedule.fetch_ahead)
        size = self.nest.columns * self.builder.lanes
        rooms = dict(self._row_array(name) for name in sorted(self.nest.row_arrays))
        rooms |= {read.name: read.dtype for read in panels.kept if read.again}
        return panels.code(self._rooms([(name, dtype, size) for name, dtype in rooms.items()]), self.parallel)

    # -- rows --------------------------------------------------------------------------------------------------------
    def _row_loops(self, row: list[Stmt]) -> list[Stmt]:
        nest, across = self.nest, self.nest.mapping.tiled
        if nest.parallel_dims is not None:
            return self._rows_in_turn(row, nest.parallel_dims)
        if across is not None and self.is_simple:
            return Tiles(self.builder, across, self.choice.tile, self.target).code(row, self.parallel)
        rows, few = range(nest.outer_rank), at_most(product(nest.row_dims), self.target.schedule.few_rows - 1)
        if self.parallel and rows and not (few and self.is_simple):
            return shared(nested(row, nest.dims, rows), len(rows))
        if self.parallel and self.is_simple:
            threads = lambda loop: replace(loop, kind="parallel simd") if loop.kind == "simd" else loop
            row = loops_changed(row, threads)
        return nested(row, nest.dims, rows)

    def _rows_in_turn(self, row: list[Stmt], apart: int) -> list[Stmt]:
        """Rows that may write the same elements, one after the other. Threads share the dimensions before them where
        there are enough, else the columns.
        """
        nest, last, tuned = self.nest, len(self.nest.dims) - 1, self.target.schedule
        code = nested(row, nest.dims, range(nest.outer_rank))
        if not self.parallel:
            return code
        if apart and (hint(product(nest.dims[:apart])) >= tuned.few_rows or not nest.inner_dims):
            return shared(code, apart)
        if not nest.inner_dims:
            return code
        size, line = nest.dims[last], tuned.line_floats
        return [
            Block((
                constant("team", "omp_get_num_threads()"),
                constant("block", f"(({in_c(size)} + team - 1) / team + {line - 1}) / {line} * {line}"),
                constant("from", "omp_get_thread_num() * block"),
                limit("to", "from", "block", size),
                *loops_changed(code, lambda loop: within(loop, last, size)),
            ), pragma="parallel"),
        ]  # fmt: skip


def adapter(
    name: str, function: str, arguments: Sequence[str], tables: Mapping[str, str], symbols: Sequence[str]
) -> str:
    """The exported function of the launcher's calling convention: buffers, then sizes by value. ``tables``: which
    arguments it brings itself, and how it declares them.
    """
    passed = (f"a[{k}]" for k in itertools.count())
    buffers = [b if b in tables else next(passed) for b in arguments]
    call = f"{function}({', '.join((*buffers, *(f'(int64_t){next(passed)}' for _ in symbols)))});"
    if not tables:
        return f"void {name}_call(void** a) {{ {call} }}"
    return "\n".join((f"void {name}_call(void** a)", "{", *indent([*tables.values(), call]), "}"))
