"""torchglass: a just-in-time compiler for PyTorch programs that people can see through.

Names load when they are first used, so that ``torchglass.decompiler`` works where torch is not installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .process.collector import Paused
from .process.interrupts import whole
from .process.locks import importing

if TYPE_CHECKING:
    from .api import (
        allow_in_graph,
        compile,
        disable,
        explain,
        graph_break,
        is_compiling,
        list_backends,
        load,
        reset,
        save,
    )
    from .backends.installing import install, installed, uninstall
    from .decompiler import decompile
    from .errors import CompileError, GraphBreakError, TorchglassError
    from .inspector.debugging import debug, prepare_debug
    from .marks.markers import (
        assume_constant_result,
        cudagraph_mark_step_begin,
        is_exporting,
        nested_compile_region,
        substitute_in_graph,
    )
    from .marks.tensors import mark_dynamic, mark_static, mark_static_address, mark_unbacked, maybe_mark_dynamic
    from .switching.stance import set_stance

__version__ = "0.1.0"

_HOMES = {
    **dict.fromkeys(
        ("allow_in_graph", "compile", "disable", "explain", "graph_break", "is_compiling", "list_backends", "load",
         "reset", "save"),
        "api",
    ),
    **dict.fromkeys(("debug", "prepare_debug"), "inspector.debugging"),
    "decompile": "decompiler",
    "set_stance": "switching.stance",
    **dict.fromkeys(
        ("assume_constant_result", "cudagraph_mark_step_begin", "is_exporting", "nested_compile_region",
         "substitute_in_graph"),
        "marks.markers",
    ),
    **dict.fromkeys(
        ("mark_dynamic", "mark_static", "mark_static_address", "mark_unbacked", "maybe_mark_dynamic"), "marks.tensors"
    ),
    **dict.fromkeys(("install", "installed", "uninstall"), "backends.installing"),
    **dict.fromkeys(("CompileError", "DeclaredSizeError", "GraphBreakError", "TorchglassError"), "errors"),
}  # fmt: skip

__all__ = [
    "CompileError",
    "DeclaredSizeError",
    "GraphBreakError",
    "TorchglassError",
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "debug",
    "decompile",
    "disable",
    "explain",
    "graph_break",
    "install",
    "installed",
    "is_compiling",
    "is_exporting",
    "list_backends",
    "load",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "nested_compile_region",
    "prepare_debug",
    "reset",
    "save",
    "set_stance",
    "substitute_in_graph",
    "uninstall",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with importing, Paused():
        module = whole(lambda: importlib.import_module(f".{home}", __name__))
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
