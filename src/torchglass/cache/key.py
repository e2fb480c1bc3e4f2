"""What an entry is found by, in two tables that people read: the program and the machine.

A factor stands there because another value of it makes other code: the version of torch, the options, the ISA. What is
not there makes none: paths, ranks, device indices, names of process groups, the environment (what a program reads of it
has guards). Two keys that differ say in which factor: ``python -m torchglass cache why-miss``.
"""

from __future__ import annotations

import functools
import hashlib
import json
import operator
import os
import sys
from pathlib import Path
from types import FunctionType
from typing import Any

import torch

from ..options import CompileOptions
from ..records.declared_sizes import DeclaredSizes
from ..records.kept_graph import NotKept
from ..runtime import machine, toolchain
from ..runtime.instructions import instruction_sets, level
from .objects import code_digest

FORMAT = 2
Key = dict[str, Any]


def program(function: FunctionType, options: CompileOptions, declared: DeclaredSizes) -> Key:
    """Of the function itself. What it calls is among the guards of each entry. Raises NotKept."""
    if not isinstance(options.backend, str):
        raise NotKept("its backend is a function of the program's")
    return {
        "function": f"{function.__module__}.{function.__qualname__}",
        "code": code_digest(function.__code__),
        "backend": options.backend,
        "mode": options.mode,
        "dynamic": options.dynamic,
        "fullgraph": options.fullgraph,
        "options": {name: repr(value) for name, value in sorted(options.options.items())},
        "declared": sorted(f"{source}: {row}" for source, row in declared.items()),
        "torchglass": _ours(),
    }


def of_machine() -> Key:
    """Of this machine and the state of this process."""
    gpu = machine.gpu_facts()
    return {
        "python": sys.version,
        "torch": f"{torch.__version__} {torch.version.git_version}",
        "cpu": _told({**machine.cpu_facts(), "instructions": _isa(), "level": level(_isa())}),
        "gpu": None if gpu is None else _told(gpu),
        "threads": torch.get_num_threads(),
        "flags": list(toolchain.flags()),
        "onednn": torch.backends.mkldnn.enabled,
        "attention": [torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()],
        "triton interpreted": os.environ.get("TRITON_INTERPRET") == "1",
    }


def _told(facts: Key) -> Key:
    return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in facts.items()}


def digest(*keys: Key) -> str:
    """One name for keys."""
    return hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()[:20]


def _isa() -> frozenset[str]:
    """The instructions that the processor has: kernels are compiled for all of them."""
    return instruction_sets()


@functools.cache
def _ours() -> str:
    """Our version, and of our files when they were written: a checkout changes without another version."""
    from .. import __version__

    rows = [str(FORMAT), *_stamps(str(Path(__file__).parents[1]))]
    return f"{__version__} {hashlib.sha256(chr(10).join(rows).encode()).hexdigest()[:12]}"


def _stamps(home: str, place: str = "") -> list[str]:
    """The files of the package with their sizes and times."""
    rows = []
    for file in sorted(os.scandir(os.path.join(home, place)), key=operator.attrgetter("name")):
        if file.name.endswith((".py", ".h", ".so")):
            status = file.stat()
            rows.append(f"{place}/{file.name} {status.st_size} {status.st_mtime_ns}")
        elif file.is_dir() and file.name != "__pycache__":
            rows += _stamps(home, f"{place}/{file.name}".lstrip("/"))
    return rows
