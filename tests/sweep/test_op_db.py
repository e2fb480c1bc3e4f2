"""PyTorch's operator database: a quick sample, and all of it under ``make test-all``. See ``op_db.py``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUICK = ["add", "sin", "sum", "cat", "index_put", "nn.functional.layer_norm", "nn.functional.dropout", "unfold_copy"]


def judged(*arguments: str, backend: str = "aot_eager") -> str:
    """Run the command in a process of its own: it forks, which a process with threads should not. Its last line."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.sweep.op_db", "--backend", backend, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout.splitlines()[-1]


def share(line: str) -> float:
    return float(line.split(" operators, ")[1].split(" %")[0])


@pytest.mark.slow
def test_some_operators():
    assert share(judged("--samples", "3", "--only", *QUICK)) == 100.0


@pytest.mark.slow
@pytest.mark.parametrize("target", ["gpu", "small-gpu"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_operator_as_for_a_gpu(dtype, target):
    judged("--target", target, "--dtype", dtype, "--together", "16", "--jobs", "2", backend="glass")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_operator(dtype):
    assert share(judged("--dtype", dtype, "--jobs", "2")) >= 95.0


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "bool"])
def test_every_operator_in_loops(dtype):
    """Every sample through the generated code; ``judged`` sees to it that none is wrong and none crashes."""
    judged("--dtype", dtype, "--together", "16", "--jobs", "2", backend="glass")
