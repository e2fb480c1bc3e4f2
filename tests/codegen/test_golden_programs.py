"""What every stage makes of a dozen programs, as reviewed: from guards to C for a CPU and Triton for a GPU.

Targets are passed, so the texts are the same on every machine. They are PyTorch 2.13's and Python 3.11's: other
versions capture and decompose otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.codegen.golden_programs import PROGRAMS, Program

import torchglass as tg
from torchglass import autodiff, codegen, fuse, lower, schedule
from torchglass.options import CompileOptions
from torchglass.records.target import Cpu, Gpu, Targets

ROOT = Path(__file__).parents[2]
TARGETS = {"c": Targets(Cpu(vector_bits=512)), "triton": Targets(cpu=Gpu(capability=(9, 0)))}

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11) or not torch.__version__.startswith("2.13"), reason="the texts are of 2.13 and 3.11"
)


def arguments(program: Program) -> list[torch.Tensor]:
    torch.manual_seed(0)
    made = program.inputs()
    return [x.requires_grad_() if k in program.trains else x for k, x in enumerate(made)]


def partition(program: Program, args: list[torch.Tensor]) -> Any:
    """The program's one graph, captured and differentiated."""
    graphs: list[Any] = []

    def keep(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        graphs.append((gm, inputs))
        return gm.forward

    with torch.set_grad_enabled(bool(program.trains)):
        tg.compile(program.fn, backend=keep, fullgraph=True)(*args)
    ((gm, inputs),) = graphs
    trace = autodiff.trace_training if program.trains else autodiff.trace_inference
    return trace(gm, inputs, CompileOptions.make())


@pytest.mark.parametrize("name", PROGRAMS)
def test_captured(name: str, golden: Callable[[str, str], None], tmp_path: Path) -> None:
    """Guards, the entry's code, and the graphs that autodiff makes."""
    program = PROGRAMS[name]
    args = arguments(program)
    with tg.prepare_debug(tmp_path), torch.set_grad_enabled(bool(program.trains)):
        result = tg.compile(program.fn, backend="aot_eager", fullgraph=True)(*args)
        if program.trains:
            result.sum().backward()
    for file in ("guards.py", "transformed.py", "joint.py", "forward.py", "backward.py"):
        for path in tmp_path.rglob(file):
            golden(plain(path.read_text()), path.stem + ".txt")


@pytest.mark.parametrize("name", PROGRAMS)
def test_generated(name: str, golden: Callable[[str, str], None]) -> None:
    """Loops, and for each target kernels, schedules and source."""
    program = PROGRAMS[name]
    made = partition(program, arguments(program))
    for side, graph in (("forward", made.forward), ("backward", made.backward)):
        if graph is None:
            continue
        for language, targets in TARGETS.items():
            loops = lower.run(graph, targets=targets)
            fused = fuse.run(loops, targets)
            scheduled = schedule.run(fused, targets)
            golden(plain(str(loops)), f"{side}.{language}.loops")
            golden(plain(str(fused)), f"{side}.{language}.fused")
            golden(plain(str(scheduled)), f"{side}.{language}.schedule")
            golden(plain(codegen.run(scheduled, targets).texts[language]), f"{side}.{language}")


def plain(text: str) -> str:
    """A text without where this checkout lies."""
    return text.replace(f"{ROOT}/", "")
