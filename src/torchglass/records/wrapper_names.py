"""Names that a generated wrapper uses itself: `lower` calls no buffer so (a program's `empty` is `empty_1`).

Wrappers print buffers by their own names, so that a step reads as it does in ``forward.fused``.
"""

from __future__ import annotations

RESERVED = frozenset(
    [
        "args",
        "attention",
        "call",
        "ensure_layout",
        "demo",
        "device",
        "empty",
        "example_constant",
        "failed",
        "index_error",
    ]
    + ["inf", "kernels", "math", "nan", "operator", "Path", "reinterpret", "torch", "triton", "tl", "INPUTS", "_"]
)
