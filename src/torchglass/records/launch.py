"""What is known of the file that calls a graph's kernels before it is printed: the names that it uses itself."""

from __future__ import annotations

RESERVED = frozenset(
    ["args", "attention", "call", "conform", "demo", "device", "empty", "example_constant", "failed", "index_error"]
    + ["inf", "kernels", "math", "nan", "operator", "Path", "reinterpret", "torch", "triton", "tl", "INPUTS", "_"]
)
"""No buffer is called so."""
