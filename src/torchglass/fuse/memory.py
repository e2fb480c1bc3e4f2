"""The memory plan: where each buffer begins and ends, and which dead buffer's memory it may take over.

``a`` dead after step 3 and ``b`` of the same dtype and bytes born at step 5: ``allocate b in place of a``. An
element-wise kernel that reads ``a`` for the last time writes its result there: ``allocate b over a``. Inputs are never
reused, nor buffers an ATen call may have made views of. ``peak_bytes``: what temporaries hold at most.

Memory is taken over by the step after the one it died at, or given back there: what waits longer is held for nothing
while others allocate, and the allocator hands blocks of that size out again in any case (``csrc/memory.cpp``).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ..records.kernels import Allocate, Free, FusedKernel, Step
from ..records.loops import Access, Buffer, ExternCall, Loop, LoopGraph, Value, View, item_bytes
from ..records.sizes import Size
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


def plan(
    graph: LoopGraph, order: Sequence[FusedKernel | ExternCall], onto: Mapping[str, str] = MappingProxyType({})
) -> tuple[tuple[Step, ...], int]:
    """The steps with allocations and frees between them, and the peak of bytes held by temporaries. ``onto``: results
    that are inputs' memory.
    """
    outputs = {o.buffer if isinstance(o, View) else o.name for o in graph.outputs if isinstance(o, (View, Value))}
    batches = list(runs(order))
    touched = lambda step: (*step.reads, *step.writes, *(onto[name] for name in step.writes if name in onto))
    used = [dict.fromkeys(name for step in batch for name in touched(step)) for batch in batches]
    last_use = {name: n for n, names in enumerate(used) for name in names}
    pinned = outputs | {r for s in order if isinstance(s, ExternCall) and s.aliases for r in (*s.reads, *s.writes)}
    steps: list[Step] = []
    pool: dict[tuple[str, str, Size], list[str]] = {}
    ours: set[str] = set()
    wholes = {_whole(graph, name) for name, buffer in graph.buffers.items() if buffer.inside}
    kept: set[str] = set()  # whose memory lives on under another name
    live = peak = 0
    for n, batch in enumerate(batches):
        if len(batch) == 1 and isinstance(batch[0], FusedKernel):
            dying = {name for name in used[n] if last_use[name] == n and name in ours} - pinned - wholes
            batch = [over := written_over(graph, batch[0], dying)]
            kept.update(read for _, read in over.over)
        for step, part in [(s, p) for s in batch for p in s.writes]:
            name = _whole(graph, part)
            if name not in graph.buffers or name in ours:
                steps += [Allocate(part, inside=name)] if part != name else []
                continue
            if read := onto.get(name) or (isinstance(step, FusedKernel) and dict(step.over).get(name)):
                steps.append(Allocate(name, over=read))
                ours.add(name)
                continue
            buffer = graph.buffers[name]
            live += _bytes(buffer)
            if isinstance(step, FusedKernel) or step.out:
                waiting = pool.get(_kind(buffer))
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
            if name in kept:
                continue
            live -= _bytes(graph.buffers[name])
            if name in ours and name not in pinned:
                pool.setdefault(_kind(graph.buffers[name]), []).append(name)
    return tuple(steps), peak


def _kind(buffer: Buffer) -> tuple[str, str, Size]:
    """What two buffers must have in common for one to take the other's memory."""
    return buffer.device, buffer.dtype, storage_items(buffer)


def _may_wait(device: str, dtype: str, items: Size) -> bool:
    return isinstance(items, int) and items * item_bytes(dtype) < SMALL


def written_over(graph: LoopGraph, kernel: FusedKernel, dying: Container[str]) -> FusedKernel:
    """The kernel with results laid over what it reads for the last time, each point over the number it needs.

    Only where all loops go from point to point: elsewhere a row may be read again after it has been written.
    """
    where = places(kernel)
    if gathers(kernel) or any(len(where[name]) > 1 for loop in kernel.loops for name in loop.writes):
        return kernel
    over: dict[str, str] = dict(kernel.over)
    for written in kernel.writes:
        new = graph.buffers.get(written)
        if new is None or new.role != "temp" or new.inside or written in over:
            continue
        last = [name for name in kernel.reads if name in dying and _fits(graph.buffers[name], new)]
        alike = (name for name in last if where[name] == where[written] and is_read_before(kernel, name, written))
        if read := next((name for name in alike if name not in over.values()), None):
            over[written] = read
    return replace(kernel, over=tuple(over.items()))


def gathers(kernel: FusedKernel) -> bool:
    """Whether a loop makes something of several points, so that what it read may be read again after it."""
    return any(loop.is_reduction or loop.is_scan or loop.is_scatter for loop in kernel.loops)


def places(kernel: FusedKernel) -> dict[str, set[Any]]:
    """Where each buffer is read and written: the dimensions of the loop, and the address as it depends on them."""
    found: dict[str, set[Any]] = {}
    for loop in kernel.loops:
        for a in (*(o.access for o in loop.loads), *(o.access for o in loop.stores)):
            found.setdefault(a.buffer, set()).add(place(loop, a))
    return found


def place(loop: Loop, access: Access) -> Any:
    """Where a loop reads or writes a buffer."""
    return loop.dims, access.strides, access.offset, access.indirect


def is_read_before(kernel: FusedKernel, read: str, written: str) -> bool:
    readers = [n for n, loop in enumerate(kernel.loops) if read in loop.reads]
    return max(readers) <= min(n for n, loop in enumerate(kernel.loops) if written in loop.writes)


def _fits(old: Buffer, new: Buffer) -> bool:
    return _kind(old) == _kind(new)


def _whole(graph: LoopGraph, name: str) -> str:
    """The buffer to allocate for a buffer: what it is a part of, if it is one."""
    while name in graph.buffers and (inside := graph.buffers[name].inside):
        name = inside[0]
    return name


def _bytes(buffer: Buffer) -> int:
    items = storage_items(buffer)
    return items * item_bytes(buffer.dtype) if isinstance(items, int) else 0
