"""What users may catch."""

from __future__ import annotations

from .records.breaks import GraphBreak


class TorchglassError(Exception):
    """Base of the package's errors."""


# The hint for what nothing more is known about.
ANY_BREAK = "do this outside the compiled function, or let the graph break there by compiling without fullgraph=True"


class GraphBreakError(TorchglassError):
    """``fullgraph=True``, and the function has a graph break. ``found`` has reason, place and hint."""

    def __init__(self, name: str, found: GraphBreak) -> None:
        self.found = found
        super().__init__(
            f"fullgraph=True, but the graph of `{name}` breaks\n  at {found.origin}\n  because of {found.reason}\n"
            f"  hint: {found.hint or ANY_BREAK}"
        )


class DeclaredSizeError(TorchglassError, ValueError):
    """A call has another size than ``mark_dynamic`` or ``dynamic_shapes`` say, or the program needs a number where they
    say that it changes.
    """


class BackendError(TorchglassError):
    """A backend that is not ours failed on a graph: the cause says how. Handled as any failure of a stage."""

    def __init__(self, backend: str, cause: Exception) -> None:
        super().__init__(f"its backend `{backend}` failed: {type(cause).__name__}: {cause}")


class CompileError(TorchglassError):
    """A stage of the compiler failed on a graph or function; ``fullgraph=True`` raises it, else eager runs instead."""
