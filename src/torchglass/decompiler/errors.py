"""The one exception of the decompiler."""

from __future__ import annotations


class DecompileError(Exception):
    """The bytecode could not be turned into source that is known to mean the same; the message says why."""
