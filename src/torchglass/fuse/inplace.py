"""Results that the caller would copy into inputs, written there by the kernels that make them.

``p.mul_(0.9)``: the result is the input's memory (``LoopGraph.updates``), and the copy after the graph is none::

    kernel mul ..., mul in place of p

Only where no step after it reads the old numbers or can still fail: a call that fails has written to no input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..records.kernels import FusedKernel
from ..records.loops import Compute, ExternCall, LoopGraph, Value, View
from ..records.sizes import product
from .memory import gathers, is_read_before, place, places

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
    shown = {o.buffer if isinstance(o, View) else o.name for o in graph.outputs if isinstance(o, (View, Value))}
    last_failure = max((n for n, step in enumerate(order) if _may_fail(step)), default=-1)
    begins = _begins(order)
    out: list[FusedKernel | ExternCall] = []
    onto: dict[str, str] = {}
    for n, step in enumerate(order):
        if isinstance(step, FusedKernel) and n > last_failure:
            over: list[tuple[str, str]] = []
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
                    over.append((name, old))
                onto[name] = old
            step = replace(step, inplace=(*step.inplace, *over)) if over else step
        out.append(step)
    return out, onto


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
    if gathers(kernel) or not is_read_before(kernel, old, new):
        return False
    stores = {place(loop, s.access) for loop in kernel.loops for s in loop.stores if s.access.buffer == new}
    points = {product(loop.dims) for loop in kernel.loops if new in loop.writes}
    # single numbers are made before the points, where there are no rows that might each make them
    once = points == {product(kernel.dims)} or (points == {1} and kernel.rows == 1)
    return once and len(stores) == 1 and stores == places(kernel)[old]
