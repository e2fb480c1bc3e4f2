"""The memory plan: where each buffer begins and ends, and which dead buffer's memory it may take over.

``a`` dead after step 3 and ``b`` of the same dtype and bytes born at step 5: ``allocate b reusing a``. Where a kernel
may write over what it reads (``inplace``): ``allocate b in place of a``. Neither inputs are reused nor buffers that an
ATen call may have made views of. ``peak_bytes``: what temporaries hold at most, by the hints of their sizes.

Memory is taken over by the step after the one it died at, or given back there: what waits longer is held for nothing
while others allocate, and the allocator hands blocks of that size out again in any case (``csrc/memory.cpp``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ..records.kernels import Allocate, Free, FusedKernel, Step
from ..records.loops import Buffer, ExternCall, LoopGraph, item_bytes
from ..records.sizes import Size, hint
from ..records.target import Targets
from .groups import output_names
from .horizontal import calls
from .inplace import plan_inplace

Kind: TypeAlias = "tuple[str, str, Size]"
"""Device, dtype and number of elements: memory of one kind may be taken over."""


def plan(
    graph: LoopGraph, order: Sequence[FusedKernel | ExternCall], targets: Targets, updated: Mapping[str, str]
) -> tuple[tuple[Step, ...], int]:
    """The steps with allocations and frees between them, and the peak of bytes held by temporaries. ``updated``:
    results that are inputs' memory.
    """
    work = _Plan(graph, order, targets, updated)
    for n, batch in enumerate(work.batches):
        batch = work.in_place(n, batch)
        for step in batch:
            for name in step.writes:
                work.begin(step, name)
        work.peak = max(work.peak, work.live)
        work.steps += batch
        work.end(n)
    return tuple(work.steps), work.peak


class _Plan:
    """The steps as they come, by batches of kernels in one call: buffers exist before and after all of a batch."""

    def __init__(
        self,
        graph: LoopGraph,
        order: Sequence[FusedKernel | ExternCall],
        targets: Targets,
        updated: Mapping[str, str],
    ) -> None:
        self.graph, self.targets, self.updated = graph, targets, updated
        self.batches = list(calls(order))
        touched = lambda step: (*step.reads, *step.writes, *(updated[name] for name in step.writes if name in updated))
        self.used = [dict.fromkeys(name for step in batch for name in touched(step)) for batch in self.batches]
        self.last_use = {name: n for n, names in enumerate(self.used) for name in names}
        self.outputs = output_names(graph)
        calls_of_views = (s for s in order if isinstance(s, ExternCall) and s.aliases)
        self.pinned = self.outputs | {name for call in calls_of_views for name in (*call.reads, *call.writes)}
        self.wholes = {self.whole(name) for name, buffer in graph.buffers.items() if buffer.alias_of}
        self.steps: list[Step] = []
        self.pool: dict[Kind, list[str]] = {}
        self.ours: set[str] = set()
        self.kept: set[str] = set()  # whose memory lives on under another name
        self.live = self.peak = 0

    def whole(self, name: str) -> str:
        """The buffer to allocate for a buffer: what it is a part of, if it is one."""
        while name in self.graph.buffers and (alias := self.graph.buffers[name].alias_of):
            name = alias[0]
        return name

    def in_place(self, n: int, batch: list[FusedKernel | ExternCall]) -> list[FusedKernel | ExternCall]:
        """A kernel by itself with what it writes over buffers that die there."""
        (step, *others) = batch
        if others or not isinstance(step, FusedKernel):
            return batch
        dying = {name for name in self.used[n] if self.last_use[name] == n and name in self.ours}
        step = plan_inplace(self.graph, step, dying - self.pinned - self.wholes)
        self.kept.update(read for _, read in step.inplace)
        return [step]

    def begin(self, step: FusedKernel | ExternCall, part: str) -> None:
        """Make a buffer that a step writes exist, and what it is a part of."""
        name = self.whole(part)
        if name in self.graph.buffers and name not in self.ours:
            if read := self.updated.get(name) or (isinstance(step, FusedKernel) and dict(step.inplace).get(name)):
                self.steps.append(Allocate(name, inplace=read))
                self.ours.add(name)
                return
            buffer = self.graph.buffers[name]
            self.live += _bytes(buffer)
            if isinstance(step, FusedKernel) or step.out:
                waiting = self.pool.get(_kind(buffer))
                self.steps.append(Allocate(name, waiting.pop() if waiting else None))
                self.ours.add(name)
        if part != name:
            self.steps.append(Allocate(part, alias_of=name))

    def end(self, n: int) -> None:
        """Free what a batch used last, and keep its memory for the next one."""
        self.pool = {kind: names for kind, names in self.pool.items() if self.may_wait(kind)}
        for name in self.used[n]:
            if self.last_use[name] != n or name in self.outputs:
                continue
            self.steps.append(Free(name))
            buffer = self.graph.buffers.get(name)
            if buffer is None or buffer.role != "temp" or buffer.alias_of or name in self.kept:
                continue
            self.live -= _bytes(buffer)
            if name in self.ours and name not in self.pinned:
                self.pool.setdefault(_kind(buffer), []).append(name)

    def may_wait(self, kind: Kind) -> bool:
        """Whether it is little memory."""
        device, dtype, items = kind
        return hint(items) * item_bytes(dtype) < self.targets.of(device).fusion.small_bytes


def _kind(buffer: Buffer) -> Kind:
    return buffer.device, buffer.dtype, buffer.extent


def _bytes(buffer: Buffer) -> int:
    return 0 if buffer.role == "numbers" else hint(buffer.extent) * item_bytes(buffer.dtype)
