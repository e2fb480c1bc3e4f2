"""The memory plan: where each buffer begins and ends, and which dead buffer's memory it may take over.

``a`` dead after step 3 and ``b`` of the same dtype and bytes born at step 5: ``allocate b in place of a``. Inputs are
never reused, nor buffers an ATen call may have made views of. ``peak_bytes``: what temporaries hold at most.

Memory is taken over by the step after the one it died at, or given back there: what waits longer is held for nothing
while others allocate, and the allocator hands blocks of that size out again in any case (``csrc/memory.cpp``).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..records.kernels import Allocate, Free, FusedKernel, Step
from ..records.loops import Buffer, ExternCall, LoopGraph, Size, Value, View, item_bytes
from .beside import runs

SMALL = 64 << 10  # bytes below which memory may wait for a taker: it matters less than a call that allocates


def storage_items(buffer: Buffer) -> Size:
    """Elements from the first to the last address of a buffer."""
    last: Size = 1
    for size, stride in zip(buffer.shape, buffer.strides):
        if size == 0:
            return 0
        last = last + (size - 1) * stride
    return last


def plan(graph: LoopGraph, order: Sequence[FusedKernel | ExternCall]) -> tuple[tuple[Step, ...], int]:
    """The steps with allocations and frees between them, and the peak of bytes held by temporaries."""
    outputs = {o.buffer if isinstance(o, View) else o.name for o in graph.outputs if isinstance(o, (View, Value))}
    batches = list(runs(order))
    used = [dict.fromkeys(name for step in batch for name in (*step.reads, *step.writes)) for batch in batches]
    last_use = {name: n for n, names in enumerate(used) for name in names}
    pinned = outputs | {r for s in order if isinstance(s, ExternCall) and s.aliases for r in (*s.reads, *s.writes)}
    steps: list[Step] = []
    pool: dict[tuple[str, Size], list[str]] = {}
    ours: set[str] = set()
    live = peak = 0
    for n, batch in enumerate(batches):
        for step, part in [(s, p) for s in batch for p in s.writes]:
            name = _whole(graph, part)
            if name not in graph.buffers or name in ours:
                steps += [Allocate(part, inside=name)] if part != name else []
                continue
            buffer = graph.buffers[name]
            live += _bytes(buffer)
            if isinstance(step, FusedKernel) or step.out:
                waiting = pool.get((buffer.dtype, storage_items(buffer)))
                steps.append(Allocate(name, waiting.pop() if waiting else None))
                ours.add(name)
            if part != name:
                steps.append(Allocate(part, inside=name))
        peak = max(peak, live)
        steps += batch
        pool = {kind: names for kind, names in pool.items() if _may_wait(*kind)}
        for name in used[n]:
            if last_use[name] != n or name in outputs:
                continue
            steps.append(Free(name))
            if name not in graph.buffers or graph.buffers[name].role != "temp" or graph.buffers[name].inside:
                continue
            live -= _bytes(graph.buffers[name])
            if name in ours and name not in pinned:
                key = (graph.buffers[name].dtype, storage_items(graph.buffers[name]))
                pool.setdefault(key, []).append(name)
    return tuple(steps), peak


def _may_wait(dtype: str, items: Size) -> bool:
    return isinstance(items, int) and items * item_bytes(dtype) < SMALL


def _whole(graph: LoopGraph, name: str) -> str:
    """The buffer to allocate for a buffer: what it is a part of, if it is one."""
    while name in graph.buffers and (inside := graph.buffers[name].inside):
        name = inside[0]
    return name


def _bytes(buffer: Buffer) -> int:
    items = storage_items(buffer)
    return items * item_bytes(buffer.dtype) if isinstance(items, int) else 0
