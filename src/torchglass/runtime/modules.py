"""Modules by their file: a path in, the module out, for files that are run in another process than the one that wrote
them.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path


def imported_module(file: str) -> types.ModuleType | None:
    """The module of a file: one that is imported already, else imported now under its own name."""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == file:
            return module
    spec = importlib.util.spec_from_file_location(Path(file).stem, file) if Path(file).is_file() else None
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
