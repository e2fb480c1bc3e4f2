"""What keeps every value the same when loops become one nest: asked before whether it pays, and alike for all targets.

A reader must meet each element that the nest itself writes at the very point that wrote it, or one level up: a row's
statistic, read by the whole row. Each check returns, or raises ``Refused`` with the reason in words::

    check_flow([total := sum of (512, 128) over both, x / total], (False, True))
    -> Refused: div needs total before its reduction is complete
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..records.loops import Access, Load, Loop
from ..records.sizes import Size, hint
from .align import apply_split, match
from .groups import Group

ROW, COLUMN, TOTAL = "row", "column", "total"
Rows = tuple[bool, ...]
"""For each dimension of a nest whether it lies within a row."""


class Refused(Exception):
    """Why two groups stay apart."""


# -- of two groups ---------------------------------------------------------------------------------------------------
def check_devices(first: Group, second: Group) -> None:
    """A kernel runs on one device."""
    if first.device != second.device:
        raise Refused(f"they run on {first.device} and {second.device}")


def check_order(first: Group, second: Group) -> None:
    """What stores at computed places, perhaps twice at one, does so in the order of its points, alone."""
    for loop in (*first.loops, *second.loops):
        if loop.is_scatter:
            raise Refused(f"the points of {loop.name} run in order")


def check_cycle(one: Group, other: Group, needed: Iterable[Group]) -> None:
    """``needed``: the groups that ``other`` reads of. None of them may need ``one``: it would run before and after."""
    for between in needed:
        if between is not one and between is not other and between.ancestors & one.members:
            raise Refused(f"{between.names[0]} lies between them")


def join(first: Group, second: Group) -> tuple[list[Loop], list[Loop], tuple[Size, ...]]:
    """Both groups' loops over common dimensions, by the first shared buffer that allows it; Refused if none does.

    Those of single points have none to find.
    """
    if not first.dims and not second.dims:
        return [*first.loops], [*second.loops], ()
    why = "they share no buffer"
    first_access = {**first.reads, **{b: a for b, (_, a) in first.writes.items()}}
    second_access = {**second.reads, **{b: a for b, (_, a) in second.writes.items()}}
    coverage = lambda b: _coverage(first_access[b], first.dims) + _coverage(second_access[b], second.dims)
    for buffer in sorted(first.shared(second), key=lambda b: -coverage(b))[:4]:
        a, b = first_access[buffer], second_access[buffer]
        if same_places(first, second, buffer):
            return [*first.loops], [*second.loops], first.dims
        if a.indirect or b.indirect:
            continue
        found = match(first.dims, a.strides, second.dims, b.strides)
        if found is None:
            why = "their shapes do not fit"
            continue
        left = [apply_split(loop, found.first, [p for p, _ in found.pairs]) for loop in first.loops]
        right = [apply_split(loop, found.second, [q for _, q in found.pairs]) for loop in second.loops]
        return left, right, _extent([*left, *right])
    raise Refused(why)


def same_places(first: Group, second: Group, buffer: str) -> bool:
    """Whether both read a buffer at the same computed places, as pooling does for maxima and for where they are."""
    if buffer in first.writes or buffer in second.writes or first.dims != second.dims:
        return False
    return bool(first.reads[buffer].indirect) and first.reads[buffer] == second.reads[buffer]


def _extent(loops: list[Loop]) -> tuple[Size, ...]:
    dims = loops[0].dims
    for loop in loops[1:]:
        dims = tuple(y if x == 1 else x for x, y in zip(dims, loop.dims))
    return dims


def _coverage(access: Access, dims: tuple[Size, ...]) -> int:
    return sum(1 for s, d in zip(access.strides, dims) if s != 0 and d != 1)


# -- rows ------------------------------------------------------------------------------------------------------------
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
    if not (loop.is_scan and any(loop.scanned)):
        return None
    k = loop.contiguous
    return ROW if k is None or loop.scanned[k] else COLUMN


def roles(loops: list[Loop], dims: tuple[Size, ...], carries: bool = True) -> Rows | None:
    """Which dimensions make a row, as the loops demand; None when none demands; Refused when demands disagree.

    ``carries``: a kernel carries values from row to row, as sums of columns do and scans across rows.
    """
    if not carries:
        return own_rows(loops, dims)
    demands: set[Rows] = set()
    columns: list[Loop] = []
    totals: list[Loop] = []
    carrying: list[Loop] = []  # scans across rows
    for loop in loops:
        missing = tuple(own == 1 and d != 1 for own, d in zip(loop.dims, dims))
        kind, scan = reduction_kind(loop), scan_kind(loop)
        _check_lines(loop, missing)
        if scan == COLUMN:
            carrying.append(loop)
        elif scan == ROW:
            demands.add(loop.scanned)
        elif any(missing):
            demands.add(missing)
            columns += [loop] if kind is not None else []
        elif kind == ROW:
            demands.add(loop.reduced)
        elif kind is not None:
            (totals if kind == TOTAL else columns).append(loop)
    if len(demands) > 1:
        raise Refused("their rows are along different dimensions")
    inner = next(iter(demands), None)
    for loop in carrying:
        inner = _carrying_role(loop, inner)
    if carrying and len({loop.scanned for loop in carrying}) + bool(columns or totals) > 1:
        raise Refused("one needs rows in order, the other in another one or in none")
    for loop in columns:
        inner = _column_role(loop, dims, inner)
    if totals and inner is None:
        inner = (True,) * len(dims)
    _check_kept_rows([*columns, *totals], dims, inner)
    return inner


def own_rows(loops: list[Loop], dims: tuple[Size, ...]) -> Rows | None:
    """The same where programs run side by side, in no order: all that is reduced or scanned is a row.

    But for sums down columns that each program makes of its own rows, so that some dimension of rows tells programs
    apart: they may go with what reduces along rows.
    """
    rows, sums = set[Rows](), set[Rows]()
    for loop in loops:
        missing = tuple(own == 1 and d != 1 for own, d in zip(loop.dims, dims))
        _check_lines(loop, missing)
        rows.update(wanted for wanted in (missing, loop.scanned) if any(wanted))
        if loop.is_reduction:
            (sums if reduction_kind(loop) == COLUMN else rows).add(loop.reduced)
    sums -= rows
    demands = [*rows, *sums]
    if len(demands) > 1 and (len(rows) != 1 or len(sums) != 1 or not _tells_apart(demands[0], demands[1], dims)):
        raise Refused("their rows are along different dimensions")
    return demands[0] if demands else None


def _tells_apart(row: Rows, summed: Rows, dims: tuple[Size, ...]) -> bool:
    """Whether a dimension is neither a row's nor summed, and none is both."""
    return not any(r and s for r, s in zip(row, summed)) and any(
        d != 1 and not r and not s for d, r, s in zip(dims, row, summed)
    )


def _check_lines(loop: Loop, missing: Rows) -> None:
    if scan_kind(loop) is not None and any(missing):
        raise Refused(f"{loop.name} runs in order along lines that the other's points share")


def _carrying_role(loop: Loop, inner: Rows | None) -> Rows:
    """Rows of a loop that carries values from row to row: what lies between two points of a line."""
    if inner is None:
        assert loop.main_access is not None
        strides = [abs(hint(s)) for s in loop.main_access.strides]
        limit = min(s for s, c in zip(strides, loop.scanned) if c)
        return tuple(not c and 0 != s < limit for c, s in zip(loop.scanned, strides))
    if any(c and i for c, i in zip(loop.scanned, inner)):
        raise Refused(f"{loop.name} runs in order along part of the other's rows")
    return inner


def _column_role(loop: Loop, dims: tuple[Size, ...], inner: Rows | None) -> Rows:
    """Rows of a sum over rows: dimensions along which memory is walked no further than by one step of the sum.

    That far lie the places of a window that is moved by one: side by side for every row.
    """
    if inner is None:
        assert loop.main_access is not None
        strides = [hint(s) for s in loop.main_access.strides]
        steps = [abs(s) for s, r, d in zip(strides, loop.reduced, dims) if r and d != 1 and s != 0]
        if not steps:
            return tuple(not r for r in loop.reduced)
        return tuple(not r and s != 0 and s <= min(steps) for r, s in zip(loop.reduced, strides))
    if any(r and i for r, i in zip(loop.reduced, inner)):
        raise Refused("it reduces along the other's rows")
    return inner


def _check_kept_rows(loops: list[Loop], dims: tuple[Size, ...], inner: Rows | None) -> None:
    """Loops that reduce over rows share one set of accumulators: all of them keep a dimension of rows, or none."""
    for k, size in enumerate(dims):
        if inner is not None and not inner[k] and size != 1 and len({loop.reduced[k] for loop in loops}) > 1:
            raise Refused("one keeps rows that the other reduces")


# -- the flow of values ----------------------------------------------------------------------------------------------
def check_flow(loops: list[Loop], inner: Rows | None) -> None:
    """Refused unless the loops read what others of them write at the points that wrote it.

    Asked of all of them at each join: what was a whole row may be one of several numbers in a row of the new nest.
    """
    for reader, load, writer, store in flows(loops):
        if load.access.strides != store.strides or load.access.offset != store.offset or load.access.indirect:
            raise Refused(f"{reader.name} reads other elements of {store.buffer} than its point's")
        if writer.is_reduction and (inner is None or not is_row_result(writer, inner)):
            raise Refused(f"{reader.name} needs {store.buffer} before its reduction is complete")


def flows(loops: list[Loop]) -> Iterator[tuple[Loop, Load, Loop, Access]]:
    """Each load of what the loops themselves store: the reader and its load, the writer and where it stores."""
    written = {s.access.buffer: (loop, s.access) for loop in loops for s in loop.stores}
    for reader in loops:
        for load in reader.loads:
            if (found := written.get(load.access.buffer)) is not None:
                yield reader, load, *found


def is_row_result(writer: Loop, inner: Rows) -> bool:
    """Whether a reduction's result is known once its row is done."""
    return all(r == (i and d != 1) for r, i, d in zip(writer.reduced, inner, writer.dims))
