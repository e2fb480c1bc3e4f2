"""CPython's own tests under tg.compile: a few modules, and all of them under ``make test-all``. See ``cpython.py``."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

if importlib.util.find_spec("test.test_with") is None:
    pytest.skip("this Python comes without its tests", allow_module_level=True)

ROOT = Path(__file__).parents[2]


def swept(*arguments: str) -> str:
    """Run the command in a process of its own, since it forks. Its last line; fails where a test did."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.sweep.cpython", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout.splitlines()[-1]


def test_some_modules_pass_compiled():
    line = swept("test_with", "test_raise", "test_unpack", "--jobs", "2")
    assert int(line.split("'whole': ")[1].split(",")[0].rstrip("}")) >= 70


@pytest.mark.slow
def test_every_module_passes_compiled():
    swept("--jobs", "2", "--timeout", "120")
