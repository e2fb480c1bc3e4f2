"""Reads across memory, in blocks of the dimension that they walk and of the one that writes walk: both stay in cache.

``x + t.t()`` of (4096, 2048) numbers. What is read across is first turned into a small array, so that the arithmetic's
loop is over neighbours; of what the next block reads, each row of this one asks for a column::

    for (int64_t top = 0; top < 4096; top += 64) {
        for (int64_t from = 0; from < 2048; from += 64) {
            float tile0[4096] ALIGNED;
            { const int64_t i0 = top, i1 = from; tg_turn_32(tile0, 64, &t[i0 + 4096*i1], 4096, ...); }
            for (int64_t i0 = top; i0 < bottom; ++i0) {
                ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..records.loops import Access, Buffer, address, item_bytes
from ..records.schedule import Schedule
from ..records.sizes import is_known, product
from .c_ops import CTYPES
from .c_text import indent, limit, loop_over, wrap

WIDE_TILE = 64  # the side of the blocks in which transposed reads go along which arithmetic is vectorized
HALF_TILE = 32, 128  # both sides for elements of two bytes: of a block's reads a cache line is all that is ever used
LINE = 64  # bytes of the cache
FAR = 2**20  # bytes from which a read across memory is asked for ahead, for each line of a block's column
LEAST = 16  # elements of a dimension, and of a step, that are worth it


def transposed_dim(nest: Schedule) -> int | None:
    """A row dimension that some load walks element by element while the inner loop makes it jump; None if none does."""
    last = len(nest.dims) - 1
    for loop in nest.loops:
        for load in loop.loads:
            steps = load.access.strides
            if load.access.indirect or not is_known(step := steps[last]) or abs(step) < LEAST:
                continue
            for k in range(nest.outer_rank):
                size = nest.dims[k]
                if steps[k] == 1 and is_known(size) and size >= LEAST:
                    return k
    return None


@dataclass(frozen=True)
class Tiles:
    """Prints a nest in blocks. ``across``: the row dimension that reads walk; ``most``: the most rows of a block."""

    nest: Schedule
    buffers: dict[str, Buffer]
    ident: Callable[[str], str]
    across: int
    most: int

    def code(self, row: list[str], parallel: bool) -> list[str]:
        """The function's body, given the code of one row."""
        nest, across, last, reads = self.nest, self.across, len(self.nest.dims) - 1, self._reads()
        half = any(self._bytes(access) == 2 for access, _ in reads)
        high, wide = HALF_TILE if half else (WIDE_TILE, WIDE_TILE)
        tile = min(self.most, high)
        moved = f"for (int64_t i{last} = from; i{last} < to; ++i{last}) {{"
        row = [line.replace(loop_over(last, nest.dims[last]), moved) for line in row]
        lines = [limit("bottom", "top", tile, nest.dims[across]), limit("to", "from", wide, nest.dims[last])]
        fetched: list[str] = []
        for k, (access, text) in enumerate(reads):
            block = f"tile{k}[(i{across} - top) * {wide} + i{last} - from]"
            if not any(text in line for line in row):
                continue
            row = [line.replace(text, block) for line in row]
            turn = f"tg_turn_{8 * self._bytes(access)}"
            corner = f"const int64_t i{across} = top, i{last} = from;"
            call = f"{turn}(tile{k}, {wide}, &{text}, {access.strides[last]}, to - from, bottom - top);"
            ctype, column = CTYPES[self.buffers[access.buffer].dtype], tile * self._bytes(access)
            lines += [f"{ctype} tile{k}[{tile * wide}] ALIGNED;", f"{{ {corner} {call} }}"]
            if self._is_far(access, column):
                fetched.append(f"{{ const int64_t i{across} = top; tg_fetch(&{text}, {column}); }}")
        if fetched:
            row = [*self._next_block(fetched, wide, max(wide // tile, 1)), *row]
        lines += [f"for (int64_t i{across} = top; i{across} < bottom; ++i{across}) {{", *indent(row), "}"]
        code = [f"for (int64_t from = 0; from < {nest.dims[last]}; from += {wide}) {{", *indent(lines), "}"]
        code = [f"for (int64_t top = 0; top < {nest.dims[across]}; top += {tile}) {{", *indent(code), "}"]
        outer = [k for k in range(nest.outer_rank) if k != across]
        code = wrap(code, nest.dims, outer)
        threads = f"#pragma omp parallel for schedule(static) collapse({len(outer) + 2})"
        return [threads, *code] if parallel else code

    def _bytes(self, access: Access) -> int:
        return item_bytes(self.buffers[access.buffer].dtype)

    def _is_far(self, access: Access, column: int) -> bool:
        """Whether reads of columns of so many bytes wait for memory: the fewer lines follow one another, the sooner."""
        size = product(self.buffers[access.buffer].shape) * self._bytes(access)
        return is_known(size) and size >= FAR * max(column // LINE, 1)

    def _next_block(self, fetched: list[str], wide: int, share: int) -> list[str]:
        """Asks for what the next block reads across memory, each row for its share of the columns: a few lines out of
        each, which the processor does not see coming.
        """
        last = len(self.nest.dims) - 1
        block = f"from + {wide} < {self.nest.dims[last]} ? from + {wide} : from"
        first = f"const int64_t first = ({block}) + (i{self.across} - top) * {share};"
        columns = f"for (int64_t i{last} = first; i{last} < first + {share}; ++i{last}) {{"
        return ["{", *indent([first, columns, *indent(fetched), "}"]), "}"]

    def _reads(self) -> list[tuple[Access, str]]:
        """Buffers read element by element along ``across`` and in jumps along rows, with the text of the read."""
        last, kernel = len(self.nest.dims) - 1, self.nest.kernel
        found: dict[str, Access] = {}
        for loop in self.nest.loops:
            for load in loop.loads:
                steps, name = load.access.strides, load.access.buffer
                jumps = is_known(step := steps[last]) and abs(step) >= LEAST
                walks = jumps and steps[self.across] == 1
                if walks and name in kernel.reads and not load.access.indirect and not load.mask:
                    found[f"{self.ident(name)}[{address(steps, load.access.offset)}]"] = load.access
        return [(access, text) for text, access in found.items()]
