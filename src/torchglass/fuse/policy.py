"""What pays when loops become one nest: questions of ``run`` that each target answers, and what both answer alike.

A check returns, or raises ``Refused`` with the reason in words, as those of ``legality`` do; other than theirs, its
answer changes no value. Sizes that are not known count as they were when the program was compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from ..records.loops import Buffer, Loop
from ..records.sizes import Size, hint, product
from ..records.tuned.fusion import Fusion
from .groups import Group, Uses, positions
from .legality import Refused, Rows, flows, is_row_result, same_places


@dataclass(frozen=True)
class Policy:
    """The answers by one target's numbers. ``carries``: kernels carry values from row to row (``legality.roles``).
    ``launched_points``: up to so many are not worth a launch. ``buffers``: the graph's.
    """

    tuned: Fusion
    buffers: Mapping[str, Buffer] = field(default_factory=dict)
    carries: ClassVar[bool] = True
    launched_points: ClassVar[int] = 0

    def check_pair(self, uses: Uses, first: Group, second: Group) -> None:
        """Before the loops of both are brought to common dimensions."""
        self._check_size(first, second)
        self._check_parts(uses, first, second)

    def check_rows(self, loops: list[Loop], dims: tuple[Size, ...], inner: Rows | None) -> None:
        """Of the loops in one nest, with the rows that are legal."""
        for reader, _, writer, _ in flows(loops):
            everything = writer.is_reduction and all(writer.reduced) and any(d != 1 for d in reader.dims)
            if everything and hint(product(writer.dims)) > self.tuned.alone:
                raise Refused(f"{reader.name} would wait for one thread to reduce everything")

    def other_rows(self, loops: list[Loop], dims: tuple[Size, ...]) -> Rows | None:
        """Rows across memory that pay where others are refused."""
        return None

    def check_siblings(self, uses: Uses, first: Group, second: Group, group: Group) -> None:
        """Of two that read the same, and would be ``group``."""
        _check_shared(first, second)
        _check_waiting(uses, first, second, group)
        _check_waiting(uses, second, first, group)

    def _check_size(self, first: Group, second: Group) -> None:
        loops = first.loops + second.loops
        if sum(len(loop.body) for loop in loops) > self.tuned.max_operations:
            raise Refused("the kernel would grow past what compiles and runs well")
        if len({b for loop in loops for b in (*loop.reads, *loop.writes)}) > self.tuned.max_streams:
            raise Refused("the kernel would touch too many buffers")

    def _check_parts(self, uses: Uses, first: Group, second: Group) -> None:
        """A part written in place by what makes it holds the whole's memory from then on: not for long."""
        if abs(first.last - second.last) <= self.tuned.part_distance:
            return
        for name in (*second.writes, *first.writes):
            alias = uses.graph.buffers[name].alias_of
            if alias and uses.bytes(alias[0]) > 2 * uses.bytes(name):
                raise Refused(f"{alias[0]} would be held in memory for long")


def check_contiguous(loops: list[Loop], dims: tuple[Size, ...], inner: Rows | None) -> None:
    """Rows must be what memory holds together; a broadcast over outer dimensions makes no row."""
    for loop in loops:
        if any(own == 1 and d != 1 for own, d in zip(loop.dims, dims)):
            continue
        k = loop.contiguous
        if inner is not None and any(inner) and k is not None and not inner[k]:
            raise Refused("rows would lie across memory")


def _check_shared(first: Group, second: Group) -> None:
    """Siblings join only where what they share is of the size of the whole nest."""
    moves = lambda group, name: all(s != 0 or d == 1 for s, d in zip(group.reads[name].strides, group.dims))
    shared = (name for name in first.shared(second) if name in first.reads and name in second.reads)
    whole = lambda name: same_places(first, second, name) or (moves(first, name) and moves(second, name))
    if not any(map(whole, shared)):
        raise Refused("they share only little data")


def _check_waiting(uses: Uses, one: Group, other: Group, group: Group) -> None:
    """Numbers that are read only once all rows have been reduced are better made then: stored, they cost a write.

    ``(x - mean) / (x - other_mean).square().sum(0)``: the difference joins the division, not the sum.
    """
    if any(loop.is_reduction or loop.is_scan for loop in one.loops) or set(one.writes) & uses.outputs:
        return
    late = 0
    for loop, position in zip(other.loops, other.positions):
        if loop.is_reduction and (group.inner is None or not is_row_result(loop, group.inner)):
            late |= 1 << position
    readers = [u for name in one.writes for u in positions(uses.readers.get(name, 0) & ~one.members)]
    if late and readers and all(uses.needs[u] & late for u in readers):
        raise Refused(f"what reads {one.names[-1]} waits for the whole of {other.names[-1]}")
