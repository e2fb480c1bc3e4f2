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

from collections.abc import Sequence
from dataclasses import dataclass

from ...records.loops import Access, item_bytes
from ...records.sizes import Size, at_least, hint, is_known, magnitude, product
from ...records.target import Cpu
from ..c_body import BodyBuilder
from ..c_ops import CTYPES
from ..statements import (
    Address,
    Block,
    Call,
    Declare,
    For,
    Place,
    Stmt,
    constant,
    in_c,
    limit,
    loops_changed,
    moved,
    nested,
    places,
    shared,
)


@dataclass(frozen=True)
class Tiles:
    """A nest in blocks. ``across``: the row dimension that reads walk; ``most``: the most rows of a block."""

    builder: BodyBuilder
    across: int
    most: int
    target: Cpu

    def code(self, row: Sequence[Stmt], parallel: bool) -> list[Stmt]:
        """The function's body, given the code of one row."""
        nest, across, tuned = self.builder.nest, self.across, self.target.schedule
        last, reads = len(nest.dims) - 1, self._reads()
        half = any(self._bytes(access) == 2 for access in reads.values())
        high, wide = tuned.half_tile if half else (tuned.tile, tuned.tile)
        tile = min(self.most, high)
        row = loops_changed(row, lambda loop: within(loop, last, nest.dims[last]))
        body: list[Stmt] = [limit("bottom", "top", tile, nest.dims[across]), limit("to", "from", wide, nest.dims[last])]
        fetched: list[Stmt] = []
        touched = {place for stmt in row for place in places(stmt)}
        for k, (read, access) in enumerate(reads.items()):
            if read not in touched:
                continue
            here = Address(((f"i{across}", wide), ("top", -wide), (f"i{last}", 1), ("from", -1)))
            row = moved(row, {read: Place(f"tile{k}", here)})
            turn = (f"tile{k}", str(wide), read, str(access.strides[last]), "to - from", "bottom - top")
            call = Call(f"tg_turn_{8 * self._bytes(access)}", turn)
            ctype, column = CTYPES[self.builder.buffers[access.buffer].dtype], tile * self._bytes(access)
            corner = Declare("const int64_t", f"i{across} = top, i{last}", "from")
            body += [Declare(ctype, f"tile{k}", count=tile * wide), Block((corner, call), inline=True)]
            if self._is_far(access, column):
                fetch = Call("tg_fetch", (read, str(column)))
                fetched.append(Block((constant(f"i{across}", "top"), fetch), inline=True))
        if fetched:
            row = [self._next_block(fetched, wide, max(wide // tile, 1)), *row]
        body.append(For(f"i{across}", "top", "bottom", tuple(row)))
        outer = [k for k in range(nest.outer_rank) if k != across]
        tiles = For("from", "0", nest.dims[last], tuple(body), step=wide)
        code = nested([For("top", "0", nest.dims[across], (tiles,), step=tile)], nest.dims, outer)
        return shared(code, len(outer) + 2) if parallel else code

    def _bytes(self, access: Access) -> int:
        return item_bytes(self.builder.buffers[access.buffer].dtype)

    def _is_far(self, access: Access, column: int) -> bool:
        """Whether reads of columns of so many bytes wait for memory: the fewer lines follow one another, the sooner."""
        size = hint(product(self.builder.buffers[access.buffer].shape)) * self._bytes(access)
        return size >= self.target.schedule.far * max(column // self.target.schedule.line, 1)

    def _next_block(self, fetched: list[Stmt], wide: int, share: int) -> Stmt:
        """Asks for what the next block reads across memory, each row for its share of the columns: a few lines out of
        each, which the processor does not see coming.
        """
        last = len(self.builder.nest.dims) - 1
        block = f"from + {wide} < {in_c(self.builder.nest.dims[last])} ? from + {wide} : from"
        first = constant("first", f"({block}) + (i{self.across} - top) * {share}")
        return Block((first, For(f"i{last}", "first", f"first + {share}", tuple(fetched))))

    def _reads(self) -> dict[Place, Access]:
        """Buffers read element by element along ``across`` and in jumps along rows."""
        nest, last, least = self.builder.nest, len(self.builder.nest.dims) - 1, self.target.schedule.least_step
        found: dict[Place, Access] = {}
        for load in (load for loop in nest.loops for load in loop.loads):
            access = load.access
            walks = is_known(access.strides[last]) and at_least(magnitude(access.strides[last]), least)
            walks = walks and access.strides[self.across] == 1 and not access.indirect and not load.mask
            if walks and access.buffer in nest.kernel.reads:
                found[self.builder.place(access.buffer, access.strides, access.offset, ())] = access
        return found


def within(loop: For, k: int, size: Size) -> For:
    """A loop over all of dimension ``k`` as one over the block from ``from`` to ``to``."""
    whole = (loop.counter, loop.start, loop.stop, loop.step) == (f"i{k}", "0", size, 1)
    return For(loop.counter, "from", "to", loop.body, 1, loop.kind, loop.clauses) if whole else loop
