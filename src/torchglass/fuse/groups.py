"""Groups of loops that run as one nest, and when two groups may become one.

A group's loops are all over the same dimensions. Legal is what keeps every value the same: a reader meets each element
that the group itself writes at the very point that wrote it, or one level up (a row's statistic, read by the whole
row). A softmax: [max], [exp], [sum], [divide] join one after the other over (512, 128) with rows [512], inner [128].
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from ..records.loops import Access, Loop
from ..records.sizes import Size, product
from .align import apply_split, drop_ones, match
from .strided_reduction import ALONE, strided_rows

FEW_LINES = 16  # lines that threads cannot share well
ROW, COLUMN, TOTAL = "row", "column", "total"


class Refused(Exception):
    """Why two groups stay apart."""


@dataclass
class Group:
    """Loops over common ``dims``, by ``positions`` in the graph. ``members``, ``ancestors``: bit sets of positions."""

    loops: list[Loop]
    positions: list[int]
    dims: tuple[Size, ...]
    members: int
    ancestors: int = 0
    last: int = 0
    inner: tuple[bool, ...] | None = None  # None: no loop says which dimensions make a row
    names: list[str] = field(default_factory=list)
    strided: bool = False  # rows lie across memory

    @cached_property
    def writes(self) -> dict[str, tuple[Loop, Access]]:
        return {s.access.buffer: (loop, s.access) for loop in self.loops for s in loop.stores}

    @cached_property
    def reads(self) -> dict[str, Access]:
        onto = {s.base: s.access for loop in self.loops for s in loop.stores if s.base is not None}
        return onto | {o.access.buffer: o.access for loop in self.loops for o in loop.loads}


def single(loop: Loop, position: int) -> Group:
    """The group of one loop."""
    slim = drop_ones(loop)
    group = Group([slim], [position], slim.dims, 1 << position, last=position, names=[loop.name])
    group.inner = roles(group.loops, group.dims)
    return group


def reduction_kind(loop: Loop) -> str | None:
    """``row``: the contiguous dimension is summed; ``column``: it is kept; ``total``: nothing is kept."""
    if not loop.is_reduction:
        return None
    if all(r or d == 1 for r, d in zip(loop.reduced, loop.dims)):
        return TOTAL
    k = loop.contiguous
    return ROW if k is not None and loop.reduced[k] else COLUMN


def scan_kind(loop: Loop) -> str | None:
    """``row``: a scan runs along the contiguous dimension; ``column``: across it, and rows must come in order."""
    if not any(loop.scanned):
        return None
    k = loop.contiguous
    return ROW if k is None or loop.scanned[k] else COLUMN


def roles(loops: list[Loop], dims: tuple[Size, ...]) -> tuple[bool, ...] | None:
    """Which dimensions make a row, as the loops demand; None when none demands; Refused when demands disagree."""
    demands: dict[tuple[bool, ...], str] = {}
    columns: list[Loop] = []
    totals: list[Loop] = []
    carrying: list[Loop] = []
    for loop in loops:
        missing = tuple(own == 1 and d != 1 for own, d in zip(loop.dims, dims))
        kind = reduction_kind(loop)
        scan = scan_kind(loop)
        if scan is not None and any(missing):
            raise Refused(f"{loop.name} runs in order along lines that the other's points share")
        if scan == COLUMN:
            carrying.append(loop)
        elif scan == ROW:
            demands.setdefault(loop.scanned, loop.name)
        elif any(missing):
            demands.setdefault(missing, loop.name)
            if kind is not None:
                columns.append(loop)
        elif kind == ROW:
            demands.setdefault(loop.reduced, loop.name)
        elif kind == COLUMN:
            columns.append(loop)
        elif kind == TOTAL:
            totals.append(loop)
    if len(demands) > 1:
        raise Refused("their rows are along different dimensions")
    inner = next(iter(demands), None)
    for loop in carrying:
        inner = _carrying_role(loop, inner)
    if len({loop.scanned for loop in carrying}) + any((*columns, *totals)) > 1 and carrying:
        raise Refused("one needs rows in order, the other in another one or in none")
    if carrying and demands and inner is not None:
        _check_shared_out(carrying[0], dims, inner)
    for loop in columns:
        inner = _column_role(loop, dims, inner)
    if totals and inner is None:
        inner = (True,) * len(dims)
    _check_kept_rows([*columns, *totals], dims, inner)
    return inner


def _check_kept_rows(loops: list[Loop], dims: tuple[Size, ...], inner: tuple[bool, ...] | None) -> None:
    """Loops that reduce over rows share one set of accumulators: all of them keep a dimension of rows, or none."""
    for k, size in enumerate(dims):
        if inner is not None and not inner[k] and size != 1 and len({loop.reduced[k] for loop in loops}) > 1:
            raise Refused("one keeps rows that the other reduces")


def _carrying_role(loop: Loop, inner: tuple[bool, ...] | None) -> tuple[bool, ...]:
    """Rows of a loop that carries values from row to row: what lies between two points of a line."""
    if inner is None:
        access = loop.main_access
        assert access is not None
        steps = [s if isinstance(s, int) else None for s, c in zip(access.strides, loop.scanned) if c]
        limit = None if None in steps else min(abs(s) for s in steps if s is not None)
        if limit is None:
            return tuple(not c and k == len(loop.dims) - 1 for k, c in enumerate(loop.scanned))
        return tuple(not c and s != 0 and abs(s) < limit for c, s in zip(loop.scanned, access.strides))
    if any(c and i for c, i in zip(loop.scanned, inner)):
        raise Refused(f"{loop.name} runs in order along part of the other's rows")
    return inner


def _check_shared_out(loop: Loop, dims: tuple[Size, ...], inner: tuple[bool, ...]) -> None:
    """Where rows are needed whole, threads cannot share out columns: there must be rows apart from lines."""
    lines = product(tuple(d for d, c, i in zip(dims, loop.scanned, inner) if not c and not i))
    if isinstance(lines, int) and lines < FEW_LINES:
        raise Refused(f"{loop.name} runs from row to row, which leaves threads nothing to share")


def _column_role(loop: Loop, dims: tuple[Size, ...], inner: tuple[bool, ...] | None) -> tuple[bool, ...]:
    """Rows of a sum over rows: dimensions along which memory is walked no further than by one step of the sum.

    That far lie the places of a window that is moved by one: side by side for every row.
    """
    if inner is None:
        access = loop.main_access
        assert access is not None
        steps = [abs(s) for s, r, d in zip(access.strides, loop.reduced, dims) if r and d != 1 and s != 0]
        limit = min(steps) if steps and all(isinstance(s, int) for s in steps) else None
        if limit is None:
            return tuple(not r for r in loop.reduced)
        return tuple(not r and s != 0 and s <= limit for r, s in zip(loop.reduced, access.strides))
    if all(r or d == 1 for r, d in zip(loop.reduced, loop.dims)) and all(d != 1 for d in loop.dims):
        return inner  # a total beside rows
    if any(r and i for r, i in zip(loop.reduced, inner)):
        raise Refused("it reduces along the other's rows")
    return inner


def join(first: Group, second: Group, shared: list[str]) -> tuple[list[Loop], list[Loop], tuple[Size, ...]]:
    """Both groups' loops over common dimensions, by the first shared buffer that allows it; Refused if none does."""
    why = "they share no buffer"
    first_access = {**first.reads, **{b: a for b, (_, a) in first.writes.items()}}
    second_access = {**second.reads, **{b: a for b, (_, a) in second.writes.items()}}
    ordered = sorted(
        shared, key=lambda b: -_coverage(first_access[b], first.dims) - _coverage(second_access[b], second.dims)
    )
    for buffer in ordered[:4]:
        a, b = first_access[buffer], second_access[buffer]
        if a.indirect or b.indirect:
            continue
        found = match(first.dims, a.strides, second.dims, b.strides)
        if found is None:
            why = "their shapes do not fit"
            continue
        left = [apply_split(loop, found.first, [p for p, _ in found.pairs]) for loop in first.loops]
        right = [apply_split(loop, found.second, [q for _, q in found.pairs]) for loop in second.loops]
        dims = tuple(max_size(x, y) for x, y in zip(_extent(left), _extent(right)))
        return left, right, dims
    raise Refused(why)


def _extent(loops: list[Loop]) -> tuple[Size, ...]:
    dims = loops[0].dims
    for loop in loops[1:]:
        dims = tuple(max_size(x, y) for x, y in zip(dims, loop.dims))
    return dims


def max_size(x: Size, y: Size) -> Size:
    return y if x == 1 else x


def _coverage(access: Access, dims: tuple[Size, ...]) -> int:
    return sum(1 for s, d in zip(access.strides, dims) if s != 0 and d != 1)


def check_flow(loops: list[Loop], inner: tuple[bool, ...] | None) -> None:
    """Refused unless the loops read what others of them write at the points that wrote it.

    Asked of all of them at each join: what was a whole row may be one of several numbers in a row of the new nest.
    """
    written = {s.access.buffer: (loop, s.access) for loop in loops for s in loop.stores}
    for reader in loops:
        for load in reader.loads:
            found = written.get(load.access.buffer)
            if found is None:
                continue
            writer, store = found
            if load.access.strides != store.strides or load.access.offset != store.offset or load.access.indirect:
                raise Refused(f"{reader.name} reads other elements of {store.buffer} than its point's")
            if writer.is_reduction and (inner is None or not is_row_result(writer, inner)):
                raise Refused(f"{reader.name} needs {store.buffer} before its reduction is complete")
            if writer.is_reduction and all(writer.reduced) and _is_long(writer) and any(d != 1 for d in reader.dims):
                raise Refused(f"{reader.name} would wait for one thread to reduce everything")


def _is_long(loop: Loop) -> bool:
    count = product(loop.dims)
    return not isinstance(count, int) or count > ALONE


def is_row_result(writer: Loop, inner: tuple[bool, ...]) -> bool:
    """Whether a reduction's result is known once its row is done."""
    return all(r == (i and d != 1) for r, i, d in zip(writer.reduced, inner, writer.dims))


def merged(first: Group, second: Group, shared: list[str]) -> Group:
    """One group of both, ``first``'s loops before ``second``'s; Refused with the reason when that is not legal."""
    left, right, dims = join(first, second, shared)
    ordered = sorted(zip(first.positions + second.positions, left + right), key=lambda p: p[0])
    loops = [loop for _, loop in ordered]
    inner, across = _rows(loops, dims)
    return Group(
        loops, [p for p, _ in ordered], dims, first.members | second.members, first.ancestors | second.ancestors,
        max(first.last, second.last), inner, first.names + second.names, across,
    )  # fmt: skip


def _rows(loops: list[Loop], dims: tuple[Size, ...]) -> tuple[tuple[bool, ...] | None, bool]:
    """Which dimensions make a row, and whether rows lie across memory; Refused where neither is legal."""
    try:
        inner = roles(loops, dims)
        check_flow(loops, inner)
        if inner is not None:
            _check_contiguous_inner(loops, dims, inner)
        return inner, False
    except Refused:
        across = strided_rows(loops, dims)
        if across is None:
            raise
    check_flow(loops, across)
    return across, True


def _check_contiguous_inner(loops: list[Loop], dims: tuple[Size, ...], inner: tuple[bool, ...]) -> None:
    """Rows must be what memory holds together; a broadcast over outer dimensions makes no row."""
    for loop in loops:
        if any(own == 1 and d != 1 for own, d in zip(loop.dims, dims)):
            continue
        k = loop.contiguous
        if k is not None and not inner[k] and any(inner):
            raise Refused("rows would lie across memory")
    if not any(inner) and any(loop.dims != dims for loop in loops):
        raise Refused("one is broadcast over the other")
