"""The code generation stage: a FusedGraph in, the texts of its kernels and its wrapper out."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..records.kernels import FusedGraph, KernelSources, Measurement
from .c import Unit
from .wrapper import WrapperPrinter, is_written_out, sub_graphs


def run(
    fused: FusedGraph, options: Any = None, tried: Mapping[str, tuple[Measurement, ...]] = MappingProxyType({})
) -> KernelSources:
    """C for the kernels and Python for the wrapper; the wrapper loads ``<graph>_kernels.c`` from beside itself.

    ``tried``: what was measured of a kernel's choices, the one to take first.
    """
    check(fused)
    unit = Unit(fused.buffers, options.get("threads") if options is not None else None, tried)
    calls = unit.add(fused.kernels)
    groups = unit.together(fused.kernels)
    wrapper = WrapperPrinter(fused, calls, f"{fused.graph.name}_kernels.c", groups)
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
        if not all(isinstance(d, int) for d in (*buffer.shape, *buffer.strides)):
            raise NotImplementedError(
                f"{buffer.name} has symbolic sizes {list(buffer.shape)}; C is generated for known ones"
            )
    for name in {b for kernel in fused.kernels for b in (*kernel.reads, *kernel.writes)}:
        if fused.buffers[name].device != "cpu":
            raise NotImplementedError(f"{name} is on {fused.buffers[name].device}; C runs on the CPU")
