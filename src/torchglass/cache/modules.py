"""The files that modules were made of, by digest: what of them ran while a program was captured has no guard.

What counts is that a file says what the process runs: one that was written after the process began need not, and a
module without one (a notebook's cells, ``python -c``, exec) says nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

from ..records.kept_graph import NotKept


def module_digests(names: Iterable[str]) -> Mapping[str, str]:
    """The digests of modules of the program and of libraries; torch and Python have versions."""
    return {name: module_digest(name) for name in sorted(names) if not is_versioned(name)}


def is_versioned(module: str) -> bool:
    """Whether a module is PyTorch's, Python's or ours."""
    top = module.partition(".")[0]
    return top in ("torch", "torchglass") or top in sys.stdlib_module_names


def module_digest(name: str) -> str:
    """The digest of a module's file and of the version that its package says it is, "" if it has no file. Raises
    NotKept for a file that is perhaps another one than this process has loaded.
    """
    path = getattr(sys.modules.get(name), "__file__", None)
    if not path:
        return ""
    try:
        if os.stat(path).st_ctime > _BEGAN:
            raise NotKept(f"{path} was written after this process began")
        content = Path(path).read_bytes()
    except OSError:
        return ""
    version = getattr(sys.modules.get(name.partition(".")[0]), "__version__", "")
    return hashlib.sha256(content + f"\n{version}".encode()).hexdigest()[:16]


def check_files(function: FunctionType, digests: Mapping[str, str]) -> None:
    """Raises NotKept unless files say all that the function and the modules of these digests run."""
    if not is_in_file(function):
        raise NotKept(f"its code lies in no file ({function.__code__.co_filename}), {_UNASKED}")
    for name, digest in digests.items():
        if not digest:
            raise NotKept(f"the module {name}, of which it uses something, has no file, {_UNASKED}")


_UNASKED = "and TORCHGLASS_CACHE names no folder to keep it in all the same"


def is_in_file(function: FunctionType) -> bool:
    """Whether a function was compiled from the file that its globals belong to."""
    code, module = function.__code__.co_filename, function.__globals__.get("__file__")
    with contextlib.suppress(OSError, TypeError, ValueError):
        return os.path.samefile(code, module)  # type: ignore[arg-type]
    return False


def homes(value: Any) -> set[str]:
    """The modules in which code is that ran for a value: its own; of a class, those of its bases and metaclass, too."""
    values = (*value.__mro__, type(value)) if isinstance(value, type) else (value,)
    return {home for one in values if isinstance(home := getattr(one, "__module__", None), str)}


def _began() -> float:
    """When this process began, as files say when they changed; a later time where the system does not tell."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) + 1
        since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.time() - since_boot + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return time.time()


_BEGAN = _began()  # a child that is forked later has loaded what its parent has
