"""A backward in a chain of nodes: DistributedDataParallel sums a bucket's gradients while the next ones are computed.

Input: the buckets as DDP has them when the forward runs. Output: for each node what it calls, and the inputs whose
gradients that gives. The graph's node is the first; each has the next one behind its last edge, and autograd runs it
when what waited for the gradients before has run::

    node 0: segment 0 ─ gradients of bucket 0 ─ DDP begins to sum them
    node 1: segment 1 ─ gradients of bucket 1 ─ ...
    node 2: what is left: the inputs' gradients

Values that later segments read wait in the call's ``_Chain`` and are dropped by their last reader. Until DDP has seen
in which order gradients come there is nothing to cut at: the whole backward runs in the first node, and a chain of one
node for each parameter hands its gradients out in the order in which they were computed, by which DDP fills its
buckets.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch

from .._native import below_autograd
from ..records.partition import Partition
from ..records.segments import CutGraph, Groups, Segment
from ..torch_compat import data_parallel_buckets
from .backward import Backward, Graph, Route

Buckets = tuple[int | None, ...]
"""The bucket of each group, None for what is in none."""


class CompileSegments(Protocol):
    """Cuts ``partition.backward`` behind each group's gradients, and compiles the segments. None where it cannot."""

    def __call__(self, partition: Partition, groups: Groups, buckets: Buckets) -> CutGraph | None: ...


Links = tuple[tuple[Callable[..., Any], tuple[int, ...]], ...]
"""For csrc/graph_function.cpp: what each node calls, and its group."""

MOST_CUTS = 8
"""Ways in which a backward is cut, for one code that many layers run. Further ones are not cut."""


class Chains:
    """Says for each call of a graph in which nodes its backward is; None for one."""

    def __init__(self, backward: Backward, compile_segments: CompileSegments) -> None:
        self.backward, self.compile_segments = backward, compile_segments
        self.gradients = backward.partition.gradients
        self.inputs = tuple(gradient.input for gradient in self.gradients)
        self.known: dict[Any, _Chained | None] = {}
        self.cuts: dict[Groups, _Chained] = {}

    def __call__(self, ddp: Any, inputs: list[Any]) -> Links | None:
        buckets = data_parallel_buckets(ddp)
        if buckets is None:
            return None
        of = buckets.of
        key = buckets.final, tuple([of.get(id(inputs[index])) for index in self.inputs])
        if key not in self.known:
            self.known[key] = self._chained(*key)
        chained = self.known[key]
        return None if chained is None else chained.links()

    def _chained(self, final: bool, buckets: Sequence[int | None]) -> _Chained | None:
        if not final:
            groups = self._one_by_one(buckets)
            return _Chained(self.backward, groups) if len(groups) > 1 else None
        inputs: dict[int | None, list[int]] = {}
        for index, bucket in zip(self.inputs, buckets):
            inputs.setdefault(bucket, []).append(index)
        order = tuple(sorted(inputs, key=lambda bucket: math.inf if bucket is None else bucket))
        groups = tuple(tuple(inputs[bucket]) for bucket in order)
        if groups not in self.cuts and len(groups) > 1 and len(self.cuts) < MOST_CUTS:
            cut = functools.partial(self.compile_segments, groups=groups, buckets=order)
            self.cuts[groups] = _Chained(_CutBackward(self.backward, cut), groups)
        return self.cuts.get(groups)

    def _one_by_one(self, buckets: Sequence[int | None]) -> Groups:
        order = sorted(zip(self.gradients, buckets), key=lambda pair: (pair[0].ready, -pair[0].input))
        rest = tuple(gradient.input for gradient, bucket in order if bucket is None)
        alone = [(gradient.input,) for gradient, bucket in order if bucket is not None]
        return (*alone, rest) if rest else tuple(alone)


class _CutBackward(Backward):
    """A graph's backwards, each in segments where it can be cut."""

    def __init__(self, whole: Backward, cut: Callable[[Partition], CutGraph | None]) -> None:
        super().__init__(whole.partition, whole.compile_backward)
        self.cut = cut

    def _made_of(self, partition: Partition) -> tuple[Any, tuple[int, ...]]:
        found = self.cut(partition)
        return super()._made_of(partition) if found is None else (found, partition.read)


class _Plan(NamedTuple):
    """What each node runs, and hands out: for each of its gradients a slot or None. ``spent``: the slots that nobody
    needs once its segment has begun, ``given``: nor once its gradients are handed out; ``read``: those that somebody
    needs at all.
    """

    segments: Sequence[Segment | None]
    handed: tuple[tuple[int | None, ...], ...]
    spent: tuple[frozenset[int], ...]
    given: tuple[frozenset[int], ...]
    read: frozenset[int]


class _Chained:
    """The nodes of a graph's backward for one way to group its gradients."""

    def __init__(self, backward: Backward, groups: Groups) -> None:
        self.backward, self.groups = backward, groups
        self.positions = {gradient.input: place for place, gradient in enumerate(backward.partition.gradients)}
        self.plans: dict[int, tuple[Route, _Plan]] = {}

    def links(self) -> Links:
        """The nodes of one call."""
        chain = _Chain(self)
        rest = [(functools.partial(chain.run, place), group) for place, group in enumerate(self.groups[1:], 1)]
        return ((chain.begin, self.groups[0]), *rest)

    def plan(self, route: Route, count: int) -> _Plan:
        """How a route goes through the nodes; ``count`` are the values that its graph takes."""
        known = self.plans.get(id(route))
        if known is None:
            known = self.plans[id(route)] = route, self._plan(route, count)
        return known[1]

    def _plan(self, route: Route, count: int) -> _Plan:
        cut = route.graph if isinstance(route.graph, CutGraph) else self._whole(route.graph, route.given, count)
        places = [[route.given[self.positions[index]] for index in group] for group in self.groups]
        handed = tuple(tuple(None if p is None else cut.gradients[p] for p in row) for row in places)
        last: dict[int, tuple[int, bool]] = {}  # the node that needs it last, and whether as a gradient
        for place, (segment, row) in enumerate(zip(cut.segments, handed)):
            last.update(dict.fromkeys(segment.takes if segment is not None else (), (place, False)))
            last.update({slot: (place, True) for slot in row if slot is not None})
        ends: dict[tuple[int, bool], set[int]] = {}
        for slot, end in last.items():
            ends.setdefault(end, set()).add(slot)
        spent, given = (
            tuple(frozenset(ends.get((place, handed_out), ())) for place in range(len(self.groups)))
            for handed_out in (False, True)
        )
        return _Plan(cut.segments, handed, spent, given, frozenset(last))

    def _whole(self, graph: Graph, places: Sequence[int | None], count: int) -> CutGraph:
        """All in the first node."""
        gradients = 1 + max((place for place in places if place is not None), default=-1)
        made = tuple(range(count, count + gradients))
        first = Segment(graph, tuple(range(count)), made)
        return CutGraph((first, *[None] * (len(self.groups) - 1)), made)


class _Chain:
    """The backward of one call. The values between its nodes are here, by slots."""

    def __init__(self, chained: _Chained) -> None:
        self.chained = chained
        self.plan: _Plan | None = None
        self.values: dict[int, torch.Tensor] = {}

    def begin(self, tensors: list[Any], tangents: list[torch.Tensor | None]) -> list[Any]:
        """The first node: takes what is saved and what has arrived, and gives its gradients."""
        route = self.chained.backward.route(tensors, tangents)
        self.plan = self.chained.plan(route, len(tensors))
        read = self.plan.read
        self.values = {slot: _without_history(tensor) for slot, tensor in enumerate(tensors) if slot in read}
        tensors.clear()
        return self.run(0)

    def run(self, place: int, *nothing: Any) -> list[Any]:
        """The node at this place of the chain: its gradients, and none for the next node."""
        plan, values = self.plan, self.values
        assert plan is not None
        try:
            segment = plan.segments[place]
            if segment is not None:
                spent = plan.spent[place]
                taken = [values.pop(slot) if slot in spent else values[slot] for slot in segment.takes]
                values.update(zip(segment.makes, below_autograd(segment.graph, taken)))
            gradients = [None if slot is None else values[slot] for slot in plan.handed[place]]
        except BaseException:
            values.clear()
            raise
        for slot in plan.given[place]:
            del values[slot]
        return gradients if place == len(plan.segments) - 1 else [*gradients, None]


def _without_history(tensor: torch.Tensor | None) -> Any:
    """A saved tensor; a result among them has the chain behind it, which holds this."""
    return tensor if tensor is None or tensor.grad_fn is None else tensor.detach()
