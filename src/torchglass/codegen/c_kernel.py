"""One kernel as a C function: the row loops, how they run in parallel, the passes, column accumulators.

A layernorm over (512, 256) becomes::

    static void kernel_0(const float* restrict x, ..., float* restrict y)
    {
        #pragma omp parallel for schedule(static)
        for (int64_t i0 = 0; i0 < 512; ++i0) {
            float r1 = 0;
            #pragma omp simd reduction(+:r1)
            for (int64_t i1 = 0; i1 < 256; ++i1) { ... }
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..records.kernels import Choice
from ..records.loops import Buffer, item_bytes
from ..records.schedule import Schedule
from ..records.sizes import Size, product
from ..records.target import Cpu
from . import c_panels, c_scans, c_tiles, gathers
from .c_body import Accumulator, BodyPrinter, Pass, total_type, value_type
from .c_lanes import STEPS, VECTOR, laned, lanes_of
from .c_ops import CTYPES, reduction_start
from .c_pairs import paired
from .c_text import copies, decode, indent, limit, loop_over, renamed, wrap

WIDE_ROW = 4096  # columns past which column sums are shared out by columns
COLUMN_BLOCK = 512
CACHE_LINE = 16  # floats
ENOUGH = 16  # rows for threads to share them rather than the columns
STACK_BYTES = 32768  # scratch rows larger than this live in a thread's own heap block
MOST_SHUFFLED = 8  # elements apart that GCC may load together and take apart
MOST_WRITTEN_OUT = 8  # rows whose sum stays in a register
MOST_LINES = 64  # that are written out for them
DEFAULT = Choice()


class CKernel:
    """Prints one nest. ``text(name)`` is the function; ``arguments`` its buffers in order."""

    def __init__(
        self,
        nest: Schedule,
        buffers: dict[str, Buffer],
        ident: Callable[[str], str],
        target: Cpu,
        choice: Choice = DEFAULT,
    ) -> None:
        self.nest, self.buffers, self.ident, self.target, self.choice = nest, buffers, ident, target, choice
        self.team = choice.threads or target.threads
        self.printer = BodyPrinter(nest, buffers, ident, c_panels.lanes_of(nest))
        kernel = nest.kernel
        self.inputs = kernel.reads
        self.outputs = kernel.writes
        self.arguments = (*self.inputs, *self.outputs)
        self.parallel = nest.mapping.parallel if choice.threads is None else choice.threads != 1

    # -- the function ------------------------------------------------------------------------------------------------
    def text(self, name: str) -> str:
        passes = self._passes()
        if self.printer.lanes:
            return self._function(name, self._panels(passes))
        row = self._scratch() + self._row_code(passes)
        columns = self.printer.accumulators
        if self.printer.lines:
            body = c_scans.from_row_to_row(self.nest, row, self.printer.lines, self._simple(passes), self.parallel)
        else:
            body = self._with_columns(row, columns, passes) if columns else self._row_loops(row, passes)
        return self._function(name, self._hide_steps([*self._late_locals(), *body, *self._after()]))

    def _function(self, name: str, body: list[str]) -> str:
        if self.team is not None:
            body = [_with_team(line, self.team) for line in body]
        return "\n".join([f"static void {name}({self.signature()})", "{", *indent(body), "}"])

    def signature(self) -> str:
        shared = {name for pair in self.nest.kernel.inplace for name in pair}  # written where it is read
        pointers = {b: "*" if b in shared else "* restrict" for b in self.arguments}
        parts = [f"const {self._memory(b)}{pointers[b]} {self.ident(b)}" for b in self.inputs]
        parts += [f"{self._memory(b)}{pointers[b]} {self.ident(b)}" for b in self.outputs]
        return ", ".join(parts)

    def _memory(self, buffer: str) -> str:
        return CTYPES[self.buffers[buffer].dtype]

    def _hide_steps(self, body: list[str]) -> list[str]:
        """The code with wide steps of the inner loop as variables that the compiler knows nothing of.

        Where one buffer is read twice at a constant step, ``x[4096*i]`` and ``x[4096*i + 1]``, GCC loads all that lies
        between and shuffles: thousands of instructions for each element, and seconds of compiling.
        """
        last, found = len(self.nest.dims) - 1, []
        for loop in self.nest.loops:
            found += [(a.buffer, a.strides[last]) for a in {load.access for load in loop.loads} if last >= 0]
        wide = sorted({s for b, s in found if isinstance(s, int) and s > MOST_SHUFFLED and found.count((b, s)) > 1})
        for step in wide:
            body = [re.sub(rf"\b{step}\*i{last}\b", f"step{step}*i{last}", line) for line in body]
        return [*(f"int64_t step{step} = {step}; OPAQUE(step{step});" for step in wide), *body]

    def _late_locals(self) -> list[str]:
        """Room for results of reductions over all rows that only the loops after them read."""
        kernel = self.nest.kernel
        late = {b for acc in self.printer.accumulators for b in acc.loop.writes if b in kernel.local}
        return [f"{self._memory(b)} {self.ident(b)}[1];" for b in sorted(late)]

    def _after(self) -> list[str]:
        """The loops that need what only the last row completes: single numbers, once."""
        p = Pass()
        self.printer.row_values, self.printer.row_seen = {}, {}
        writer = {b: loop for loop in self.nest.loops for b in loop.writes if b in self.nest.kernel.local}
        needed = set(self.nest.after)
        for loop in reversed(self.nest.loops):
            if loop.name in needed:
                needed |= {writer[b].name for b in loop.reads if b in writer and not writer[b].is_reduction}
        for loop in self.nest.loops:
            if loop.name in needed:
                self.printer.loop(p, loop, full=False, again=loop.name not in self.nest.after)
        return ["{", *indent([*p.pre, *p.body, *p.post]), "}"] if self.nest.after else []

    # -- passes over a row -------------------------------------------------------------------------------------------
    def _passes(self) -> list[Pass]:
        passes: list[Pass] = []
        before = Pass()
        for name in self.nest.before:
            self.printer.loop(before, self.nest.by_name[name], full=False, again=False)
        self.printer.end_pass(before)
        passes.append(before)
        stored: set[str] = set()
        for one in self.nest.passes:
            p = Pass()
            for name in one.full:
                self.printer.loop(p, self.nest.by_name[name], full=bool(self.nest.inner_dims), again=name in stored)
                stored.add(name)
            for name in one.row:
                self.printer.loop(p, self.nest.by_name[name], full=False, again=False)
            self.printer.end_pass(p)
            passes.append(p)
        return passes

    def _row_code(self, passes: list[Pass]) -> list[str]:
        lines: list[str] = []
        for p in passes:
            lines += p.pre
            if p.body:
                lines += self._inner_loops(p)
            lines += p.post
        return lines

    def _inner_loops(self, p: Pass) -> list[str]:
        """The inner dimensions around a pass's body, the last one vectorized."""
        nest = self.nest
        first, last = nest.outer_rank, len(nest.dims) - 1
        if first > last:
            return ["{", *indent(p.body), "}"] if p.reductions else list(p.body)
        size = nest.dims[last]
        if p.carried:
            return wrap(c_scans.along_row(p, last, size), nest.dims, range(first, last))
        if (
            self.printer.lines
            and not p.reductions
            and not p.masked
            and isinstance(size, int)
            and size <= self.target.schedule.unrolled
        ):
            return wrap(copies(p.body, last, size), nest.dims, range(first, last))
        # GCC 12 gives zeros for the second of two masked loads that are written out (-O1 and above)
        if (
            not p.reductions
            and not p.masked
            and last > first
            and isinstance(size, int)
            and size <= self.target.schedule.unrolled
        ):
            return wrap(self._written_out(p.body, last, size), nest.dims, range(first, last - 1))
        if p.reductions:
            return self._reductions(p, first, last)
        return wrap(self._simd(p, "", last, size), nest.dims, range(first, last))

    def _simd(self, p: Pass, clauses: str, last: int, size: Size) -> list[str]:
        """The innermost loop, behind one of its own for what it gathers."""
        before, body = self._gathered(p, last, size)
        even = isinstance(size, int) and size % 2 == 0 and size >= 2 * VECTOR
        two = paired(body, last) if even and not clauses and self.nest.parallel_dims is None else None
        loop = loop_over(last, size, 2) if two else loop_over(last, size)
        return [*before, f"#pragma omp simd{clauses}", loop, *indent(two or body), "}"]

    def _gathered(self, p: Pass, last: int, size: Size) -> tuple[list[str], list[str]]:
        """The loop that gathers what a pass needs, where it has one of its own, and the body after it."""
        memory = {self.ident(b): self._memory(b) for b in self.inputs}
        possible = self.nest.outer_rank and isinstance(size, int) and not p.masked
        apart = gathers.split(p.body, f"i{last}", size, memory) if possible else None
        if apart is None:
            return [], p.body
        arrays, gather, body = apart
        return [*arrays, loop_over(last, size), *indent(gather), "}"], body

    def _written_out(self, body: list[str], last: int, size: int) -> list[str]:
        """The last dimension written out, the one before it vectorized: its neighbours interleave in memory."""
        written = copies(body, last, size)
        return ["#pragma omp simd", loop_over(last - 1, self.nest.dims[last - 1]), *indent(written), "}"]

    def _reductions(self, p: Pass, first: int, last: int) -> list[str]:
        """The inner dimensions around what is reduced; floats are added to totals in double before they are many."""
        dims, size = self.nest.dims, self.nest.dims[last]
        types = {var: self._sum_type(p, var) for _, var in p.reductions}
        gather, body = self._gathered(p, last, size) if first == last else ([], p.body)
        lanes = None  # GCC 12 and masked loads, as above
        if not p.masked and {(op, types[var]) for op, var in p.reductions} == {("+", "float")}:
            lanes = lanes_of(body, self._touched(body), last, size)
        many, most = product(dims[first:]), STEPS * (lanes.count if lanes else VECTOR)
        sums = [var for op, var in p.reductions if op == "+"]
        if not sums or (isinstance(many, int) and many <= most and (first == last or lanes)):
            if lanes is None:
                return wrap(self._simd(p, _clauses(p), last, size), dims, range(first, last))
            before, loops, found = laned(body, sums, lanes, last, size)
            after = [f"{var} += {text};" for var, text in zip(sums, found)]
            return [*gather, *before, *wrap(loops, dims, range(first, last)), *after]
        whole = isinstance(size, int) and size <= most
        start, end = ("0", size) if whole else ("block", "end")
        if lanes is None:
            loop = f"for (int64_t i{last} = {start}; i{last} < {end}; ++i{last}) {{"
            inner = [*(f"{types[var]} {var} = 0;" for var in sums), f"#pragma omp simd{_clauses(p)}", loop]
            inner, found = [*inner, *indent(p.body), "}"], sums
        else:
            before, loops, found = laned(p.body, sums, lanes, last, end, start)
            inner = [*before, *loops]
        inner += [f"{var}_t += {text};" for var, text in zip(sums, found)]
        if not whole:
            inner = [limit("end", "block", most, size), *inner]
            inner = [f"for (int64_t block = 0; block < {size}; block += {most}) {{", *indent(inner), "}"]
        totals = [f"{'double' if types[var] == 'float' else types[var]} {var}_t = 0;" for var in sums]
        return [*totals, *wrap(inner, dims, range(first, last)), *(f"{var} = {var}_t;" for var in sums)]

    def _touched(self, body: list[str]) -> set[str]:
        """The C types of the memory that statements name."""
        words = {word for line in body for word in re.findall(r"\w+(?=\[)", line)}
        return {self._memory(b) for b in self.arguments if self.ident(b) in words}

    @staticmethod
    def _sum_type(p: Pass, var: str) -> str:
        return next(x for x in p.pre if f" {var} = " in x).split()[0]

    def _scratch(self) -> list[str]:
        """Declares the scratch rows."""
        names = {self.ident(name): self.printer._scratch_dtype(name) for name in sorted(self.nest.row_arrays)}
        return self._rooms([(name, dtype, self.nest.columns) for name, dtype in names.items()])

    def _rooms(self, rooms: list[tuple[str, str, Size]]) -> list[str]:
        """Declares arrays, by name, dtype and elements: on the stack while they fit, else in a thread's heap block."""
        lines: list[str] = []
        offset: Size = 0
        total = 0
        most = sum(((size * 8 + 63) // 64) * 64 for _, _, size in rooms)
        for name, dtype, size in rooms:
            item, ctype = item_bytes(dtype), CTYPES[dtype]
            nbytes = size * item if isinstance(size, int) else STACK_BYTES + 1
            if nbytes + total <= STACK_BYTES:
                lines.append(f"{ctype} {name}[{size}] ALIGNED;")
                total += nbytes
            else:
                lines.append(f"{ctype}* restrict {name} = ({ctype}*)(tg_scratch({most}) + {offset});")
                offset = offset + ((size * item + 63) // 64) * 64
        return lines

    def _panels(self, passes: list[Pass]) -> list[str]:
        """Rows across memory, several at once."""
        panels = c_panels.Panels(self.nest, self.printer, passes, self.choice.row_block)
        size = self.nest.columns * self.printer.lanes
        names = {self.ident(name): self.printer._scratch_dtype(name) for name in sorted(self.nest.row_arrays)}
        names |= {read.name: read.dtype for read in panels.kept if read.again}
        return panels.code(self._rooms([(name, dtype, size) for name, dtype in names.items()]), self.parallel)

    # -- rows --------------------------------------------------------------------------------------------------------
    def _row_loops(self, row: list[str], passes: list[Pass]) -> list[str]:
        nest = self.nest
        if nest.parallel_dims is not None:
            return self._rows_in_turn(row, nest.parallel_dims)
        count = nest.outer_rank
        across = c_tiles.transposed_dim(nest) if self._simple(passes) else None
        if across is not None:
            most = self.choice.tile
            return c_tiles.Tiles(nest, self.buffers, self.ident, across, most).code(row, self.parallel)
        if not self.parallel:
            return wrap(row, nest.dims, range(count))
        rows = product(nest.row_dims)
        if count and not (isinstance(rows, int) and rows < 16 and self._simple(passes)):
            collapse = f" collapse({count})" if count > 1 else ""
            return [f"#pragma omp parallel for schedule(static){collapse}", *wrap(row, nest.dims, range(count))]
        if self._simple(passes):
            code = [line.replace("#pragma omp simd", "#pragma omp parallel for simd schedule(static)") for line in row]
            return wrap(code, nest.dims, range(count))
        return wrap(row, nest.dims, range(count))

    def _rows_in_turn(self, row: list[str], apart: int) -> list[str]:
        """Rows that may write the same elements, one after the other. Threads share the dimensions before them where
        there are enough, else the columns.
        """
        nest, last = self.nest, len(self.nest.dims) - 1
        code, many = wrap(row, nest.dims, range(nest.outer_rank)), product(nest.dims[:apart])
        if not self.parallel:
            return code
        if apart and not (isinstance(many, int) and many < ENOUGH and nest.inner_dims):
            collapse = f" collapse({apart})" if apart > 1 else ""
            return [f"#pragma omp parallel for schedule(static){collapse}", *code]
        if not nest.inner_dims:
            return code
        size = nest.dims[last]
        moved = f"for (int64_t i{last} = from; i{last} < to; ++i{last}) {{"
        lines = [
            "const int64_t team = omp_get_num_threads();",
            f"const int64_t block = (({size} + team - 1) / team + {CACHE_LINE - 1}) / {CACHE_LINE} * {CACHE_LINE};",
            "const int64_t from = omp_get_thread_num() * block;",
            limit("to", "from", "block", size),
            *(line.replace(loop_over(last, size), moved) for line in code),
        ]
        return ["#pragma omp parallel", "{", *indent(lines), "}"]

    def _simple(self, passes: list[Pass]) -> bool:
        """One pass without reductions, scans or scratch: its inner loop itself can run in parallel."""
        busy = [p for p in passes if p.body]
        if len(busy) != 1 or busy[0].carried:
            return False
        return not busy[0].reductions and not self.nest.row_arrays and len(self.nest.inner_dims) == 1

    # -- column reductions -------------------------------------------------------------------------------------------
    def _with_columns(self, row: list[str], columns: list[Accumulator], passes: list[Pass]) -> list[str]:
        """Row dimensions that all column reductions keep stay outside; the others run in blocks with accumulators."""
        nest = self.nest
        outer = _kept_rows(nest, columns)
        inside = [k for k in range(nest.outer_rank) if k not in outer]
        if not outer and self._wide(columns, passes):
            return self._column_blocks(row, columns, inside)
        if outer and self._few(columns, inside):
            few = self._rows_in_registers(columns, inside, passes) or self._few_rows(row, columns, inside)
            code = wrap(few, nest.dims, outer)
            collapse = f" collapse({len(outer)})" if len(outer) > 1 else ""
            return [*([f"#pragma omp parallel for schedule(static){collapse}"] if self.parallel else []), *code]
        block = self._row_block(row, columns, inside)
        outer_count = product(tuple(nest.dims[k] for k in outer))
        threads_inside = self.parallel and not (isinstance(outer_count, int) and outer_count >= 16)
        code = self._column_region(block, columns, threads_inside)
        code = wrap(code, nest.dims, outer)
        if self.parallel and not threads_inside:
            collapse = f" collapse({len(outer)})" if len(outer) > 1 else ""
            code.insert(0, f"#pragma omp parallel for schedule(static){collapse}")
        return code

    def _few(self, columns: list[Accumulator], inside: list[int]) -> bool:
        """Whether the rows that columns add up are so few that they need no blocks."""
        rows = product(tuple(self.nest.dims[k] for k in inside))
        return isinstance(rows, int) and rows <= self.choice.row_block and all(map(self._on_stack, columns))

    def _rows_in_registers(self, columns: list[Accumulator], inside: list[int], passes: list[Pass]) -> list[str]:
        """The sums of very few rows, whose loop is written out inside the one over columns; empty if it cannot be.

        What is known once a row is a variable of its own for each of them: ``t2_0``, ``t2_1``.
        """
        nest, last = self.nest, len(self.nest.dims) - 1
        rows = product(tuple(nest.dims[k] for k in inside))
        busy = [p for p in passes if p.body]
        if not isinstance(rows, int) or rows > MOST_WRITTEN_OUT or len(inside) != 1 or not self._simple(passes):
            return []
        if busy[0].masked or any(p.post for p in passes) or any(acc.size != nest.columns for acc in columns):
            return []
        if rows * len(busy[0].body) > MOST_LINES:
            return []
        names = {acc.name: f"{acc.name}[i{last}]" for acc in columns}
        before: list[str] = []
        body = [f"{value_type(acc.reduce.dtype)} {acc.name} = {self._neutral(acc)};" for acc in columns]
        for k in range(rows):
            known = [line for p in passes for line in p.pre]
            own = {found[1]: f"{found[1]}_{k}" for line in known if (found := re.match(r"const \w+ (t\d+) =", line))}
            before += [re.sub(rf"\bi{inside[0]}\b", str(k), renamed(line, own)) for line in known]
            lines = [renamed(line, own) for line in busy[0].body]
            for name, element in names.items():
                lines = [line.replace(element, name) for line in lines]
            body += ["{", *indent([f"const int64_t i{inside[0]} = {k};", *lines]), "}"]
        for acc in columns:
            sum_ = f"const {value_type(acc.reduce.dtype)} sum = {acc.name};"
            body += ["{", *indent([f"const int64_t c = i{last};", sum_, *self._finished(acc)]), "}"]
        return [*before, "#pragma omp simd", loop_over(last, nest.dims[last]), *indent(body), "}"]

    def _few_rows(self, row: list[str], columns: list[Accumulator], inside: list[int]) -> list[str]:
        """The sums of a few rows, stored as they are."""
        rows = product(tuple(self.nest.dims[k] for k in inside))
        counters = decode("row", [(k, self.nest.dims[k]) for k in inside])
        lines = [line for acc in columns for line in self._started(acc)]
        lines += [f"for (int64_t row = 0; row < {rows}; ++row) {{", *indent(counters + row), "}"]
        for acc in columns:
            body = [f"const {value_type(acc.reduce.dtype)} sum = {acc.name}[c];", *self._finished(acc)]
            lines += [f"for (int64_t c = 0; c < {acc.size}; ++c) {{", *indent(body), "}"]
        return ["{", *indent(lines), "}"]

    def _started(self, acc: Accumulator) -> list[str]:
        """One block's sums, before the first row."""
        own = [f"{value_type(acc.reduce.dtype)} {acc.name}[{acc.size}] ALIGNED;"] if self._on_stack(acc) else []
        return [*own, f"for (int64_t c = 0; c < {acc.size}; ++c) {acc.name}[c] = {self._neutral(acc)};"]

    @staticmethod
    def _neutral(acc: Accumulator) -> str:
        return reduction_start(acc.reduce.kind, acc.reduce.dtype)

    def _finished(self, acc: Accumulator) -> list[str]:
        """What is done with the ``sum`` of column ``c``."""
        dims = [(k, self.nest.dims[k]) for k in range(self.nest.outer_rank, len(self.nest.dims))]
        return [*(decode("c", dims) if acc.size != 1 else []), *self.printer.finish_column(acc, "sum")]

    def _wide(self, columns: list[Accumulator], passes: list[Pass]) -> bool:
        """Whether threads should share out the columns: nothing in a row needs the whole row, and rows are long."""
        if any(p.carried for p in passes):
            return False
        alone = len(self.nest.passes) == 1 and not self.nest.row_arrays and len(self.nest.inner_dims) == 1
        simple = not any(lp.is_reduction and not any(lp.reduced[: self.nest.outer_rank]) for lp in self.nest.loops)
        every = all(acc.size == self.nest.columns for acc in columns)
        return alone and simple and every and isinstance(self.nest.columns, int) and self.nest.columns > WIDE_ROW

    def _column_blocks(self, row: list[str], columns: list[Accumulator], inside: list[int]) -> list[str]:
        """Threads share blocks of columns; each walks all rows of its block with sums that stay in cache."""
        nest = self.nest
        last = len(nest.dims) - 1
        plain, moved = f"for (int64_t i{last} = 0; i{last} < {nest.dims[last]}; ++i{last}) {{", f"i{last} - from"
        row = [line.replace(plain, f"for (int64_t i{last} = from; i{last} < to; ++i{last}) {{") for line in row]
        for acc in columns:
            row = [line.replace(f"{acc.name}[i{last}]", f"{acc.name}[{moved}]") for line in row]
        lines = [f"const int64_t to = from + {COLUMN_BLOCK} < {nest.columns} ? from + {COLUMN_BLOCK} : {nest.columns};"]
        for acc in columns:
            start = reduction_start(acc.reduce.kind, acc.reduce.dtype)
            lines.append(f"{total_type(acc.reduce)} {acc.name}_t[{COLUMN_BLOCK}] ALIGNED;")
            lines.append(f"for (int64_t c = 0; c < {COLUMN_BLOCK}; ++c) {acc.name}_t[c] = {start};")
        small = [replace(acc, size=COLUMN_BLOCK) for acc in columns]
        lines += self._row_block(row, small, inside)
        for acc in columns:
            body = [
                f"const {value_type(acc.reduce.dtype)} sum = {acc.name}_t[{moved}];",
                *self.printer.finish_column(acc, "sum"),
            ]
            lines += [f"for (int64_t i{last} = from; i{last} < to; ++i{last}) {{", *indent(body), "}"]
        head = f"for (int64_t from = 0; from < {nest.columns}; from += {COLUMN_BLOCK}) {{"
        code = [head, *indent(lines), "}"]
        return ["#pragma omp parallel for schedule(static)", *code] if self.parallel else code

    def _row_block(self, row: list[str], columns: list[Accumulator], inside: list[int]) -> list[str]:
        """One block of rows: sums in the values' own dtype, then joined to the thread's totals."""
        nest, step = self.nest, self.choice.row_block
        rows = product(tuple(nest.dims[k] for k in inside))
        counters = decode("row", [(k, nest.dims[k]) for k in inside])
        lines = [line for acc in columns for line in self._started(acc)]
        lines.append(f"const int64_t stop = first + {step} < {rows} ? first + {step} : {rows};")
        lines += ["for (int64_t row = first; row < stop; ++row) {", *indent(counters + row), "}"]
        for acc in columns:
            joined = self.printer.joined(acc.reduce, f"{acc.name}_t[c]", f"{acc.name}[c]")
            lines.append(f"for (int64_t c = 0; c < {acc.size}; ++c) {acc.name}_t[c] = {joined};")
        return [f"for (int64_t first = 0; first < {rows}; first += {step}) {{", *indent(lines), "}"]

    @staticmethod
    def _on_stack(acc: Accumulator) -> bool:
        return isinstance(acc.size, int) and acc.size * 8 <= STACK_BYTES

    def _column_region(self, block: list[str], columns: list[Accumulator], threads: bool) -> list[str]:
        """Totals per thread, the blocks shared out, then the threads' totals joined and stored."""
        team = "omp_get_max_threads()" if threads else "1"
        lines = [f"const int team = {team};"]
        mine, start, done = [], [], []
        for acc in columns:
            if not self._on_stack(acc):
                own = value_type(acc.reduce.dtype)
                size = f"({acc.size} * sizeof({own}) + 63) / 64 * 64"
                mine.append(f"{own}* restrict {acc.name} = aligned_alloc(64, {size});")
                done.append(f"free({acc.name});")
            ctype = total_type(acc.reduce)
            padded = f"(({acc.size} * sizeof({ctype}) + 63) / 64 * 64)"
            lines.append(f"const int64_t {acc.name}_bytes = {padded};")
            lines.append(f"char* {acc.name}_all = aligned_alloc(64, team * {acc.name}_bytes);")
            mine.append(f"{ctype}* restrict {acc.name}_t = ({ctype}*)({acc.name}_all + thread * {acc.name}_bytes);")
            start.append(
                f"for (int64_t c = 0; c < {acc.size}; ++c) {acc.name}_t[c] = "
                f"{reduction_start(acc.reduce.kind, acc.reduce.dtype)};"
            )
        if threads:
            share = ["#pragma omp for schedule(static)", *block]
            region = ["const int thread = omp_get_thread_num();", *mine, *start, *share, *done]
            lines.append("int used = 1;")
            region.insert(1, "if (thread == 0) used = omp_get_num_threads();")
            lines += ["#pragma omp parallel num_threads(team)", "{", *indent(region), "}"]
        else:
            lines += [
                "const int used = 1;",
                "{",
                *indent(["const int thread = 0;", *mine, *start, *block, *done]),
                "}",
            ]
        for acc in columns:
            lines += self._store_columns(acc)
            lines.append(f"free({acc.name}_all);")
        return ["{", *indent(lines), "}"]

    def _store_columns(self, acc: Accumulator) -> list[str]:
        ctype = total_type(acc.reduce)
        part = f"(({ctype}*)({acc.name}_all + t * {acc.name}_bytes))[c]"
        first = f"(({ctype}*){acc.name}_all)[c]"
        body = [
            f"{ctype} total = {first};",
            f"for (int t = 1; t < used; ++t) total = {self.printer.joined(acc.reduce, 'total', part)};",
            f"const {value_type(acc.reduce.dtype)} sum = total;", *self._finished(acc),
        ]  # fmt: skip
        return [f"for (int64_t c = 0; c < {acc.size}; ++c) {{", *indent(body), "}"]


def adapter(name: str, function: str, arguments: Sequence[str], tables: Mapping[str, str]) -> str:
    """The exported function of the launcher's calling convention. ``tables``: which arguments it brings itself, and
    how it declares them.
    """
    places = (f"a[{k}]" for k in itertools.count())
    call = f"{function}({', '.join(b if b in tables else next(places) for b in arguments)});"
    if not tables:
        return f"void {name}_call(void** a) {{ {call} }}"
    return "\n".join((f"void {name}_call(void** a)", "{", *indent([*tables.values(), call]), "}"))


def _clauses(p: Pass) -> str:
    return "".join(f" reduction({op}:{var})" for op, var in p.reductions)


def _kept_rows(nest: Schedule, columns: list[Accumulator]) -> list[int]:
    """Row dimensions that no column reduction reduces."""
    return [k for k in range(nest.outer_rank) if not any(acc.loop.reduced[k] for acc in columns)]


def _with_team(line: str, team: int) -> str:
    """A line of code whose threads are ``team`` many."""
    line = line.replace("omp_get_max_threads()", str(team))
    if "#pragma omp parallel" in line and "num_threads" not in line:
        line += f" num_threads({team})"
    return line
