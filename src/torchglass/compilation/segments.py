"""A backward in segments on its way to the compilers: its partition and the groups of its gradients in, sides out.

found = cut_backward(job, partition, groups, buckets)      # None where it cannot be cut
sides = found.sides("backward_2", compiled=True)           # backward_2_segment_0, backward_2_segment_1, ...
found.with_calls([... for side in sides])                  # what the runtime runs
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import autodiff
from ..aten.sizes import hint_of
from ..inspector import show
from ..process import fallbacks
from ..records.compilation import SideRecord
from ..records.partition import Partition
from ..records.segments import CutGraph, Groups, Segment
from ..runtime.graph_calls import GraphCall
from .job import Job
from .side_pipeline import Backward


@dataclass(frozen=True)
class CutBackward:
    """``gives``: for each segment what waits for its gradients."""

    job: Job
    partition: Partition
    cut: CutGraph
    gives: tuple[str, ...]

    def written(self, name: str) -> SideRecord:
        """The whole backward as a file for reading, with a comment at each cut."""
        rendered = self.job.own(self.job.rendered(self.cut.whole, "cut", "The backward graph in segments"))
        self.job.folder.write(f"{name}.py", rendered.text, "read")
        return SideRecord(name, rendered.text, rendered.nodes)

    def sides(self, name: str, compiled: bool) -> list[Backward]:
        """A side for each segment."""
        rows = [(n, segment) for n, segment in enumerate(self.cut.segments) if segment is not None]
        return [
            Backward(self.job, self._alone(segment), f"{name}_segment_{n}", compiled, self.gives[n])
            for n, segment in rows
        ]

    def with_calls(self, calls: Sequence[GraphCall]) -> CutGraph:
        """What these sides have become, in the place of their graphs."""
        graphs = [segment.graph for segment in self.cut.segments if segment is not None]
        return self.cut.with_graphs(dict(zip(graphs, calls, strict=True)).__getitem__)

    def _alone(self, segment: Segment) -> Partition:
        """A segment as a backward of its own."""
        saved = tuple(self.partition.saved[slot] for slot in segment.takes[: segment.saved])
        return replace(self.partition, backward=segment.graph, saved=saved)


def cut_backward(job: Job, partition: Partition, groups: Groups, buckets: Sequence[int | None]) -> CutBackward | None:
    """``partition.backward`` in a segment for each group of gradients. None, and a warning, where cutting fails."""
    gives = tuple(_told(partition, group, bucket) for group, bucket in zip(groups, buckets, strict=True))
    known, key = job.shared.cuts, (partition.backward, groups, gives)
    if key not in known:
        titles = [f"segment {place}, up to {what}" for place, what in enumerate(gives)]
        try:
            known[key] = autodiff.cut(partition, groups, titles)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            told = f"a backward is not cut at the buckets of DistributedDataParallel: {why}"
            fallbacks.say(told, job.origin, f"in {job.folder.path}")
            return None
    cut = known[key]
    return None if cut is None else CutBackward(job, partition, cut, gives)


def _told(partition: Partition, group: Sequence[int], bucket: int | None) -> str:
    """What waits for the gradients of a group, how large they are, and whose they are."""
    assert partition.backward is not None
    values: Any = [node.meta["val"] for node in partition.backward.graph.find_nodes(op="output")[0].args[0]]
    made = zip(partition.gradients, values, strict=True)
    sizes = {gradient.input: hint_of(val.numel()) * val.element_size() for gradient, val in made}
    names = [partition.input_names[index] for index in group]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    whose = "inputs in no bucket" if bucket is None else f"bucket {bucket} of DistributedDataParallel"
    return f"{whose} ({show.size(sum(sizes.get(index, 0) for index in group))}: {', '.join(names[:3])}{more})"
