"""The frame hook under every Python that is here, torch or not, with the memory debugger on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PARTS = ("frame_hook", "tail_calls", "errors", "stack")
DESCRIBE = (
    "import sys, sysconfig as s; print(s.get_path('include'), s.get_config_var('EXT_SUFFIX'), sys.version_info[1])"
)


def pythons() -> list[str]:
    """This Python, and 3.12 and 3.13 if there are any."""
    found = {Path(sys.base_prefix) / "bin/python3"}
    for version in ("3.12", "3.13"):
        installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3"))
        on_path = shutil.which(f"python{version}")
        found |= {*installed[:1], *([Path(on_path)] if on_path and not installed else [])}
    return sorted(map(str, found))


@pytest.mark.parametrize("python", pythons())
def test_checks_hold(python: str, tmp_path: Path) -> None:
    described = subprocess.run([python, "-c", DESCRIBE], capture_output=True, text=True)
    include, suffix, minor = described.stdout.split() if described.returncode == 0 else ("", "", "0")
    if not 11 <= int(minor) <= 13 or not (Path(include) / "internal/pycore_frame.h").exists():
        pytest.skip("needs Python 3.11 to 3.13 with its headers")
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    core = HERE.parents[1] / "csrc"
    sources = [HERE / "frame_hook_alone.cpp", *(core / f"{name}.cpp" for name in PARTS)]
    built = tmp_path / f"frame_hook_alone{suffix}"
    flags = ["-std=c++17", "-O1", "-g", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Werror"]
    subprocess.run(["g++", *flags, f"-I{include}", "-o", built, *sources], check=True)
    run = subprocess.run(
        [python, "-X", "faulthandler", HERE / "frame_hook_checks.py", tmp_path],
        env={**os.environ, "PYTHONMALLOC": "debug", "PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0 and "all hold" in run.stdout, run.stdout + run.stderr
