"""A kernels file compiled in parts at the same time: GCC takes a second for fifty kernels, and has no threads.

Every part is the whole file, of which all but some kernels are left out: under ``-fwhole-program`` a function that is
not said to be visible outside is dropped before it is optimized. What says so is read from standard input::

    void kernel_0_call(void**) __attribute__((externally_visible));
    #include "forward_kernels.c"

So the file is compiled as it stands there, and nothing in it speaks of parts.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ..process import interrupts
from .compilers import Compilers

_EXPORTED = re.compile(r"^void (\w+_call)\(void\*\* a\)", re.MULTILINE)
LINES = 250  # of kernels, a quarter of a second: below that a part is not worth the processes it takes
MOST = 8
# In every part there is one; the linker makes them the same.
_FAILED = "extern __INT64_TYPE__ tg_failed[4] __attribute__((weak, externally_visible));"


def most() -> int:
    """How many parts this process has processors for."""
    return min(MOST, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def of(text: str, most_parts: int) -> list[str]:
    """For each part the declarations of what it is to hold, about the same number of lines; none for a single part."""
    found = list(_EXPORTED.finditer(text))
    starts = [0, *(match.end() for match in found)]
    lines = [text.count("\n", start, match.end()) for start, match in zip(starts, found)]
    if found:
        lines[0] = lines[-1]  # before the first stands the prelude
    number = min(most_parts, len(found), sum(lines) // LINES)
    if number < 2:
        return []
    names: list[list[str]] = [[] for _ in range(number)]
    sizes = [0] * number
    for size, match in sorted(zip(lines, found), key=lambda one: -one[0]):
        least = sizes.index(min(sizes))
        sizes[least] += size
        names[least].append(match[1])
    shared = [_FAILED] if "tg_failed" in text else []
    return ["\n".join((*shared, *map(_visible, part))) for part in names]


def _visible(name: str) -> str:
    return f"void {name}(void**) __attribute__((externally_visible));"


def compiled(
    command: Sequence[str], drivers: Sequence[str], source: Path, folder: Path, compilers: Compilers
) -> list[str]:
    """The parts' object files; none if there are no parts or one failed: the whole file then says why."""
    objects = [str(folder / f"part_{n}.o") for n in range(len(drivers))]
    running: list[subprocess.Popen[str]] = []
    try:
        for driver, made in zip(drivers, objects):
            words = [*command, "-fwhole-program", "-c", "-x", "c", "-o", made, "-"]
            quiet = subprocess.DEVNULL
            running.append(compilers.start(words, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet))
            with running[-1].stdin as text, contextlib.suppress(BrokenPipeError):  # type: ignore[union-attr]
                text.write(f'{driver}\n#include "{source}"\n')
        codes = [interrupts.waiting(process.wait) for process in running]
        return objects if not any(codes) else []
    except BaseException:
        compilers.stop()
        raise
