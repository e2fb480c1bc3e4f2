"""What is told of a backward that is cut: when each segment's gradients were there, and what ran behind that.

segments(graph)    ->   [SegmentFacts("backward_2_segment_0", gives, begin=0.0, ready=0.0031, behind=0.0052), ...]

Times are those of the last backward that has run. While a bucket is summed over the processes, what is behind runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

from ..records.compilation import GraphRecord, SideRecord
from ..records.segments import BucketGradients
from . import show


class SegmentFacts(NamedTuple):
    """Seconds since the first segment began: when this one did, and when its gradients were ready; ``behind``: how long
    later segments ran from then on. None where no backward has run.
    """

    side: str
    gives: BucketGradients
    begin: float | None = None
    ready: float | None = None
    behind: float | None = None

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """As texts: the side, what it gives, when, and what ran meanwhile."""
        if self.ready is None or self.behind is None:
            return self.side, show.gradients(self.gives), "", ""
        meanwhile = f"{show.milliseconds(self.behind)} of later segments" if self.behind else "nothing"
        return self.side, show.gradients(self.gives), show.milliseconds(self.ready), meanwhile

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return {"side": self.side, **self.gives._asdict(), "begin": self.begin, "ready": self.ready,
                "behind": self.behind}  # fmt: skip


COLUMNS = ("segment", "then there are the gradients of", "ready after", "meanwhile")
"""The titles of ``SegmentFacts.cells``."""


def segments(graph: GraphRecord) -> list[SegmentFacts]:
    """Those of all of its backwards that are cut, in the order in which they run."""
    cut = groupby((side for side in graph.sides if side.segment), lambda side: side.name.rpartition("_segment_")[0])
    return [facts for _, sides in cut for facts in _of_one_backward(list(sides))]


def _of_one_backward(sides: list[SideRecord]) -> Iterator[SegmentFacts]:
    records = [side.segment for side in sides if side.segment is not None]
    first = records[0].begin
    times = [time for record in records for time in (record.begin, record.end)]
    if not first or times != sorted(times):  # not run, or only in part since the backward before
        yield from (SegmentFacts(side.name, record.gives) for side, record in zip(sides, records))
        return
    for place, (side, record) in enumerate(zip(sides, records)):
        behind = sum(later.end - later.begin for later in records[place + 1 :])
        yield SegmentFacts(side.name, record.gives, record.begin - first, record.end - first, behind)
