"""What users may catch."""

from __future__ import annotations

from .records.capture import GraphBreak


class TorchglassError(Exception):
    """Base of the package's errors."""


class GraphBreakError(TorchglassError):
    """``fullgraph=True``, and the function has a graph break. ``found`` has reason, place and hint."""

    def __init__(self, name: str, found: GraphBreak) -> None:
        self.found = found
        hint = f"\n  hint: {found.hint}" if found.hint else ""
        super().__init__(
            f"fullgraph=True, but the graph of `{name}` breaks\n  at {found.origin}\n  because of {found.reason}{hint}"
        )


class CompileError(TorchglassError):
    """A stage of the compiler failed on a graph or function; ``fullgraph=True`` raises it, else eager runs instead."""
