"""A backward in segments on its way to the compilers: its partition and the groups of its gradients in, sides out.

found = cut_backward(job, partition, groups, buckets)      # None where it cannot be cut
sides = found.sides("backward_2", compiled=True)           # backward_2_segment_0, backward_2_segment_1, ...
found.with_calls([... for side in sides])                  # what the runtime runs, and times for the records
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from .. import autodiff
from ..aten.sizes import bytes_of_elements
from ..inspector import show
from ..process import fallbacks
from ..records.compilation import SideRecord
from ..records.partition import Partition
from ..records.segments import BucketGradients, CutGraph, Groups, Segment, SegmentRecord
from ..runtime.backward import Graph
from ..runtime.graph_calls import GraphCall
from .job import Job
from .side_pipeline import Backward


@dataclass(frozen=True)
class CutBackward:
    """``records``: for people, of each segment."""

    job: Job
    partition: Partition
    cut: CutGraph
    records: tuple[SegmentRecord, ...]

    def written(self, name: str) -> SideRecord:
        """The whole backward as a file for reading, with a comment at each cut."""
        rendered = self.job.own(self.job.rendered(self.cut.whole, "cut", "The backward graph in segments"))
        self.job.folder.write(f"{name}.py", rendered.text, "read")
        return SideRecord(name, rendered.text, rendered.nodes)

    def sides(self, name: str, compiled: bool) -> list[Backward]:
        """A side for each segment."""
        rows = [(n, segment) for n, segment in enumerate(self.cut.segments) if segment is not None]
        return [
            Backward(self.job, self._alone(segment), f"{name}_segment_{n}", compiled, self.records[n])
            for n, segment in rows
        ]

    def with_calls(self, calls: Sequence[GraphCall]) -> CutGraph:
        """What these sides have become, in the place of their graphs."""
        rows = [(segment.graph, n) for n, segment in enumerate(self.cut.segments) if segment is not None]
        timed = {graph: _timed(call, self.records[n]) for (graph, n), call in zip(rows, calls, strict=True)}
        return self.cut.with_graphs(timed.__getitem__)

    def _alone(self, segment: Segment) -> Partition:
        """A segment as a backward of its own."""
        saved = tuple(self.partition.saved[slot] for slot in segment.takes[: segment.saved])
        return replace(self.partition, backward=segment.graph, saved=saved)


def cut_backward(job: Job, partition: Partition, groups: Groups, buckets: Sequence[int | None]) -> CutBackward | None:
    """``partition.backward`` in a segment for each group of gradients. None, and a warning, where cutting fails."""
    gives = tuple(_gradients(partition, group, bucket) for group, bucket in zip(groups, buckets, strict=True))
    known, key = job.shared.cuts, (partition.backward, groups, gives)
    if key not in known:
        titles = [f"segment {place}, up to {show.gradients(what)}" for place, what in enumerate(gives)]
        try:
            known[key] = autodiff.cut(partition, groups, titles)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            told = f"a backward is not cut at the buckets of DistributedDataParallel: {why}"
            fallbacks.say(told, job.origin, f"in {job.folder.path}")
            return None
    cut = known[key]
    return None if cut is None else CutBackward(job, partition, cut, tuple(map(SegmentRecord, gives)))


def _gradients(partition: Partition, group: Sequence[int], bucket: int | None) -> BucketGradients:
    assert partition.backward is not None
    values: Any = [node.meta["val"] for node in partition.backward.graph.find_nodes(op="output")[0].args[0]]
    made = zip(partition.gradients, values, strict=True)
    sizes = {gradient.input: bytes_of_elements(val) for gradient, val in made}
    names = tuple(partition.input_names[index] for index in group)
    return BucketGradients(bucket, sum(sizes.get(index, 0) for index in group), names)


def _timed(graph: GraphCall, record: SegmentRecord) -> Graph:
    """``graph`` with notes of when it ran."""

    def call(tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        begin = time.perf_counter()
        made = graph(tensors)
        record.begin, record.end = begin, time.perf_counter()
        return made

    return call
