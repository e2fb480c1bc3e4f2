"""The scheduling stage: a FusedGraph in, a ScheduledGraph out: each different kernel once, and how steps call it."""

from __future__ import annotations

from collections.abc import Callable

from ..process import interrupts
from ..records.equal_kernels import canonical
from ..records.kernels import FusedGraph, FusedKernel, device_of
from ..records.schedule import KernelCall, Schedule, ScheduledGraph
from ..records.target import Cpu, Gpu, Target, Targets
from . import cpu, gpu

SCHEDULERS: dict[type[Target], Callable[..., Schedule]] = {Cpu: cpu.scheduled, Gpu: gpu.scheduled}


def run(fused: FusedGraph, targets: Targets) -> ScheduledGraph:
    """Schedule every different kernel. Raises NotImplementedError for a device without a scheduler."""
    known: dict[tuple[object, str], tuple[int, tuple[int, ...]]] = {}
    schedules: list[Schedule] = []
    calls: dict[str, KernelCall] = {}
    for kernel in fused.kernels:
        interrupts.check()
        content, order = canonical(kernel, fused.buffers)
        key = content, device_of(kernel, fused.buffers)
        found = known.get(key)
        if found is None:
            one = _scheduled(f"kernel_{len(schedules)}", kernel, fused, targets)
            found = known[key] = len(schedules), tuple(order.index(b) for b in one.arguments)
            schedules.append(one)
        place, positions = found
        calls[kernel.name] = KernelCall(place, tuple(order[k] for k in positions))
    return ScheduledGraph(fused, tuple(schedules), calls)


def _scheduled(name: str, kernel: FusedKernel, fused: FusedGraph, targets: Targets) -> Schedule:
    target = targets.of(device_of(kernel, fused.buffers))
    return SCHEDULERS[type(target)](name, kernel, fused.buffers, target, fused.graph.elements)
