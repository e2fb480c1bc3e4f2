"""One fused kernel as one ``@triton.jit`` function: its tile, its grid, its passes.

A row softmax over (512, 100) becomes one program for each 8 rows, every row whole in registers::

    @triton.jit
    def kernel_0(x_ptr, softmax_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
        i0 = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
        i1 = tl.arange(0, RBLOCK)[None, :]
        rmask = i1 < 100
        t0 = tl.load(x_ptr + (100*i0 + i1), rmask)
        r1 = tl.reduce(tl.where(rmask, t0, float("-inf")), 1, tg_maximum, keep_dims=True)
        ...

Rows longer than ``LONG_ROW`` are walked block by block, once for each reduction that must be complete before the next
can begin; what a later pass needs is computed again.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..records.loops import Buffer, Loop
from ..records.schedule import Schedule
from ..records.sizes import Size, at_most, divides, is_known, magnitude, product, symbols, text
from .triton_body import BODY, POST, PRE, BodyPrinter, Tile, pointer
from .triton_index import sizes_in
from .triton_ops import CannotPrint

FLAT_BLOCK = 1024  # points of one program without reductions
ROW_TILE = 1024  # points of one program's rows: short rows share a program
LONG_ROW = 16384  # columns past which a row no longer fits the registers
ROW_BLOCK = 4096  # columns of one block of a long row
COLUMN_BLOCK = 64  # rows and columns of a tile whose rows run down the columns of memory
INT32_ITEMS = 2**31 - 1


@dataclass(frozen=True)
class Launch:
    """How to start a kernel: the grid as Python text, and the constants in the order of their parameters."""

    grid: str
    constants: tuple[tuple[str, int], ...]
    warps: int


class TritonKernel:
    """Prints one nest. ``text(name)`` is the function; it takes ``arguments`` (buffers), then ``symbols`` (sizes)."""

    def __init__(self, nest: Schedule, buffers: dict[str, Buffer]) -> None:
        self.nest, self.buffers = nest, buffers
        self.arguments = (*nest.kernel.reads, *nest.kernel.writes)
        self.symbols = symbols([*nest.dims, *(s for loop in nest.loops for op in loop.body for s in sizes_in(op))])
        for loop in nest.loops:
            if loop.is_scan:
                raise CannotPrint(f"{nest.kernel.name}, loop {loop.name}: scans are not printed yet")
            if loop.is_reduction and not _reduces_rows(loop, nest):
                raise CannotPrint(f"{nest.kernel.name}, loop {loop.name}: it reduces other dimensions than a row's")
        self.rows, self.columns = product(nest.row_dims), product(nest.inner_dims)
        self.wide = self._is_wide()
        self.is_flat = not any(loop.is_reduction for loop in nest.loops)
        self._choose_blocks()

    def _is_wide(self) -> bool:
        """Whether addresses may need 64 bits."""
        sizes = [self.rows * self.columns]
        for name in self.arguments:
            buffer = self.buffers[name]
            sizes.append(sum(((d - 1) * magnitude(s) for d, s in zip(buffer.shape, buffer.strides)), 1))
        return not all(at_most(size, INT32_ITEMS) for size in sizes)

    def _choose_blocks(self) -> None:
        if self.is_flat:
            count = self.rows * self.columns
            block = min(FLAT_BLOCK, next_power_of_2(count))
            self.looped = False
            self.launch = Launch(f"({_blocks(count, block)},)", (("BLOCK", block),), warps_for(block))
            return
        down = self._runs_down_columns()
        limit, rblock = (COLUMN_BLOCK, COLUMN_BLOCK) if down else (LONG_ROW, ROW_BLOCK)
        self.looped = not at_most(self.columns, limit)
        rblock = rblock if self.looped else next_power_of_2(self.columns)
        xblock = min(COLUMN_BLOCK if down else max(1, ROW_TILE // rblock), next_power_of_2(self.rows))
        constants = (("XBLOCK", xblock), ("RBLOCK", rblock)) if self.nest.outer_rank else (("RBLOCK", rblock),)
        self.launch = Launch(f"({_blocks(self.rows, xblock)},)", constants, warps_for(xblock * rblock))

    def _runs_down_columns(self) -> bool:
        """Whether neighbouring rows, and not neighbours within a row, are side by side in memory."""
        rows = self.nest.outer_rank
        accesses = [op.access.strides for loop in self.nest.loops for op in loop.loads]
        return not any(1 in s[rows:] for s in accesses) and any(1 in s[:rows] for s in accesses)

    # -- the function ------------------------------------------------------------------------------------------------
    def text(self, name: str) -> str:
        """The function's source, with its decorator."""
        head, tile = self._flat_tile() if self.is_flat else self._row_tile()
        printer = BodyPrinter(self.nest, self.buffers, tile)
        lines = [*head, *(self._passes(printer) if self.looped else self._straight(printer))]
        parameters = [pointer(b) for b in self.arguments] + self.symbols
        parameters += [f"{c}: tl.constexpr" for c, _ in self.launch.constants]
        signature = f"def {name}({', '.join(parameters)}):"
        return "\n".join(["@triton.jit", signature, *(f"    {line}" for line in lines)])

    def _program(self) -> str:
        return "tl.program_id(0).to(tl.int64)" if self.wide else "tl.program_id(0)"

    def _flat_tile(self) -> tuple[list[str], Tile]:
        count = self.rows * self.columns
        rank = len(self.nest.dims)
        counter = "i0" if rank == 1 else "n"
        lines = [f"{counter} = {self._program()} * BLOCK + tl.arange(0, BLOCK)"]
        lines += _decode(counter, list(enumerate(self.nest.dims)))
        masks = {}
        if not divides(self.launch.constants[0][1], count):
            lines.append(f"mask = {counter} < {text(count)}")
            masks = {"n": "mask"}
        return lines, Tile(("n",) * rank, {"n": counter}, masks, "[1]", "[BLOCK]")

    def _row_tile(self) -> tuple[list[str], Tile]:
        nest, constants = self.nest, dict(self.launch.constants)
        lines, masks, counters = [], {}, {}
        rows = list(enumerate(nest.row_dims))
        inner = [(nest.outer_rank + k, d) for k, d in enumerate(nest.inner_dims)]
        if rows:
            x = counters["x"] = f"i{rows[0][0]}" if len(rows) == 1 else "x"
            lines.append(f"{x} = {self._program()} * XBLOCK + tl.arange(0, XBLOCK)[:, None]")
            lines += _decode(x, rows)
            if not divides(constants["XBLOCK"], self.rows):
                lines.append(f"xmask = {x} < {text(self.rows)}")
                masks["x"] = "xmask"
        counters["r"] = f"i{inner[0][0]}" if len(inner) == 1 else "r"
        if self.looped or constants["RBLOCK"] != self.columns:
            masks["r"] = "rmask"
        shape = "[XBLOCK, RBLOCK]" if rows else "[1, RBLOCK]"
        axis = ("x",) * nest.outer_rank + ("r",) * len(inner)
        if not self.looped:
            lines += self._columns(counters["r"], "tl.arange(0, RBLOCK)[None, :]", "rmask" in masks.values())
        return lines, Tile(axis, counters, masks, "[1, 1]", shape, self.looped)

    def _columns(self, counter: str, start: str, masked: bool) -> list[str]:
        """The counters along a row, from the block's positions."""
        inner = [(self.nest.outer_rank + k, d) for k, d in enumerate(self.nest.inner_dims)]
        wide = ".to(tl.int64)" if self.wide else ""
        lines = [f"{counter} = ({start}){wide}" if wide else f"{counter} = {start}", *_decode(counter, inner)]
        return [*lines, f"rmask = {counter} < {text(self.columns)}"] if masked else lines

    def _straight(self, printer: BodyPrinter) -> list[str]:
        for loop in self.nest.loops:
            printer.loop(loop)
        return printer.sections[BODY]

    # -- long rows ---------------------------------------------------------------------------------------------------
    def _passes(self, printer: BodyPrinter) -> list[str]:
        at = levels(self.nest)
        lines: list[str] = []
        stored: set[str] = set()
        counter = printer.tile.counters["r"]
        for n in range(-1, max(at.values(), default=-1) + 1):
            printer.begin_pass()
            needed = needed_in(self.nest, at, n)
            for loop in self.nest.loops:
                if loop.name in needed if is_full(loop, self.nest) else at[loop.name] == n:
                    printer.loop(loop, again=loop.name in stored)
                    stored.add(loop.name)
            lines += printer.sections[PRE]
            if printer.sections[BODY]:
                block = self._columns(counter, "start + tl.arange(0, RBLOCK)[None, :]", masked=True)
                lines.append(f"for start in range(0, {text(self.columns)}, RBLOCK):")
                lines += [f"    {line}" for line in (*block, *printer.sections[BODY])]
            lines += printer.sections[POST]
        return lines


def is_full(loop: Loop, nest: Schedule) -> bool:
    """Whether the loop moves along a row (rather than once per row)."""
    return loop.dims[nest.outer_rank :] == nest.inner_dims


def _reduces_rows(loop: Loop, nest: Schedule) -> bool:
    """Whether the loop reduces all of a row and nothing else."""
    return all(r == (k >= nest.outer_rank) or d == 1 for k, (r, d) in enumerate(zip(loop.reduced, loop.dims)))


def levels(nest: Schedule) -> dict[str, int]:
    """The pass over a row in which each loop runs first; -1: before them all, for what is once per row."""
    writer = {s.access.buffer: loop for loop in nest.loops for s in loop.stores}
    at: dict[str, int] = {}
    for loop in nest.loops:
        full = is_full(loop, nest)
        earliest = 0 if full else -1
        for name in loop.reads:
            maker = writer.get(name)
            if maker is not None and maker is not loop:
                once = maker.is_reduction or not is_full(maker, nest)
                earliest = max(earliest, at[maker.name] + 1 if full and once else at[maker.name])
        at[loop.name] = earliest
    return at


def needed_in(nest: Schedule, at: dict[str, int], n: int) -> set[str]:
    """The loops along a row that pass ``n`` runs: those with a result to keep, and all that these read through."""
    writer = {s.access.buffer: loop for loop in nest.loops for s in loop.stores}
    keeps = lambda loop: loop.is_reduction or any(b not in nest.kernel.local for b in loop.writes)
    pending = [loop for loop in nest.loops if is_full(loop, nest) and at[loop.name] == n and keeps(loop)]
    needed: set[str] = set()
    while pending:
        loop = pending.pop()
        if loop.name not in needed:
            needed.add(loop.name)
            makers = [writer[b] for b in loop.reads if b in writer]
            pending += [m for m in makers if is_full(m, nest) and not m.is_reduction]
    return needed


def next_power_of_2(size: Size) -> int:
    """The least power of two that is not smaller, at least 1; a very large one for symbolic sizes."""
    return 1 << max(size - 1, 0).bit_length() if is_known(size) else INT32_ITEMS + 1


def warps_for(points: int) -> int:
    """Warps of a program so that a thread holds 8 points, in large tiles up to 32."""
    return max(1, min(4 if points <= 1024 else 16, points // 256))


def _blocks(size: Size, block: int) -> str:
    if is_known(size):
        return str(-(-size // block))
    if block == 1:
        return text(size)
    return f"({text(size)} + {block - 1}) // {block}"


def _decode(name: str, dims: list[tuple[int, Size]]) -> list[str]:
    """Counters of several dimensions from one that runs over all of them."""
    if len(dims) < 2:
        return []
    lines = []
    step: Size = 1
    for k, size in reversed(dims):
        rest = name if step == 1 else f"{name} // {text(step)}"
        lines.append(f"i{k} = {rest}" if k == dims[0][0] else f"i{k} = {rest} % {text(size)}")
        step = step * size
    return lines
