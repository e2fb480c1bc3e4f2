"""Results that take the memory of what they are made of: of dead buffers, and of inputs they would be copied to.

    kernel mul ..., mul in place of p

``plan_inplace``: a kernel that goes from point to point writes its result over what it reads for the last time.
``update_inputs``: for ``p.mul_(0.9)`` the result is the input's memory (``LoopGraph.updates``), and the copy after the
graph is none; only where no step after it reads the old numbers or can still fail: a call that fails has written to no
input.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

from ..records.kernels import FusedKernel
from ..records.loops import Access, Buffer, Compute, ExternCall, Loop, LoopGraph
from ..records.sizes import product
from .groups import output_names

Order = Sequence[FusedKernel | ExternCall]


def update_inputs(graph: LoopGraph, order: Order) -> tuple[list[FusedKernel | ExternCall], dict[str, str]]:
    """The order with results laid over inputs, and for each such result the input."""
    wanted = dict(graph.updates)
    if not wanted:
        return list(order), {}
    readers: dict[str, list[int]] = {}
    for n, step in enumerate(order):
        for name in step.reads:
            readers.setdefault(name, []).append(n)
    shown = output_names(graph)
    last_failure = max((n for n, step in enumerate(order) if _may_fail(step)), default=-1)
    begins = _begins(order)
    out: list[FusedKernel | ExternCall] = []
    updated: dict[str, str] = {}
    for n, step in enumerate(order):
        if isinstance(step, FusedKernel) and n > last_failure:
            inplace: list[tuple[str, str]] = []
            for name in step.writes:
                old = wanted.get(name)
                if old is None or old in shown or (name in graph.buffers and not _alike(graph, name, old)):
                    continue
                read = readers.get(old, [])
                # kernels in one call may run at the same time
                if any(k >= begins[n] and k != n for k in read):
                    continue
                if n in read:
                    if not _in_its_place(step, name, old):
                        continue
                    inplace.append((name, old))
                updated[name] = old
            step = replace(step, inplace=(*step.inplace, *inplace)) if inplace else step
        out.append(step)
    return out, updated


def _begins(order: Order) -> list[int]:
    """For each step the first one that runs in the same call."""
    begins: list[int] = []
    for n, step in enumerate(order):
        begins.append(begins[-1] if n and isinstance(step, FusedKernel) and step.horizontal else n)
    return begins


def _may_fail(step: FusedKernel | ExternCall) -> bool:
    if isinstance(step, ExternCall):
        return True
    return any(isinstance(op, Compute) and op.op == "bound" for loop in step.loops for op in loop.body)


def _alike(graph: LoopGraph, new: str, old: str) -> bool:
    one, other = graph.buffers[new], graph.buffers[old]
    layout = lambda b: (b.dtype, b.device, b.shape, b.strides)
    return one.role == "temp" and one.alias_of is None and layout(one) == layout(other)


def _in_its_place(kernel: FusedKernel, new: str, old: str) -> bool:
    """Whether each point of ``new`` is made of the same point of ``old`` and no other's, once."""
    if _gathers(kernel) or not _is_read_before(kernel, old, new):
        return False
    stores = {_address(loop, s.access) for loop in kernel.loops for s in loop.stores if s.access.buffer == new}
    points = {product(loop.dims) for loop in kernel.loops if new in loop.writes}
    # single numbers are made before the points, where there are no rows that might each make them
    once = points == {product(kernel.dims)} or (points == {1} and kernel.rows == 1)
    return once and len(stores) == 1 and stores == _addresses(kernel)[old]


def plan_inplace(graph: LoopGraph, kernel: FusedKernel, dying: Container[str]) -> FusedKernel:
    """The kernel with results laid over what it reads for the last time, each point over the number it needs.

    Only where all loops go from point to point: elsewhere a row may be read again after it has been written.
    """
    where = _addresses(kernel)
    if _gathers(kernel) or any(len(where[name]) > 1 for loop in kernel.loops for name in loop.writes):
        return kernel
    inplace: dict[str, str] = dict(kernel.inplace)
    for written in kernel.writes:
        new = graph.buffers.get(written)
        if new is None or new.role != "temp" or new.alias_of or written in inplace:
            continue
        last = [name for name in kernel.reads if name in dying and _fits(graph.buffers[name], new)]
        alike = (name for name in last if where[name] == where[written] and _is_read_before(kernel, name, written))
        if read := next((name for name in alike if name not in inplace.values()), None):
            inplace[written] = read
    return replace(kernel, inplace=tuple(inplace.items()))


def _fits(old: Buffer, new: Buffer) -> bool:
    return (old.dtype, old.device, old.extent) == (new.dtype, new.device, new.extent)


def _gathers(kernel: FusedKernel) -> bool:
    """Whether a loop makes something of several points, so that what it read may be read again after it."""
    return any(loop.is_reduction or loop.is_scan or loop.is_scatter for loop in kernel.loops)


def _addresses(kernel: FusedKernel) -> dict[str, set[Any]]:
    """Where each buffer is read and written."""
    found: dict[str, set[Any]] = {}
    for loop in kernel.loops:
        for a in (*(o.access for o in loop.loads), *(o.access for o in loop.stores)):
            found.setdefault(a.buffer, set()).add(_address(loop, a))
    return found


def _address(loop: Loop, access: Access) -> Any:
    """The dimensions of the loop, and the address as it depends on them."""
    return loop.dims, access.strides, access.offset, access.indirect


def _is_read_before(kernel: FusedKernel, read: str, written: str) -> bool:
    readers = [n for n, loop in enumerate(kernel.loops) if read in loop.reads]
    return max(readers) <= min(n for n, loop in enumerate(kernel.loops) if written in loop.writes)
