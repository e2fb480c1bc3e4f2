"""PyTorch's databases of modules and optimizers: a quick sample, and all of them under ``make test-all``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = ["nn.BatchNorm2d", "nn.LSTM", "nn.MultiheadAttention", "nn.CrossEntropyLoss", "nn.MultiLabelMarginLoss"]


def judged(database: str, *arguments: str, backend: str = "eager") -> None:
    """Run the command in a process of its own: it forks, which a process with threads should not."""
    command = [sys.executable, "-W", "ignore", "-m", f"tests.sweep.{database}_db", "--backend", backend, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.slow
def test_some_modules():
    judged("module", "--samples", "2", "--only", *MODULES, backend="glass")


@pytest.mark.slow
def test_some_optimizers():
    judged("optimizer", "--every", "80", "--only", "SGD", "Adam", "Muon", "LBFGS", backend="glass")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "glass"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_module(backend, dtype):
    judged("module", "--samples", "40", "--dtype", dtype, "--jobs", "2", backend=backend)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "glass"])
def test_every_optimizer(backend):
    judged("optimizer", "--jobs", "2", backend=backend)
