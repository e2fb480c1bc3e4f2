"""A backward graph cut in segments, between which others may use the gradients that are there.

Values have slots: saved tensors and tangents those of the whole graph's inputs, in order, what segments make the next
ones. Two layers, cut behind the second one's gradients::

    Segment(graph, takes=(1, 2, 3), makes=(4, 5))    # of activation, weight, tangent: w2's gradient, what layer 1 reads
    Segment(graph, takes=(0, 5), makes=(6,))         # w1's gradient
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

Groups = tuple[tuple[int, ...], ...]
"""The inputs whose gradients each segment completes, in the order in which they run."""


class BucketGradients(NamedTuple):
    """What a segment completes: these inputs' gradients in a bucket of DistributedDataParallel, None for those in no
    bucket, and the bytes of all of them.
    """

    bucket: int | None
    bytes: int
    inputs: tuple[str, ...]


@dataclass(eq=False)
class SegmentRecord:
    """A segment, for people: what it gives, and from when to when it ran last, in seconds of ``time.perf_counter``. Of
    kernels on a GPU that is when they were launched. Both are 0 until it has run.
    """

    gives: BucketGradients
    begin: float = 0.0
    end: float = 0.0


@dataclass(frozen=True)
class Segment:
    """``graph`` takes the values of the slots ``takes`` and returns those of ``makes``: an FX graph, or what that was
    compiled to. Of its inputs the first ``saved`` are saved tensors.
    """

    graph: Any
    takes: tuple[int, ...]
    makes: tuple[int, ...]
    saved: int = 0


class CutGraph(NamedTuple):
    """The segment of each group of gradients, None where no more is to be computed; and the slot of each gradient that
    the whole graph returns. ``whole``: that graph in the order of its segments, for people.
    """

    segments: tuple[Segment | None, ...]
    gradients: tuple[int, ...]
    whole: Any = None

    def with_graphs(self, change: Callable[[Any], Any]) -> CutGraph:
        """The same with other graphs, for the runtime."""
        segments = [None if one is None else replace(one, graph=change(one.graph)) for one in self.segments]
        return CutGraph(tuple(segments), self.gradients)
