"""The one exception of the decompiler."""

from __future__ import annotations


class DecompileError(Exception):
    """The bytecode could not be turned into source that is known to mean the same; the message says why."""


#: what our own code raises when it meets bytecode that no compiler makes; turned into a refusal at the boundary
UNEXPECTED = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
