"""Targets of an ``ExternCall`` that are no ATen operator: what the wrapper does itself, or the runtime."""

from __future__ import annotations

JOIN = "join"
"""Nothing is called: all parts of the result, the arguments, have been written."""

ATTENTION = "attention"
"""The runtime's function computes attention by our own loops, into the outputs."""
