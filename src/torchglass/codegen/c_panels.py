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

import re
from dataclasses import dataclass

from ..records.loops import Access, Load, address, item_bytes
from ..records.schedule import Schedule
from ..records.sizes import Size, product
from .c_body import BodyPrinter, Pass
from .c_ops import CTYPES, is_float
from .c_text import decode, indent, limit, renamed, wrap

LANES = 64
FEW_LANES = 32  # where there would be few panels for threads to share
ENOUGH_PANELS = 16
AHEAD = 8  # steps
DECLARED = re.compile(r"(?:const )?(\w+) ([rt]\d+) = ")


@dataclass(frozen=True)
class Kept:
    """Memory that is walked in steps; ``text`` is its read in C. ``again``: a later pass reads it, too."""

    name: str
    access: Access
    text: str
    dtype: str
    first: int
    again: bool


def lanes_of(nest: Schedule) -> int:
    """How many rows a panel has; 0 where rows do not lie across memory."""
    if not nest.kernel.strided:
        return 0
    width, rows = nest.dims[nest.outer_rank - 1], product(nest.row_dims)
    assert isinstance(width, int) and isinstance(rows, int)
    most = LANES if rows >= LANES * ENOUGH_PANELS else FEW_LANES
    even = (n for n in range(most, most // 2 - 1, -16) if width % n == 0)
    return width if width <= most else next(even, most)


def kept(nest: Schedule, printer: BodyPrinter, passes: list[Pass]) -> list[Kept]:
    """The reads of the kernel's inputs that move along columns, by the passes that have them."""
    found: dict[str, Access] = {}
    for load in (op for loop in nest.loops for op in loop.body if isinstance(op, Load)):
        steps, lane = load.access.strides, nest.outer_rank - 1
        if load.access.buffer in nest.kernel.reads and steps[lane] == 1 and any(steps[nest.outer_rank :]):
            found[f"{printer.ident(load.access.buffer)}[{address(steps, load.access.offset)}]"] = load.access
    reads: list[Kept] = []
    for text, access in found.items():
        where = [n for n, p in enumerate(passes) if any(_read(text).search(line) for line in p.body)]
        if where:
            dtype = printer.buffers[access.buffer].dtype
            reads.append(Kept(f"kept{len(reads)}", access, text, dtype, where[0], len(where) > 1))
    return reads


class Panels:
    """Prints a nest's passes over panels. ``block``: elements of a column that are added up before they join a sum."""

    def __init__(self, nest: Schedule, printer: BodyPrinter, passes: list[Pass], block: int) -> None:
        self.nest, self.printer, self.passes, self.block = nest, printer, passes, block
        self.lanes, self.lane = printer.lanes, nest.outer_rank - 1
        self.kept = kept(nest, printer, passes)
        self.arrays = {m[2]: m[1] for p in passes for line in (*p.pre, *p.post) if (m := DECLARED.match(line))}

    def code(self, rooms: list[str], parallel: bool) -> list[str]:
        """The function's body; ``rooms`` declares what is kept of a panel."""
        width = self.nest.dims[self.lane]
        lines = [*rooms, *(self._array(ctype, name) for name, ctype in self.arrays.items())]
        for n, p in enumerate(self.passes):
            lines += [*self._over_lanes(p.pre), *self._down(n, p), *self._over_lanes(p.post)]
        if not self._even:
            lines = [limit("to", "from", self.lanes, width), *lines]
        code = [f"for (int64_t from = 0; from < {width}; from += {self.lanes}) {{", *indent(lines), "}"]
        collapse = f" collapse({self.nest.outer_rank})" if self.nest.outer_rank > 1 else ""
        threads = [f"#pragma omp parallel for schedule(static){collapse}"] if parallel else []
        return [*threads, *wrap(code, self.nest.dims, range(self.lane))]

    @property
    def _even(self) -> bool:
        width = self.nest.dims[self.lane]
        return isinstance(width, int) and width % self.lanes == 0

    def _array(self, ctype: str, name: str) -> str:
        return f"{ctype} {name}[{self.lanes}] ALIGNED;"

    def _over_lanes(self, body: list[str], names: dict[str, str] | None = None) -> list[str]:
        """A loop over the lanes; what is known once a row is an element of its array there."""
        if not body:
            return []
        own = {name: f"{(names or {}).get(name, name)}[lane]" for name in self.arrays}
        body = [renamed(DECLARED.sub(r"\2 = ", line) if _declares(line, own) else line, own) for line in body]
        end = self.lanes if self._even else "to - from"
        head = f"for (int64_t lane = 0; lane < {end}; ++lane) {{"
        return ["#pragma omp simd", head, *indent([f"const int64_t i{self.lane} = from + lane;", *body]), "}"]

    def _down(self, n: int, p: Pass) -> list[str]:
        """A pass down the columns; sums in blocks, which are added in double."""
        down: Size = self.nest.columns
        if not p.body:
            return []
        sums = [name for op, name in p.reductions if op == "+"]
        if not sums or (isinstance(down, int) and down <= self.block):
            return [f"for (int64_t row = 0; row < {down}; ++row) {{", *indent(self._step(n, p, {})), "}"]
        parts = {name: f"{name}_b" for name in sums}
        totals = {name: f"{name}_t" for name in sums}
        ctypes = {name: self.arrays[name] for name in sums}
        exact = {name: "double" if is_float(_dtype(ctypes[name])) else ctypes[name] for name in sums}
        block = [self._array(ctypes[name], part) for name, part in parts.items()]
        block += self._over_lanes([f"{name} = 0;" for name in sums], parts)
        block += [limit("stop", "first", self.block, down)]
        block += ["for (int64_t row = first; row < stop; ++row) {", *indent(self._step(n, p, parts)), "}"]
        block += self._over_lanes([f"{name}_t[lane] += {name}_b[lane];" for name in sums])
        return [
            *(self._array(exact[name], total) for name, total in totals.items()),
            *self._over_lanes([f"{name} = 0;" for name in sums], totals),
            f"for (int64_t first = 0; first < {down}; first += {self.block}) {{", *indent(block), "}",
            *self._over_lanes([f"{name} = {name}_t[lane];" for name in sums]),
        ]  # fmt: skip

    def _step(self, n: int, p: Pass, names: dict[str, str]) -> list[str]:
        """One element of each column of the panel."""
        nest = self.nest
        counters = decode("row", [(k, nest.dims[k]) for k in range(nest.outer_rank, len(nest.dims))])
        body, place = list(p.body), f"[{self.printer.column_index()}]"
        for read in self.kept:
            if read.first == n:
                counters.append(self._fetched(read))
                body += [f"{read.name}{place} = {read.text};"] if read.again else []
            elif read.again:
                body = [_read(read.text).sub(read.name + place, line) for line in body]
        return [*counters, *self._over_lanes(body, names)]

    def _fetched(self, read: Kept) -> str:
        """Asks for what the panel reads some steps later."""
        steps = read.access.strides
        step = next(s for s in reversed(steps[self.nest.outer_rank :]) if s != 0)
        ahead = address(steps, read.access.offset + AHEAD * step)
        place = f"{self.printer.ident(read.access.buffer)}[{ahead}]"
        return f"{{ const int64_t i{self.lane} = from; tg_fetch(&{place}, {self.lanes * item_bytes(read.dtype)}); }}"


def _declares(line: str, names: dict[str, str]) -> bool:
    found = DECLARED.match(line)
    return found is not None and found[2] in names


def _read(text: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(text)}")


def _dtype(ctype: str) -> str:
    return next((dtype for dtype, c in CTYPES.items() if c == ctype), "")
