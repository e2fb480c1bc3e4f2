"""One line for two targets: the loops of the measured models' forwards print as C and as Triton, which Triton compiles.

They are captured, traced and lowered once; what comes after is told the target alone.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.models import WORKLOADS

import torchglass as tg
from torchglass import autodiff, codegen, fuse, lower, schedule
from torchglass.records.kernels import KernelSources
from torchglass.records.loops import LoopGraph
from torchglass.records.schedule import ScheduledGraph
from torchglass.records.target import Cpu, Gpu, Targets

CPU, GPU = Targets(Cpu(vector_bits=512)), Targets(cpu=Gpu())


@cache
def forward(name: str) -> LoopGraph:
    """The loops of a model's forward, with one of its layers."""
    graphs: list[LoopGraph] = []

    def keep(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(lower.run(autodiff.trace_inference(gm, inputs).forward, CPU))
        return gm

    model, inputs = WORKLOADS[name].build(layers=1)
    with torch.no_grad():
        tg.compile(model.eval(), backend=keep, fullgraph=True)(**inputs)
    (loops,) = graphs
    return loops


def printed(loops: LoopGraph, targets: Targets) -> tuple[ScheduledGraph, KernelSources]:
    scheduled = schedule.run(fuse.run(loops, targets), targets)
    return scheduled, codegen.run(scheduled, targets)


@pytest.mark.parametrize("name", WORKLOADS)
def test_forwards_print_for_both_targets(name: str) -> None:
    for targets, language in ((CPU, "c"), (GPU, "triton")):
        scheduled, sources = printed(forward(name), targets)
        assert set(sources.texts) == {language} and len(sources.kernels) == len(scheduled.schedules) > 0
        assert all(kernel.source in sources.texts[language] for kernel in sources.kernels)
        assert all(f"{s.name}: " in str(scheduled) for s in scheduled.schedules)


@pytest.mark.parametrize("name", WORKLOADS)
def test_triton_compiles_forwards(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from tests.codegen.triton_compile import compiled

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    scheduled, sources = printed(forward(name), GPU)
    assert all(kernel.asm["cubin"] for kernel in compiled(scheduled, sources, tmp_path).values())
