"""The code generation stage: a ScheduledGraph in, the texts of its kernels and its wrapper out."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..records.kernels import FusedGraph, KernelSources, Measurement
from ..records.schedule import ScheduledGraph
from ..records.sizes import all_known
from ..records.target import Cpu, Gpu, Targets
from . import triton
from .c import Unit
from .wrapper import WrapperPrinter, is_written_out, sub_graphs


def run(
    scheduled: ScheduledGraph, targets: Targets, tried: Mapping[str, tuple[Measurement, ...]] = MappingProxyType({})
) -> KernelSources:
    """The kernels in the language of their target, and Python for the wrapper, which loads them from beside itself.

    ``tried``: what was measured of a kernel's choices, the one to take first.
    """
    devices = {buffer.device for buffer in scheduled.buffers.values()} or {"cpu"}
    if any(isinstance(targets.of(device), Gpu) for device in devices):
        return triton.run(scheduled)
    target = targets.cpu
    assert isinstance(target, Cpu)
    return _in_c(scheduled, target, tried)


def _in_c(scheduled: ScheduledGraph, target: Cpu, tried: Mapping[str, tuple[Measurement, ...]]) -> KernelSources:
    fused = scheduled.fused
    check(fused)
    unit = Unit(scheduled, target, tried)
    wrapper = WrapperPrinter(fused, unit.calls, f"{fused.graph.name}_kernels.c", unit.together(fused.kernels))
    source = unit.text(f"{fused.graph.name} graph")
    wrapper.checks = "tg_failed" in source  # kernels over no elements check nothing
    graphs = sub_graphs(fused.graph)
    tensors = {name: value for name, value in fused.graph.constants.items() if name not in graphs}
    large = {name: value for name, value in tensors.items() if not is_written_out(value)}
    text = wrapper.text()  # which meets the generators
    handed = large | wrapper.generators
    return KernelSources(source, "c", text, tuple(unit.kernels), handed)


def check(fused: FusedGraph) -> None:
    """Refuse what C is not generated for: unknown sizes, other devices."""
    for buffer in fused.buffers.values():
        if not all_known((*buffer.shape, *buffer.strides)):
            raise NotImplementedError(
                f"{buffer.name} has symbolic sizes {list(buffer.shape)}; C is generated for known ones"
            )
    for name in {b for kernel in fused.kernels for b in (*kernel.reads, *kernel.writes)}:
        if fused.buffers[name].device != "cpu":
            raise NotImplementedError(f"{name} is on {fused.buffers[name].device}; C runs on the CPU")
