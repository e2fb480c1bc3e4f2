"""Functions that users put into their programs to talk to the compiler. Capture knows them by identity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

DISABLED = "_torchglass_disabled"
IN_GRAPH = "_torchglass_in_graph"


def is_compiling() -> bool:
    """True inside a function that is being compiled, False in eager Python."""
    return False


def graph_break() -> None:
    """End the graph here; the rest goes on in a graph of its own. Does nothing in eager Python."""


def disable(function: F) -> F:
    """Mark a function: compiled code calls it as ordinary Python and does not look inside."""
    setattr(function, DISABLED, True)
    return function


def allow_in_graph(function: F) -> F:
    """Mark a function of tensors: it becomes one node of the graph, and its body is not captured.

    It must be pure but for its results, take tensors and constants, and return tensors.
    """
    setattr(function, IN_GRAPH, True)
    return function
