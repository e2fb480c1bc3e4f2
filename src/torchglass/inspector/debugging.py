"""``prepare_debug`` and ``debug``: folders of artifacts, and a pause to set breakpoints in them.

Apart from ``api``: who looks at what torch.compile does need not load our compiler.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import torch

from ..process.arguments import require_flag, require_path
from ..runtime import store, toolchain
from . import reports
from .when_loaded import of_torch_compile


def prepare_debug(
    directory: str | Path, *, runs: str = "kernels", gdb: bool = False
) -> contextlib._GeneratorContextManager[Path]:
    """Leave the artifacts of everything compiled inside in ``directory``: the files there are what runs.

    ``runs`` says at which stage: "kernels" (the wrappers and the kernels that they call), "forward" (the ATen graphs,
    forward.py and backward.py), "captured" (captured.py) or "lines" (kernels up to a graph break, and after it your own
    lines): breakpoints are hit in the files that run. With ``gdb`` kernels are compiled so that gdb shows the generated
    C. What torch.compile compiles inside leaves the same layout in ``directory/torch_compile``. Backward runs in the
    thread that asks for it, on GPUs too. ValueError for another ``runs``.
    """
    require_path("directory", directory)
    if runs not in store.RUNS:
        raise ValueError(f"runs must be one of {', '.join(map(repr, store.RUNS))}, not {runs!r}")
    require_flag("gdb", gdb)
    return _prepared(directory, runs, gdb)


@contextlib.contextmanager
def _prepared(directory: str | Path, runs: str, gdb: bool) -> Iterator[Path]:
    with store.use(directory, runs) as used, toolchain.debuggable(gdb), of_torch_compile(used.root), _one_thread():
        try:
            yield used.root
        finally:
            reports.flush()


@contextlib.contextmanager
def debug() -> Iterator[None]:
    """Pause once, so that breakpoints can be set in the artifacts of what is called inside."""
    reports.flush()
    breakpoint()
    with _one_thread():
        yield


def _one_thread() -> AbstractContextManager[None]:
    """Autograd has a thread for each GPU, which pdb, tracing the thread it was started in, does not see."""
    return torch.autograd.set_multithreading_enabled(False)
