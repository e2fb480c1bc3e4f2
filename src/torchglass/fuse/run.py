"""The fusing stage: a LoopGraph in, a FusedGraph out: kernels, their order, the memory plan and every decision.

Loops join, in order, the groups that produce what they read and then those that read the same. A producer and a
consumer over 512 x 256 floats that become one kernel save 2 x 524,288 bytes of traffic; the decision says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any

from .. import interrupts
from ..records.kernels import FusedGraph, FusedKernel, FusionDecision
from ..records.loops import ExternCall, Loop, LoopGraph, Node, Value, View, item_bytes
from .groups import Group, Refused, is_row_result, merged, single
from .horizontal import horizontal_fusion
from .inline_producers import inline_producers
from .inplace import update_inputs
from .memory import plan, storage_items

MAX_OPERATIONS = 600  # of one kernel: past this compile time grows and registers spill
MAX_STREAMS = 40  # buffers one kernel may touch
PART_DISTANCE = 12  # nodes between what makes a small part of a whole and its place in it
SIBLING_DISTANCE = 48  # nodes apart: joining readers far from each other keeps memory alive between them


def run(graph: LoopGraph, options: Any = None) -> FusedGraph:
    """Fuse, order and plan memory."""
    graph, decisions = inline_producers(graph)
    work = _Fusing(graph, decisions)
    for position, node in enumerate(graph.nodes):
        interrupts.check()
        work.add(position, node)
    order = horizontal_fusion(graph, work.kernels_in_order(), work.decisions)
    order, updated = update_inputs(graph, order)
    steps, peak = plan(graph, order, updated)
    return FusedGraph(graph, steps, tuple(work.decisions), peak)


class _Fusing:
    """Groups as they grow. ``place[name]`` is the group that writes a buffer."""

    def __init__(self, graph: LoopGraph, decisions: list[FusionDecision]) -> None:
        self.graph = graph
        self.groups: dict[int, Group] = {}  # by identity
        self.extern: dict[int, ExternCall] = {}
        self.effects: list[Group] = []  # calls that draw random numbers or check something: they keep their order
        self.before: dict[int, Group] = {}  # for the position of one of them: the one before it
        self.after: dict[int, Group] = {}  # and the one after it
        self.maker: dict[str, Group] = {}
        self.readers: dict[str, list[Group]] = {}
        self.uses: dict[str, set[int]] = {}
        self.decisions = decisions
        self.outputs = {
            o.buffer if isinstance(o, View) else o.name for o in graph.outputs if isinstance(o, (View, Value))
        }
        self.needs: list[int] = []  # for each node the set of those before it that it needs, as bits
        makers: dict[str, int] = {}
        for position, node in enumerate(graph.nodes):
            needs = 0
            for name in node.reads:
                self.uses.setdefault(name, set()).add(position)
                if (made := makers.get(name)) is not None:
                    needs |= self.needs[made] | 1 << made
            self.needs.append(needs)
            makers.update(dict.fromkeys(node.writes, position))

    def add(self, position: int, node: Node) -> None:
        """Enter the next node, and let it join what it can."""
        if isinstance(node, ExternCall):
            group = Group([], [], (), 1 << position, last=position, names=[node.name])
            self.extern[position] = node
        else:
            group = single(node, position)
        for name in node.reads:
            made = self.maker.get(name)
            if made is not None:
                group.ancestors |= made.members | made.ancestors
        if isinstance(node, ExternCall) and node.effect:
            if self.effects:
                self.before[position] = previous = self.effects[-1]
                self.after[previous.last] = group
                group.ancestors |= previous.members | previous.ancestors
            self.effects.append(group)
        self.groups[id(group)] = group
        for name in node.writes:
            self.maker[name] = group
        for name in node.reads:
            self.readers.setdefault(name, []).append(group)
        if isinstance(node, Loop) and 0 not in node.dims:
            self._join_neighbours(group)

    def _join_neighbours(self, group: Group) -> None:
        """Join producers first, largest saving first, then groups that read the same buffers."""
        for rule, candidates in (("producer", self._producers), ("sibling", self._siblings)):
            tried: set[int] = set()
            while True:
                best = max(
                    (
                        (self._saving(other, group), n, other)
                        for n, other in enumerate(candidates(group))
                        if id(other) not in tried
                    ),
                    default=None,
                    key=lambda c: c[0],
                )
                if best is None:
                    break
                tried.add(id(best[2]))
                joined = self._try(best[2], group, rule, best[0])
                group = joined or group

    def _producers(self, group: Group) -> list[Group]:
        found = {id(g): g for name in group.reads if (g := self.maker.get(name)) is not None and g is not group}
        return [g for g in found.values() if g.loops]

    def _siblings(self, group: Group) -> list[Group]:
        """Other groups that read the same. The readers of a buffer are in the order of their last nodes: a group that
        grows comes last.
        """
        found: dict[int, Group] = {}
        for name in group.reads:
            near = list(takewhile(lambda g: group.last - g.last <= SIBLING_DISTANCE, reversed(self.readers[name])))
            for other in reversed(near):
                if other is not group and other.loops:
                    found[id(other)] = other
        return list(found.values())

    def _shared(self, first: Group, second: Group) -> list[str]:
        mine = {*first.writes, *first.reads}
        return [b for b in dict.fromkeys((*second.reads, *second.writes)) if b in mine]

    def _saving(self, first: Group, second: Group) -> int:
        total = 0
        inside = first.members | second.members
        for name in self._shared(first, second):
            size = self._bytes(name)
            total += size
            if (
                name in first.writes
                and name not in self.outputs
                and all(inside >> u & 1 for u in self.uses.get(name, ()))
            ):
                total += size
        return total

    def _try(self, first: Group, second: Group, rule: str, saving: int) -> Group | None:
        """Merge two groups, ``first`` before ``second``, if nothing between them forbids it."""
        try:
            self._check_order(first, second)
            self._check_cycle(first, second)
            self._check_size(first, second)
            self._check_parts(first, second)
            group = merged(first, second, self._shared(first, second))
            if rule == "sibling":
                self._check_sibling(first, second, group)
                self._check_waiting(first, second, group)
                self._check_waiting(second, first, group)
        except Refused as why:
            self.decisions.append(FusionDecision(first.names[-1], second.names[-1], False, rule, str(why)))
            return None
        self.decisions.append(
            FusionDecision(first.names[-1], second.names[-1], True, rule, f"over {list(group.dims)}", saving)
        )
        self._replace(first, second, group)
        return group

    def _check_order(self, first: Group, second: Group) -> None:
        for loop in (*first.loops, *second.loops):
            if loop.is_scatter:
                raise Refused(f"the points of {loop.name} run in order")

    def _check_cycle(self, first: Group, second: Group) -> None:
        for inner, outer in ((first, second), (second, first)):
            for other in self._dependencies(outer):
                if other is not inner and other is not outer and other.ancestors & inner.members:
                    raise Refused(f"{other.names[0]} lies between them")

    def _dependencies(self, group: Group) -> Iterable[Group]:
        return {id(g): g for name in group.reads if (g := self.maker.get(name)) is not None}.values()

    def _check_size(self, first: Group, second: Group) -> None:
        loops = first.loops + second.loops
        if sum(len(loop.body) for loop in loops) > MAX_OPERATIONS:
            raise Refused("the kernel would grow past what compiles and runs well")
        if len({b for loop in loops for b in (*loop.reads, *loop.writes)}) > MAX_STREAMS:
            raise Refused("the kernel would touch too many buffers")

    def _check_parts(self, first: Group, second: Group) -> None:
        """A part written in place by what makes it holds the whole's memory from then on: not for long."""
        for maker, copy in ((first, second), (second, first)):
            for name in copy.writes:
                inside = self.graph.buffers[name].alias_of
                far = abs(copy.last - maker.last) > PART_DISTANCE
                if inside and far and self._bytes(inside[0]) > 2 * self._bytes(name):
                    raise Refused(f"{inside[0]} would be held in memory for long")

    def _bytes(self, name: str) -> int:
        size = storage_items(self.graph.buffers[name]) * item_bytes(self.graph.buffers[name].dtype)
        return size if isinstance(size, int) else 1 << 20

    def _check_sibling(self, first: Group, second: Group, group: Group) -> None:
        """Siblings join only where what they share is of the size of the whole nest."""
        for name in self._shared(first, second):
            for side in (first, second):
                access = side.reads.get(name)
                if access is None or any(s == 0 and d != 1 for s, d in zip(access.strides, side.dims)):
                    break
            else:
                return
        raise Refused("they share only little data")

    def _check_waiting(self, one: Group, other: Group, group: Group) -> None:
        """Numbers that are read only once all rows have been reduced are better made then: stored, they cost a write.

        ``(x - mean) / (x - other_mean).square().sum(0)``: the difference joins the division, not the sum.
        """
        if any(loop.is_reduction or loop.is_scan for loop in one.loops) or set(one.writes) & self.outputs:
            return
        late = 0
        for loop, position in zip(other.loops, other.positions):
            if loop.is_reduction and (group.inner is None or not is_row_result(loop, group.inner)):
                late |= 1 << position
        readers = {u for name in one.writes for u in self.uses.get(name, ()) if not one.members >> u & 1}
        if late and readers and all(self.needs[u] & late for u in readers):
            raise Refused(f"what reads {one.names[-1]} waits for the whole of {other.names[-1]}")

    def _replace(self, first: Group, second: Group, group: Group) -> None:
        del self.groups[id(first)], self.groups[id(second)]
        self.groups[id(group)] = group
        for name in group.writes:
            self.maker[name] = group
        for name in group.reads:
            others = [g for g in self.readers.get(name, ()) if g is not first and g is not second]
            self.readers[name] = [*others, group]
        group.ancestors &= ~group.members
        self._tell_descendants(group)

    def _tell_descendants(self, group: Group) -> None:
        """Whoever needed a part of a new group needs all that the group needs."""
        added = group.members | group.ancestors
        told = {id(group)}
        waiting = [group]
        while waiting:
            for other in self._readers_of(waiting.pop()):
                if id(other) not in told and other.ancestors & group.members:
                    told.add(id(other))
                    other.ancestors |= added
                    waiting.append(other)

    def _readers_of(self, group: Group) -> Iterator[Group]:
        writes = group.writes if group.loops else self.extern[group.last].writes
        for name in writes:
            yield from self.readers.get(name, ())
        if group.last in self.after:
            yield self.after[group.last]

    def kernels_in_order(self) -> list[FusedKernel | ExternCall]:
        """Groups in an order that has every value before its readers, near the order of the graph."""
        done: set[int] = set()
        out: list[FusedKernel | ExternCall] = []

        def emit(root: Group) -> None:
            stack: list[tuple[Group, bool]] = [(root, False)]
            while stack:
                group, ready = stack.pop()
                if id(group) in done:
                    continue
                if ready:
                    done.add(id(group))
                    out.append(self._finish(group))
                    continue
                stack.append((group, True))
                for other in self._needs(group):
                    if id(other) not in done:
                        stack.append((other, False))

        for group in sorted(self.groups.values(), key=lambda g: g.last):
            emit(group)
        return out

    def _needs(self, group: Group) -> list[Group]:
        reads = group.reads if group.loops else self.extern[group.last].reads
        needed = [g for name in reads if (g := self.maker.get(name)) is not None and g is not group]
        return needed if group.loops or group.last not in self.before else [*needed, self.before[group.last]]

    def _finish(self, group: Group) -> FusedKernel | ExternCall:
        if not group.loops:
            return self.extern[group.last]
        local = set()
        for name in group.writes:
            inside = all(group.members >> u & 1 for u in self.uses.get(name, ()))
            if inside and name not in self.outputs:
                local.add(name)
        inner = group.inner if group.inner is not None else (False,) * len(group.dims)
        return FusedKernel(
            group.names[-1], group.dims, inner, tuple(group.loops), frozenset(local), strided=group.strided
        )
