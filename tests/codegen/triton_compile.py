"""Compiles printed Triton kernels for a GPU that need not be here: Triton brings ptxas with it.

    with triton_here(tmp_path): compiled(scheduled, sources, tmp_path)   ->   {"kernel_0": CompiledKernel(...)}

What Triton refuses (types, shapes of blocks, functions that it lacks) and what ptxas refuses is raised.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from torchglass.codegen.triton import POINTERS
from torchglass.records.kernels import KernelSources
from torchglass.records.schedule import GpuMapping, Schedule, ScheduledGraph


def compiled(scheduled: ScheduledGraph, sources: KernelSources, folder: Path, aligned: int = 1) -> dict[str, Any]:
    """Every kernel of a graph for ``sm_90``, by name; ``asm["ptx"]`` and ``asm["cubin"]`` are its texts.

    ``aligned``: bytes that divide all pointers, as they do those of PyTorch's own memory by 16.
    """
    path = folder / f"{scheduled.fused.graph.name}_kernels.py"
    path.write_text(sources.texts["triton"])
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {s.name: _compiled(getattr(module, s.name), s, scheduled, aligned) for s in scheduled.schedules}


def _compiled(function: Any, schedule: Schedule, scheduled: ScheduledGraph, aligned: int) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    mapping: GpuMapping = schedule.mapping
    types = [f"*{POINTERS[scheduled.buffers[b].dtype]}" for b in schedule.pointers]
    types += [f"i{mapping.index_bits}"] * len(schedule.symbols)
    types += [POINTERS[dtype] for dtype in schedule.scalars.values()] + ["constexpr"] * len(mapping.axes)
    constants = {axis.constant: axis.block for axis in mapping.axes}
    attributes = {(k,): [["tt.divisibility", aligned]] for k in range(len(schedule.pointers)) if aligned > 1}
    source = ASTSource(function, dict(zip(function.arg_names, types, strict=True)), constants, attributes)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": mapping.warps})
