"""The code generation stage: a ScheduledGraph in, the texts of its kernels and its wrapper out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ..records.kernels import FusedGraph, FusedKernel, KernelSources, Measurement, Step, device_of
from ..records.schedule import KernelCall, ScheduledGraph
from ..records.target import Cpu, Gpu, Target, Targets
from . import c, launch_plan, triton, wrapper
from .printed import Printed

PRINTERS: dict[type[Target], Callable[[ScheduledGraph, Any, Mapping[str, tuple[Measurement, ...]]], Printed]] = {
    Cpu: c.run,
    Gpu: triton.run,
}
"""What prints the kernels of a kind of target."""


def run(
    scheduled: ScheduledGraph, targets: Targets, tried: Mapping[str, tuple[Measurement, ...]] = MappingProxyType({})
) -> KernelSources:
    """The kernels, each in the language of its target, and one wrapper, which loads them from beside itself.

    ``tried``: what was measured of a kernel's choices, the one to take first.
    """
    parts = by_target(scheduled, targets) or {targets.cpu: scheduled}
    printed = [PRINTERS[type(target)](part, target, tried) for target, part in parts.items()]
    plan = launch_plan.build(scheduled.fused, printed, targets)
    texts = {one.language: one.text for one in printed}
    return KernelSources(texts, wrapper.text(plan), tuple(k for one in printed for k in one.kernels), plan)


def by_target(scheduled: ScheduledGraph, targets: Targets) -> dict[Target, ScheduledGraph]:
    """The graph's kernels of each target that runs some, as a schedule of their own."""
    fused = scheduled.fused
    target_of = {kernel.name: targets.of(device_of(kernel, fused.buffers)) for kernel in fused.kernels}
    found = dict.fromkeys(target_of.values())
    if len(found) == 1:
        return dict.fromkeys(found, scheduled)
    return {
        target: _part(scheduled, frozenset(name for name, runs_on in target_of.items() if runs_on == target))
        for target in found
    }


def _part(scheduled: ScheduledGraph, names: frozenset[str]) -> ScheduledGraph:
    """The kernels of these names, and their schedules."""
    calls = {name: call for name, call in scheduled.calls.items() if name in names}
    places = list(dict.fromkeys(call.schedule for call in calls.values()))
    renumbered = {name: KernelCall(places.index(call.schedule), call.buffers) for name, call in calls.items()}
    return ScheduledGraph(_kernels(scheduled.fused, names), tuple(scheduled.schedules[n] for n in places), renumbered)


def _kernels(fused: FusedGraph, names: frozenset[str]) -> FusedGraph:
    """The graph with kernels of these names only. One that ran in one call with another is called alone."""
    steps: list[Step] = []
    before = False
    for step in fused.steps:
        if isinstance(step, FusedKernel):
            if step.name in names:
                steps.append(step if before else replace(step, horizontal=False))
            before = step.name in names
        else:
            steps.append(step)
    return replace(fused, steps=tuple(steps))
