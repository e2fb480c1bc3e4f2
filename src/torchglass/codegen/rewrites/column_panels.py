"""Rows across memory, walked in panels: 32 or 64 neighbours at once, each a lane of the innermost loop.

A softmax over the first dimension of (64, 1024), each panel of 64 columns::

    float r1[64] ALIGNED;
    for (int64_t lane = 0; lane < 64; ++lane) r1[lane] = -INFINITY;
    for (int64_t row = 0; row < 64; ++row) {
        const int64_t i1 = row;
        { const int64_t i0 = from; tg_fetch(&x[i0 + 1024*i1 + 8192], 256); }
        #pragma omp simd
        for (int64_t lane = 0; lane < 64; ++lane) {
            const int64_t i0 = from + lane;
            const float t1 = x[i0 + 1024*i1];
            r1[lane] = (t1 > r1[lane] || t1 != t1) ? t1 : r1[lane];
            kept0[64*i1 + lane] = x[i0 + 1024*i1];
        }
    }

What a row knows once (``r1``) is an array over the lanes. What several passes read is kept: memory is walked in long
steps, so that it is read once and asked for some steps ahead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ...records.loops import item_bytes
from ...records.sizes import Size, at_most, divides
from ..c_body import BodyBuilder, PassCode
from ..statements import (
    Assign,
    Block,
    Call,
    Count,
    Declare,
    For,
    Let,
    Move,
    Place,
    Read,
    Stmt,
    constant,
    decode,
    limit,
    mapped,
    moved,
    nested,
    places,
    shared,
)

FLOATS = ("float", "double")


@dataclass(frozen=True)
class Kept:
    """Memory that is walked in steps. ``first``: the pass that reads it first; ``again``: a later one does, too."""

    name: str
    place: Place
    dtype: str
    first: int
    again: bool


def kept_reads(builder: BodyBuilder, passes: list[PassCode]) -> list[Kept]:
    """The reads of the kernel's inputs that move along columns, by the passes that have them."""
    nest = builder.nest
    found: dict[Place, str] = {}
    for load in (load for loop in nest.loops for load in loop.loads):
        steps, lane = load.access.strides, nest.outer_rank - 1
        if load.access.buffer in nest.kernel.reads and steps[lane] == 1 and any(steps[nest.outer_rank :]):
            place = builder.place(load.access.buffer, steps, load.access.offset, ())
            found[place] = builder.buffers[load.access.buffer].dtype
    reads: list[Kept] = []
    for place, dtype in found.items():
        where = [n for n, p in enumerate(passes) if any(place in places(stmt) for stmt in p.body)]
        if where:
            reads.append(Kept(f"kept{len(reads)}", place, dtype, where[0], len(where) > 1))
    return reads


class Panels:
    """A nest's passes over panels. ``block``: elements of a column that are added up before they join a sum; ``ahead``:
    for how many steps from now memory is asked.
    """

    def __init__(self, builder: BodyBuilder, passes: list[PassCode], block: int, ahead: int) -> None:
        self.builder, self.nest, self.passes, self.block, self.ahead = builder, builder.nest, passes, block, ahead
        self.lanes, self.lane = builder.lanes, builder.nest.outer_rank - 1
        self.even = divides(self.lanes, self.nest.dims[self.lane])
        self.kept = kept_reads(builder, passes)
        once = [stmt for p in passes for stmt in (*p.pre, *p.post)]
        self.arrays = {
            stmt.name: stmt.ctype
            for stmt in once
            if isinstance(stmt, Let | Count | Read | Declare) and not stmt.name.endswith("_nan")
        }

    def code(self, rooms: list[Stmt], parallel: bool) -> list[Stmt]:
        """The function's body; ``rooms`` declares what is kept of a panel."""
        width = self.nest.dims[self.lane]
        body = [*rooms, *(self._array(ctype, name) for name, ctype in self.arrays.items())]
        for n, p in enumerate(self.passes):
            body += [*self._over_lanes(p.pre), *self._down(n, p), *self._over_lanes(p.post)]
        if not self.even:
            body = [limit("to", "from", self.lanes, width), *body]
        code = nested([For("from", "0", width, tuple(body), step=self.lanes)], self.nest.dims, range(self.lane))
        return shared(code, self.nest.outer_rank) if parallel else code

    def _array(self, ctype: str, name: str) -> Stmt:
        return Declare(ctype, name, count=self.lanes)

    def _over_lanes(self, body: Iterable[Stmt], names: dict[str, str] | None = None) -> list[Stmt]:
        """A loop over the lanes; what is known once a row is an element of its array there."""
        each = list(body)
        if not each:
            return []
        own = {name: f"{(names or {}).get(name, name)}[lane]" for name in self.arrays}
        each = [mapped(self._stored(stmt), lambda name: own.get(name, name)) for stmt in each]
        end: Size | str = self.lanes if self.even else "to - from"
        return [For("lane", "0", end, (constant(f"i{self.lane}", "from + lane"), *each), kind="simd")]

    def _stored(self, stmt: Stmt) -> Stmt:
        """What makes a value that is known once a row, as a store to what exists."""
        if isinstance(stmt, Declare) and stmt.name in self.arrays:
            return Assign(stmt.name, stmt.value or "0")
        if isinstance(stmt, Let | Count | Read) and stmt.name in self.arrays:
            return replace(stmt, ctype="")
        return stmt

    def _down(self, n: int, p: PassCode) -> list[Stmt]:
        """A pass down the columns; sums in blocks, which are added in double."""
        down: Size = self.nest.columns
        if not p.body:
            return []
        sums = {one.name: one.ctype for one in p.reductions if one.operator == "+"}
        if not sums or at_most(down, self.block):
            return [For("row", "0", down, tuple(self._step(n, p, {})))]
        parts = {name: f"{name}_b" for name in sums}
        totals = {name: f"{name}_t" for name in sums}
        exact = {name: "double" if ctype in FLOATS else ctype for name, ctype in sums.items()}
        zero = [Assign(name, "0") for name in sums]
        block: list[Stmt] = [self._array(sums[name], part) for name, part in parts.items()]
        block += [*self._over_lanes(zero, parts), limit("stop", "first", self.block, down)]
        block.append(For("row", "first", "stop", tuple(self._step(n, p, parts))))
        block += self._over_lanes([Assign(f"{name}_t[lane]", f"{name}_b[lane]", "+=") for name in sums])
        return [
            *(self._array(exact[name], total) for name, total in totals.items()),
            *self._over_lanes(zero, totals),
            For("first", "0", down, tuple(block), step=self.block),
            *self._over_lanes([Assign(name, f"{name}_t[lane]") for name in sums]),
        ]

    def _step(self, n: int, p: PassCode, names: dict[str, str]) -> list[Stmt]:
        """One element of each column of the panel."""
        nest = self.nest
        counters = decode("row", [(k, nest.dims[k]) for k in range(nest.outer_rank, len(nest.dims))])
        body, here = list(p.body), self.builder.column_index()
        for read in self.kept:
            own = Place(read.name, here)
            if read.first == n:
                counters.append(self._fetched(read))
                body += [Move(own, read.place)] if read.again else []
            elif read.again:
                body = moved(body, {read.place: own})
        return [*counters, *self._over_lanes(body, names)]

    def _fetched(self, read: Kept) -> Stmt:
        """Asks for what the panel reads some steps later."""
        address = read.place.address
        inner = (address.stride(f"i{k}") for k in reversed(range(self.nest.outer_rank, len(self.nest.dims))))
        step = next(s for s in inner if s != 0)
        later = replace(read.place, address=replace(address, offset=address.offset + self.ahead * step))
        fetch = Call("tg_fetch", (later, str(self.lanes * item_bytes(read.dtype))))
        return Block((constant(f"i{self.lane}", "from"), fetch), inline=True)
