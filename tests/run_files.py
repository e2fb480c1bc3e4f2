"""Python files that run by themselves, one after the other in one process: each import of torch takes seconds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

RUN = """
import runpy, sys
for path in sys.argv[1:]:
    print(path)
    runpy.run_path(path, run_name="__main__")
"""


def run_files(files: Iterable[str | Path]) -> None:
    """Run each as a program; fails where one does, with its path and its error."""
    command = [sys.executable, "-c", RUN, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr
