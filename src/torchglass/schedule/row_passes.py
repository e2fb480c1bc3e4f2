"""When each loop of a nest runs: passes over a row, and what is known between them.

A softmax has three passes: maximum; exponentials and their sum; division. A value that a later pass needs is read back
from memory if it was stored there, computed again if that is cheap, else kept in a row-long scratch array. A program of
a GPU has no such array, and does not wait until memory has what it wrote: there all is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ..records.loops import Compute, Load, Loop, Reduce, Scan
from ..records.schedule import Nest, RowPass, Schedule
from ..records.tuned.operations import CHEAP


@dataclass
class Pass:
    """One pass over a row, then the row-level loops that follow it. Pass -1 has only row-level loops."""

    full: list[Loop] = field(default_factory=list)
    row: list[Loop] = field(default_factory=list)


def is_full(loop: Loop, nest: Nest) -> bool:
    """Whether the loop moves along a row (rather than once per row)."""
    inner = loop.dims[nest.outer_rank :]
    return inner == nest.inner_dims or any(d != 1 for d in inner)


def is_row_reduction(loop: Loop, nest: Nest) -> bool:
    """Whether its result is known as soon as one row is done."""
    return loop.is_reduction and not any(loop.reduced[: nest.outer_rank])


def is_row_scan(loop: Loop, nest: Nest) -> bool:
    """Whether it carries a value along a row."""
    return any(loop.scanned[nest.outer_rank :])


def row_passes(name: str, whole: Nest, mapping: Any, cheap_loads: int | None) -> Schedule:
    """The schedule of a nest: every loop in the earliest pass, what only later passes read in theirs, and what is kept.

    ``cheap_loads``: the most loads of a loop that is computed again rather than kept. None: nothing is kept, and a scan
    along the row needs no pass to itself, as on a CPU, where it runs element by element.
    """
    local = whole.kernel.local
    after = _after_all_rows(whole)
    nest = replace(whole, loops=tuple(loop for loop in whole.loops if loop not in after))
    writer = {s.access.buffer: loop for loop in nest.loops for s in loop.stores}
    full = {loop.name for loop in nest.loops if is_full(loop, nest)}
    keeps = cheap_loads is not None
    cheap = lambda loop: cheap_loads is None or is_cheap(loop, writer, full, local, cheap_loads)
    apart = {loop.name for loop in nest.loops if keeps and is_row_scan(loop, nest)}
    at: dict[str, int] = {}
    for loop in nest.loops:
        at[loop.name] = _earliest(loop, nest, writer, full, apart, at)
    _sink(nest, writer, full - apart, at, local)
    count = max((at[name] for name in full), default=-1) + 1
    if not keeps:  # sums of columns take nothing of an earlier pass along then: registers
        at.update({lp.name: count - 1 for lp in nest.loops if lp.is_reduction and not is_row_reduction(lp, nest)})
    stages = [Pass() for _ in range(2 * count)]  # of two each, the second is for what runs along rows in order
    before: list[Loop] = []
    for loop in nest.loops:
        if loop.name in full:
            stages[2 * at[loop.name] + (loop.name in apart)].full.append(loop)
        elif at[loop.name] < 0 or not stages:
            before.append(loop)
        else:
            stages[2 * at[loop.name]].row.append(loop)
    if apart:
        _leave_to_later(stages, cheap, local)
    stages = [stage for stage in stages if stage.full or stage.row]
    scratch = _keep(nest, stages, writer, full, writer.keys() - local if keeps else set(), cheap)
    passes = tuple(RowPass(names(stage.full), names(stage.row)) for stage in stages)
    return Schedule(
        **vars(whole), name=name, before=names(before), passes=passes, after=names(after),
        row_arrays=frozenset(scratch), mapping=mapping,
    )  # fmt: skip


def names(loops: Iterable[Loop]) -> tuple[str, ...]:
    return tuple(loop.name for loop in loops)


def _after_all_rows(nest: Nest) -> list[Loop]:
    """Loops that read, directly or not, what only the last row completes."""
    late = {b for loop in nest.loops if loop.is_reduction and not is_row_reduction(loop, nest) for b in loop.writes}
    after: list[Loop] = []
    for loop in nest.loops:
        if any(b in late for b in loop.reads):
            after.append(loop)
            late.update(loop.writes)
    return after


def _earliest(
    loop: Loop, nest: Nest, writer: dict[str, Loop], full: set[str], apart: set[str], at: dict[str, int]
) -> int:
    mine = loop.name in full
    earliest = 0 if mine else -1
    for name in loop.reads:
        maker = writer.get(name)
        if maker is None or maker is loop:
            continue
        done = at[maker.name]
        row_value = maker.name not in full or is_row_reduction(maker, nest) or maker.name in apart
        earliest = max(earliest, done + 1 if mine and row_value else done)
    return earliest


def _sink(nest: Nest, writer: dict[str, Loop], sinking: set[str], at: dict[str, int], local: frozenset[str]) -> None:
    readers: dict[str, list[Loop]] = {}
    for loop in nest.loops:
        for name in loop.reads:
            if name in writer:
                readers.setdefault(name, []).append(loop)
    for loop in reversed(nest.loops):
        if loop.name not in sinking or loop.is_reduction or any(b not in local for b in loop.writes):
            continue
        users = [u for b in loop.writes for u in readers.get(b, ())]
        if users:
            at[loop.name] = max(at[loop.name], min(at[u.name] for u in users))


def _leave_to_later(stages: list[Pass], cheap: Callable[[Loop], bool], local: frozenset[str]) -> None:
    """Take out of each pass what only later ones read and is cheap enough for them to compute again."""
    for stage in stages:
        for loop in reversed(list(stage.full)):
            here = {name for other in stage.full for name in other.reads}
            stays = loop.is_reduction or any(b in here or b not in local for b in loop.writes)
            if not stays and cheap(loop):
                stage.full.remove(loop)


def _keep(
    nest: Nest,
    stages: list[Pass],
    writer: dict[str, Loop],
    full: set[str],
    in_memory: set[str],
    cheap: Callable[[Loop], bool],
) -> set[str]:
    """Full-size buffers read in a pass after their own, but for those in memory: computed again there, or scratch."""
    scratch: set[str] = set()
    for n, stage in enumerate(stages):
        present = {loop.name for loop in stage.full}
        again: list[Loop] = []
        pending = [name for loop in stage.full for name in loop.reads]
        while pending:
            name = pending.pop(0)
            maker = writer.get(name)
            if maker is None or maker.name in present or name in in_memory or name in scratch:
                continue
            if maker.name not in full or maker.is_reduction:
                continue
            if cheap(maker):
                again.append(maker)
                present.add(maker.name)
                pending += maker.reads
            else:
                scratch.add(name)
        order = {loop.name: k for k, loop in enumerate(nest.loops)}
        stages[n].full = sorted(stage.full + again, key=lambda lp: order[lp.name])
    return scratch


def is_cheap(loop: Loop, writer: dict[str, Loop], full: set[str], local: frozenset[str], most_loads: int) -> bool:
    """Whether running the loop's arithmetic again costs less than keeping its row."""
    loads = 0
    for op in loop.body:
        if isinstance(op, Compute) and op.op not in CHEAP:
            return False
        if isinstance(op, (Reduce, Scan)):
            return False
        if isinstance(op, Load):
            if op.access.indirect:
                return False
            maker = writer.get(op.access.buffer)
            if maker is not None and maker.name in full and op.access.buffer in local and not maker.is_reduction:
                return False
            loads += 1
    return loads <= most_loads
