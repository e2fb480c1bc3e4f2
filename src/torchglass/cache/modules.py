"""Digests of the files that modules were made of: what of them ran while a program was captured has no guard."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path


def module_digests(names: Iterable[str]) -> Mapping[str, str]:
    """The digests of modules of the program and of libraries; torch and Python have versions."""
    return {name: module_digest(name) for name in sorted(names) if not is_versioned(name)}


def is_versioned(module: str) -> bool:
    """Whether a module is PyTorch's, Python's or ours."""
    top = module.partition(".")[0]
    return top in ("torch", "torchglass") or top in sys.stdlib_module_names


def module_digest(name: str) -> str:
    """The digest of a module's file, "" if it has none."""
    path = getattr(sys.modules.get(name), "__file__", None)
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16] if path else ""
    except OSError:
        return ""
