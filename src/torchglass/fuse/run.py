"""The fusing stage: a LoopGraph in, a FusedGraph out: kernels, their order, the memory plan and every decision.

Loops join, in order, the groups that produce what they read and then those that read the same. A producer and a
consumer over 512 x 256 floats that become one kernel save 2 x 524,288 bytes of traffic; the decision says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile

from ..process import interrupts
from ..records.kernels import FusedGraph, FusedKernel, FusionDecision
from ..records.loops import ExternCall, Loop, LoopGraph, Node
from ..records.sizes import hint, product
from ..records.target import Cpu, Gpu, Target, Targets
from .groups import Group, Uses, device_of
from .horizontal import horizontal_fusion
from .inline_producers import inline_producers
from .inplace import update_inputs
from .legality import Refused, check_cycle, check_devices, check_order
from .memory import plan
from .merging import merged, single
from .policy import Policy
from .policy_cpu import CpuPolicy
from .policy_gpu import GpuPolicy
from .split_reductions import split_reductions

POLICIES: dict[type[Target], Callable[..., Policy]] = {Cpu: CpuPolicy, Gpu: GpuPolicy}


def run(graph: LoopGraph, targets: Targets) -> FusedGraph:
    """Fuse, order and plan memory. Raises NotImplementedError for a device that no code is generated for."""
    graph, decisions = inline_producers(graph, targets)
    graph, whole = split_reductions(graph, targets)
    decisions += whole
    work = _Fusing(graph, targets, decisions)
    for position, node in enumerate(graph.nodes):
        interrupts.check()
        work.add(position, node)
    order = horizontal_fusion(graph, work.kernels_in_order(), targets, work.decisions)
    order, updated = update_inputs(graph, order)
    steps, peak = plan(graph, order, targets, updated)
    return FusedGraph(graph, steps, tuple(work.decisions), peak)


class _Fusing:
    """Groups as they grow. ``maker[name]`` is the group that writes a buffer."""

    def __init__(self, graph: LoopGraph, targets: Targets, decisions: list[FusionDecision]) -> None:
        self.uses = Uses(graph)
        self.targets = targets
        self.policies: dict[str, Policy] = {}  # by device
        self.groups: dict[int, Group] = {}  # by identity
        self.extern: dict[int, ExternCall] = {}
        self.effects: list[Group] = []  # calls that draw random numbers or check something: they keep their order
        self.before: dict[int, Group] = {}  # for the position of one of them: the one before it
        self.after: dict[int, Group] = {}  # and the one after it
        self.maker: dict[str, Group] = {}
        self.readers: dict[str, list[Group]] = {}
        self.small: dict[str, Group] = {}  # by device, the last one that is no launch of its own
        self.decisions = decisions

    def policy(self, device: str) -> Policy:
        """What pays on a device."""
        if device not in self.policies:
            target = self.targets.of(device)
            self.policies[device] = POLICIES[type(target)](target.fusion, self.uses.graph.buffers)
        return self.policies[device]

    def add(self, position: int, node: Node) -> None:
        """Enter the next node, and let it join what it can."""
        if isinstance(node, ExternCall):
            group = Group([], [], (), 1 << position, last=position, names=[node.name])
            self.extern[position] = node
        else:
            device = device_of(self.uses.graph, node)
            group = single(node, position, device, self.policy(device))
        for name in self.uses.read_by(node):
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
        for name in self.uses.read_by(node):
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
        self._join_small(group)

    def _join_small(self, group: Group) -> None:
        """Horizontal fusion of what needs inputs alone, so that it may run at any time, and is not worth a launch."""
        policy = self.policy(group.device)
        if hint(product(group.dims)) > policy.launched_points or any(
            name in self.maker for name in self.uses.read_by(group)
        ):
            return
        before = self.small.get(group.device)
        there = before is not None and id(before) in self.groups
        self.small[group.device] = (self._try(before, group, "horizontal", 0) if before and there else None) or group

    def _producers(self, group: Group) -> list[Group]:
        found = {id(g): g for name in group.reads if (g := self.maker.get(name)) is not None and g is not group}
        return [g for g in found.values() if g.loops]

    def _siblings(self, group: Group) -> list[Group]:
        """Other groups that read the same. The readers of a buffer are in the order of their last nodes: a group that
        grows comes last.
        """
        distance = self.policy(group.device).tuned.sibling_distance
        found: dict[int, Group] = {}
        for name in group.reads:
            near = list(takewhile(lambda g: group.last - g.last <= distance, reversed(self.readers[name])))
            for other in reversed(near):
                if other is not group and other.loops:
                    found[id(other)] = other
        return list(found.values())

    def _saving(self, first: Group, second: Group) -> int:
        """Bytes that are not read again, and those that need no memory."""
        within = first.members | second.members
        total = 0
        for name in first.shared(second):
            local = name in first.writes and self.uses.only_within(name, within)
            total += self.uses.bytes(name) * (1 + local)
        return total

    def _try(self, first: Group, second: Group, rule: str, saving: int) -> Group | None:
        """Merge two groups, ``first`` before ``second``, if it is legal and pays."""
        policy = self.policy(second.device)
        try:
            check_devices(first, second)
            check_order(first, second)
            check_cycle(first, second, self._dependencies(second))
            check_cycle(second, first, self._dependencies(first))
            policy.check_pair(self.uses, first, second)
            group = merged(first, second, policy)
            if rule == "sibling":
                policy.check_siblings(self.uses, first, second, group)
        except Refused as why:
            self.decisions.append(FusionDecision(first.names[-1], second.names[-1], False, rule, str(why)))
            return None
        self.decisions.append(
            FusionDecision(first.names[-1], second.names[-1], True, rule, f"over {list(group.dims)}", saving)
        )
        self._replace(first, second, group)
        return group

    def _dependencies(self, group: Group) -> Iterable[Group]:
        return {id(g): g for name in self.uses.read_by(group) if (g := self.maker.get(name)) is not None}.values()

    def _replace(self, first: Group, second: Group, group: Group) -> None:
        del self.groups[id(first)], self.groups[id(second)]
        self.groups[id(group)] = group
        for name in group.writes:
            self.maker[name] = group
        for name in self.uses.read_by(group):
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
        reads = self.uses.read_by(group if group.loops else self.extern[group.last])
        needed = [g for name in reads if (g := self.maker.get(name)) is not None and g is not group]
        return needed if group.loops or group.last not in self.before else [*needed, self.before[group.last]]

    def _finish(self, group: Group) -> FusedKernel | ExternCall:
        if not group.loops:
            return self.extern[group.last]
        local = frozenset(name for name in group.writes if self.uses.only_within(name, group.members))
        inner = group.inner if group.inner is not None else (False,) * len(group.dims)
        return FusedKernel(group.names[-1], group.dims, inner, tuple(group.loops), local, strided=group.strided)
