"""A few random programs at changing sizes, and more of them under ``make test-all``. See ``programs.py``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.sweep.random_programs import program

ROOT = Path(__file__).parents[2]


def judged(*arguments: str) -> None:
    """Run the command in a process of its own: it forks, which a process with threads should not."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.sweep.programs", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_a_seed_is_a_program() -> None:
    assert program(7, 4) == program(7, 4) != program(8, 4)


@pytest.mark.parametrize(
    "more", [("--backend", "aot_eager", "--count", "4"), ("--training", "--dynamic", "--count", "1")]
)
def test_some_programs(more: tuple[str, ...]) -> None:
    judged(*more)


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [(), ("--dynamic",)])
@pytest.mark.parametrize("more", [("--backend", "aot_eager"), (), ("--training",)])
def test_many_programs(more: tuple[str, ...], dynamic: tuple[str, ...]) -> None:
    judged(*more, *dynamic, "--count", "400", "--jobs", "2")
