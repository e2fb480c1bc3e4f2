"""What a compile for a GPU leaves: the report names Triton kernels, the folder's files run alone, edits take effect."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from tests.gpu.compiled import make, needs_gpu

import torchglass as tg

pytestmark = needs_gpu

PROGRAM = """
import torch, torchglass as tg

@tg.compile
def f(x):
    return torch.sin(x) * 3.5 + 1

x = torch.zeros(8, device="cuda", requires_grad=True)
y = f(x)
y.sum().backward()
print(y[0].item(), x.grad[0].item())
"""


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TORCHGLASS_DIR": str(folder)}
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that has run once; its folder is ``glass`` beside it."""
    path = tmp_path_factory.mktemp("gpu") / "program.py"
    path.write_text(PROGRAM)
    done = run(str(path), folder=path.parent / "glass")
    assert done.stdout == "1.0 3.5\n", done.stdout + done.stderr
    return path


@contextmanager
def edited(path: Path, old: str, new: str) -> Iterator[None]:
    """The file with ``new`` for ``old``; afterwards as it was generated."""
    text = path.read_text()
    assert old in text, text
    path.write_text(text.replace(old, new))
    yield
    path.write_text(text)


def test_explain_names_triton_kernels() -> None:
    compiled = tg.compile(lambda x: torch.softmax(x * 2, -1))
    compiled(make(20, 30, grad=True)).square().sum().backward()
    kernels = tg.explain(compiled).kernels()
    assert kernels and {kernel.language for kernel in kernels} == {"triton"}
    assert all("triton" in kernel.source or "tl." in kernel.source for kernel in kernels)
    assert "kernel" in str(tg.explain(compiled))


def test_the_folder_holds_triton_kernels(program: Path) -> None:
    graph = program.parent / "glass/f/entry_0/graph_0"
    for side in ("forward", "backward"):
        assert "triton" in (graph / f"{side}_kernels.py").read_text()
        assert (graph / f"{side}_wrapper.py").exists()
        assert not (graph / f"{side}_kernels.c").exists()


@pytest.mark.parametrize("side", ["forward", "backward"])
def test_a_wrapper_runs_alone(program: Path, side: str) -> None:
    wrapper = program.parent / f"glass/f/entry_0/graph_0/{side}_wrapper.py"
    done = run(str(wrapper), folder=program.parent / "other")
    assert done.returncode == 0 and "result 0: torch.float32 [8]" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("side", ["forward", "backward"])
def test_an_edited_kernel_runs(program: Path, side: str) -> None:
    with edited(program.parent / f"glass/f/entry_0/graph_0/{side}_kernels.py", "3.5", "4.5"):
        done = run(str(program), folder=program.parent / "glass")
    want = "1.0 3.5\n" if side == "forward" else "1.0 4.5\n"  # sin(0) is 0
    assert done.stdout == want, done.stdout + done.stderr
    assert f"{side}_kernels.py: using the edited file" in done.stderr


def test_an_edited_kernel_that_cannot_be_compiled_is_reported(program: Path) -> None:
    with edited(program.parent / "glass/f/entry_0/graph_0/forward_kernels.py", "3.5", "(3.5 + nonsense)"):
        done = run(str(program), folder=program.parent / "glass")
    assert done.stdout == "1.0 3.5\n", done.stdout + done.stderr
    assert "forward_kernels.py" in done.stderr and "nonsense" in done.stderr, done.stderr


@pytest.mark.parametrize("side", ["forward", "backward"])
def test_a_kernels_file_runs_alone(program: Path, side: str) -> None:
    """It is checked, and timed; an edit that changes results is wrong."""
    kernels = program.parent / f"glass/f/entry_0/graph_0/{side}_kernels.py"
    done = run(str(kernels), folder=program.parent / "other")
    assert done.returncode == 0 and " right " in done.stdout, done.stdout + done.stderr
    for part in ("where a copy moves", " us ", " GB/s ", "%", " registers", " bytes spilled"):
        assert part in done.stdout, done.stdout
    with edited(kernels, "3.5", "4.5"):
        done = run(str(kernels), "kernel_0", folder=program.parent / "other")
    assert done.returncode == 1 and " WRONG " in done.stdout, done.stdout + done.stderr


def test_explain_tells_what_a_kernel_takes() -> None:
    compiled = tg.compile(lambda x: torch.softmax(x * 2, -1))
    compiled(make(200, 300))
    report = tg.explain(compiled)
    (kernel,) = report.to_dict()["entries"][0]["graphs"][0]["kernels"]
    assert kernel["bytes"] == 2 * 200 * 300 * 4 and kernel["registers"] > 0 and kernel["spilled"] == 0
    properties = torch.cuda.get_device_properties(0)
    assert (kernel["floor"] > 0) == hasattr(properties, "memory_clock_rate")
    assert "registers" in str(report) and "spills" in str(report)
