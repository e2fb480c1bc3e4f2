"""Pythons that the native core does not fit say so at import: free-threaded ones and subinterpreters."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import torch  # noqa: F401  # its libraries come before ours

from torchglass import _native

CORE = Path(__file__).parents[2] / "csrc"

IN_SUBINTERPRETER = """
import torch, _xxsubinterpreters as interpreters
said = '''
import importlib.machinery, importlib.util
loader = importlib.machinery.ExtensionFileLoader("torchglass._native", {path!r})
spec = importlib.util.spec_from_loader(loader.name, loader)
try:
    loader.exec_module(importlib.util.module_from_spec(spec))
except ImportError as error:
    assert "subinterpreters" in str(error), error
else:
    raise AssertionError("it was loaded")
'''
for isolated in (False, True):
    interpreter = interpreters.create(isolated=isolated)
    interpreters.run_string(interpreter, said)
    interpreters.destroy(interpreter)
from torchglass import _native
assert _native.same_constant(1, 1)
"""

FREE_THREADED = """
import sys, torch
sys.abiflags = "t"
try:
    from torchglass import _native
except ImportError as error:
    assert "free-threaded" in str(error), error
else:
    raise AssertionError("it was loaded")
"""


def run(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="the module that makes subinterpreters has another name")
def test_subinterpreters_are_refused() -> None:
    run(IN_SUBINTERPRETER.format(path=_native.__file__))


def test_a_free_threaded_python_is_refused() -> None:
    run(FREE_THREADED)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_it_does_not_build_for_a_free_threaded_python() -> None:
    flags = ["-std=c++17", "-E", "-x", "c++", f"-I{sysconfig.get_path('include')}", "-o", "/dev/null"]
    built = subprocess.run(["g++", *flags, CORE / "native.h"], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    refused = subprocess.run(["g++", *flags, "-DPy_GIL_DISABLED", CORE / "native.h"], capture_output=True, text=True)
    assert refused.returncode != 0 and "needs a Python with the GIL" in refused.stderr


def test_it_may_be_imported_again() -> None:
    spec = importlib.util.spec_from_file_location("torchglass._native", _native.__file__)
    assert spec is not None and spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    assert again.CompiledFunction is _native.CompiledFunction
    assert again.release_memory is _native.release_memory
