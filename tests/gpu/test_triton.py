"""Printed Triton kernels on a GPU: the programs that tests/codegen runs on a stand-in, by Triton itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.codegen.harness import compare, tensors
from tests.codegen.test_graphs import GRAPHS, make, with_gradients
from tests.codegen.test_triton_text import (
    BINARY,
    GPU,
    INTEGERS,
    LAYOUTS,
    PROGRAMS,
    SCANNING,
    SHORT_ROWS,
    UNARY,
    printed,
    special,
)  # fmt: skip
from tests.lower import test_scans as test_scans_of_loops

from torchglass.records.target import Targets
from torchglass.runtime.load import load

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., None]:
    """Print, run on the GPU, compare with eager there."""

    def run(
        fn: Callable[..., Any], args: Sequence[torch.Tensor], tol: float | None = None, targets: Targets = GPU
    ) -> None:
        sources = printed(fn, args, targets)
        (tmp_path / "forward_kernels.py").write_text(sources.texts["triton"])
        (tmp_path / "forward_wrapper.py").write_text(sources.wrapper_text)
        on_cpu, args = fn(*args), [a.cuda() for a in args]
        results = load(tmp_path / "forward_wrapper.py")(list(args))
        for there, want, got in zip(tensors(on_cpu), tensors(fn(*args)), results, strict=True):
            half = want.dtype in (torch.bfloat16, torch.float16)  # whose scans eager rounds at every element on a GPU
            compare(there.cuda() if half else want, got, max(tol or 0, 1e-2) if half else tol)

    return run


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, check: Callable[..., None]) -> None:
    check(*PROGRAMS[name])


@pytest.mark.parametrize("name", PROGRAMS)
def test_long_rows(name: str, check: Callable[..., None]) -> None:
    check(*PROGRAMS[name], targets=SHORT_ROWS)


@pytest.mark.parametrize("targets", [GPU, SHORT_ROWS], ids=["whole", "in blocks"])
@pytest.mark.parametrize("name", ["every", *SCANNING.split()])
def test_scans(name: str, targets: Targets, check: Callable[..., None]) -> None:
    check(getattr(test_scans_of_loops, name), [make(24, 40)], 2e-5, targets)


@pytest.mark.parametrize("name", [n for n in GRAPHS if n not in ("convolution", "sdpa")])
def test_graphs(name: str, check: Callable[..., None]) -> None:
    fn, args = GRAPHS[name]
    check(fn, args, 1e-4)
    check(with_gradients(fn), args, 1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_functions(dtype: torch.dtype, check: Callable[..., None]) -> None:
    x = special().to(dtype)
    check(lambda x: tuple(getattr(torch, name)(x) for name in UNARY.split()), [x])
    check(lambda x, y: tuple(getattr(torch, name)(x, y) for name in BINARY.split()), [x, x.flip(0) * 0.75])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8])
@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name: str, dtype: torch.dtype, check: Callable[..., None]) -> None:
    i = torch.arange(-9, 9).view(2, 9)
    check(INTEGERS[name], [i.to(dtype), i.flip(0, 1).to(dtype)])


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name: str, check: Callable[..., None]) -> None:
    check(*LAYOUTS[name])


def test_the_wrapper_runs_alone(tmp_path: Path) -> None:
    sources = printed(*PROGRAMS["softmax"])
    (tmp_path / "forward_kernels.py").write_text(sources.texts["triton"])
    (tmp_path / "forward_wrapper.py").write_text(sources.wrapper_text)
    path = str(tmp_path / "forward_wrapper.py")
    code = f"import sys, runpy; sys.path[:0] = {sys.path!r}; runpy.run_path({path!r}, run_name='__main__')"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "result 0: torch.float32 [64, 100]\n"
