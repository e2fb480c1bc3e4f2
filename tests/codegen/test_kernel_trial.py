"""``python forward_kernels.py`` tells a kernel that computes what its loops say from one that does not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.codegen import triton_on_torch
from tests.codegen.test_graphs import GRAPHS, with_gradients
from tests.codegen.test_triton_text import GPU, fused, make

from torchglass import codegen, schedule
from torchglass.runtime import kernel_trial


def written(fn: Callable[..., Any], args: Sequence[torch.Tensor], folder: Path) -> Path:
    """The kernels file of a function, and what lies beside it."""
    scheduled = schedule.run(fused(fn, args), GPU)
    sources = codegen.run(scheduled, GPU)
    (folder / "forward.fused").write_text(str(scheduled.fused))
    (folder / "forward.launch").write_text(str(sources.plan))
    path = folder / "forward_kernels.py"
    path.write_text(sources.texts["triton"])
    return path


def edit(path: Path, old: str, new: str) -> None:
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What the file says of its kernels, which the stand-in for Triton runs."""

    def run(path: Path, *arguments: str) -> str:
        triton_on_torch.install(monkeypatch)  # not while tracing
        kernel_trial.main(str(path), arguments)
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("name", GRAPHS)
def test_kernels_are_right(name: str, tmp_path: Path, tried: Callable[..., str]) -> None:
    fn, args = GRAPHS[name]
    said = tried(written(with_gradients(fn), args, tmp_path))
    assert " right" in said and "WRONG" not in said and "not tried" not in said, said


EDITS = {
    "a number": ("t0 * 2.0", "t0 * 2.01"),
    "a mask": ("i0 < 100", "i0 < 99"),
    "a function": ("tl.sqrt_rn(", "tl.abs("),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_that_changes_results_is_wrong(
    name: str, tmp_path: Path, tried: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(lambda x: (x * 2).sqrt() + x, [make(100)], tmp_path)
    tried(path)
    edit(path, *EDITS[name])
    with pytest.raises(SystemExit) as ended:
        tried(path)
    assert ended.value.code == 1 and " WRONG" in capsys.readouterr().out


def test_an_edit_that_does_not_is_right(tmp_path: Path, tried: Callable[..., str]) -> None:
    path = written(lambda x: torch.softmax(x, -1), [make(64, 100)], tmp_path)
    edit(path, '"XBLOCK": 1', '"XBLOCK": 4')
    edit(path, "t3 * t5", "tl.div_rn(t3, r4)")
    assert " right" in tried(path)


def test_indices_lie_within(tmp_path: Path, tried: Callable[..., str]) -> None:
    """The table has three rows: a kernel ends with larger indices."""
    path = written(lambda w, i: F.embedding(i, w) * 2, [make(3, 8), torch.zeros(20, dtype=torch.int64)], tmp_path)
    assert " right" in tried(path)


def test_arguments(tmp_path: Path, tried: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(with_gradients(GRAPHS["loss"][0]), GRAPHS["loss"][1], tmp_path)
    assert [line.split()[0] for line in tried(path, "kernel_1").splitlines()[1:]] == ["kernel_1"]
    with pytest.raises(SystemExit, match="has no kernel_9, but kernel_0, kernel_1"):
        tried(path, "kernel_9")
    monkeypatch.setattr(kernel_trial, "MOST_PROGRAMS", 0)
    assert "programs take the interpreter long; name the kernel" in tried(path)
    assert " right" in tried(path, "kernel_1")
    (tmp_path / "forward.launch").unlink()
    with pytest.raises(SystemExit, match=r"forward\.launch"):
        tried(path)


def test_sizes_that_a_graph_leaves_open(tmp_path: Path) -> None:
    text = "  x: float32[s0, 4] strides [4, 1] (input)\n  y: float32[s0, 4] strides [4, 1] (temp)\n"
    text += "  kernel y rows [s0, 4] inner []:\n      loop y over [s0, 4]:\n"
    text += "          t0 = load x[4*i0 + i1] : float32\n          store y[4*i0 + i1] t0\n"
    (one,) = kernel_trial.launches(
        "launch kernel_0(x, y, s0, points=(s0, 4))  # f(x)   m.py:1", kernel_trial.read(text)
    )
    assert (one.name, one.loops.arguments, one.sizes, one.points) == ("kernel_0", ("x", "y"), ("s0",), ("s0", "4"))


@pytest.mark.parametrize("want, got, error", [
    ([1.0, -4.0], [1.0, -3.0], 0.25),
    ([1.0, float("nan")], [1.0, float("nan")], 0.0),
    ([float("inf"), 1.0], [float("-inf"), 1.0], float("inf")),
    ([1.0, 1.0], [1.0, float("nan")], float("inf")),
    ([], [], 0.0),
])  # fmt: skip
def test_errors(want: list[float], got: list[float], error: float) -> None:
    assert kernel_trial.difference(torch.tensor(want), torch.tensor(got)) == error


@pytest.mark.skipif(torch.cuda.is_available(), reason="runs kernels")
def test_without_a_gpu_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(SystemExit, match="There is no GPU here"):
        kernel_trial.main(str(tmp_path / "forward_kernels.py"), [])


def test_the_file_runs_alone_by_triton_s_interpreter(tmp_path: Path) -> None:
    """With libdevice's functions, which the interpreter lacks."""
    pytest.importorskip("triton")
    path = written(lambda x: torch.softmax(x.bfloat16(), -1), [make(8, 100)], tmp_path)
    assert "libdevice.exp(" in path.read_text()
    done = subprocess.run(
        [sys.executable, path.name], cwd=tmp_path, env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and " right" in done.stdout, done.stdout + done.stderr


def test_a_kernel_that_draws_is_not_tried(tmp_path: Path, tried: Callable[..., str]) -> None:
    """Its numbers follow from a generator's state."""
    said = tried(written(lambda x: torch.native_dropout(x * 2, 0.5, True)[0], [make(64, 100)], tmp_path))
    assert "not tried: its loops have" in said, said


def test_a_sum_of_one_number(tmp_path: Path, tried: Callable[..., str]) -> None:
    """A bias's gradient below a sum: every summand is the same element."""
    said = tried(written(lambda x: x.expand(64, 100).sum(0) * 2, [make(1)], tmp_path))
    assert " right" in said and "not tried" not in said, said
