"""torchglass: a just-in-time compiler for PyTorch programs that people can see through.

Names load when they are first used, so that ``torchglass.decompiler`` works where torch is not installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .collector import Paused
from .interrupts import whole
from .locks import importing

if TYPE_CHECKING:
    from .api import allow_in_graph, compile, disable, explain, graph_break, is_compiling, list_backends, reset
    from .debugging import debug, prepare_debug
    from .decompiler import decompile
    from .errors import CompileError, GraphBreakError, TorchglassError
    from .installing import install, installed, uninstall
    from .markers import (
        assume_constant_result,
        cudagraph_mark_step_begin,
        is_exporting,
        nested_compile_region,
        substitute_in_graph,
    )
    from .marks import mark_dynamic, mark_static, mark_static_address, mark_unbacked, maybe_mark_dynamic
    from .stance import set_stance

__version__ = "0.1.0"

_HOMES = {
    **dict.fromkeys(
        ("allow_in_graph", "compile", "disable", "explain", "graph_break", "is_compiling", "list_backends", "reset"),
        "api",
    ),
    **dict.fromkeys(("debug", "prepare_debug"), "debugging"),
    "decompile": "decompiler",
    "set_stance": "stance",
    **dict.fromkeys(
        ("assume_constant_result", "cudagraph_mark_step_begin", "is_exporting", "nested_compile_region",
         "substitute_in_graph"),
        "markers",
    ),
    **dict.fromkeys(
        ("mark_dynamic", "mark_static", "mark_static_address", "mark_unbacked", "maybe_mark_dynamic"), "marks"
    ),
    **dict.fromkeys(("install", "installed", "uninstall"), "installing"),
    **dict.fromkeys(("CompileError", "GraphBreakError", "TorchglassError"), "errors"),
}  # fmt: skip

__all__ = [
    "CompileError",
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
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "nested_compile_region",
    "prepare_debug",
    "reset",
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
