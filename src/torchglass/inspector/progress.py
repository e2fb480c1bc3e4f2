"""A line on the terminal for compiles that take longer than a second: what is compiled, the stage, the seconds.

    with compiling("BertModel"):
        reached("compile C", kernels=14)

Nothing is shown where stderr is no terminal, or with ``TORCHGLASS_QUIET=1``. The line goes when the compile ends.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from ..process import threads

QUIET = "TORCHGLASS_QUIET"
AFTER = 1.0
EVERY = 0.2


class Line:
    """What the line says: set by who compiles, read by the thread that shows it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stage = ""
        self.kernels = 0
        self.begin = time.monotonic()
        self.done, self.gone = threading.Event(), threading.Event()

    def __str__(self) -> str:
        kernels = f", {self.kernels} kernels" if self.kernels else ""
        return f"torchglass: {self.name}: {self.stage}, {time.monotonic() - self.begin:.1f} s{kernels}"


_here = threading.local()


def reached(stage: str, kernels: int = 0) -> None:
    """What this thread compiles is at this stage, and has so many kernels more."""
    line: Line | None = getattr(_here, "line", None)
    if line is not None:
        line.stage = stage
        line.kernels += kernels


@contextlib.contextmanager
def compiling(name: str) -> Iterator[None]:
    """Shows the line while the block runs, once it has run for a second."""
    stream = sys.stderr
    if not shown(stream):
        yield
        return
    before, line = getattr(_here, "line", None), Line(name)
    starts = False
    try:
        starts = threads.start(_show, line, stream)
        _here.line = line
        yield
    finally:
        _here.line = before
        line.done.set()
        if starts:
            line.gone.wait()


def shown(stream: TextIO) -> bool:
    """Whether somebody would see the line."""
    return os.environ.get(QUIET) != "1" and stream is not None and hasattr(stream, "isatty") and stream.isatty()


def _show(line: Line, stream: TextIO) -> None:
    try:
        _show_until_done(line, stream)
    finally:
        line.gone.set()


def _show_until_done(line: Line, stream: TextIO) -> None:
    wait, wide = AFTER, 0
    while not line.done.wait(wait):
        text = str(line)[:100]
        stream.write("\r" + text.ljust(wide))
        stream.flush()
        wait, wide = EVERY, len(text)
    if wide:
        stream.write("\r" + " " * wide + "\r")
        stream.flush()
