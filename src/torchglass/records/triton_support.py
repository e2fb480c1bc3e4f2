"""What Triton has for a loop, and what not: asked by lowering, so that an operator without it stays an ATen call.

A row is here or nowhere: codegen prints what this says can be printed, and raises for the rest.
"""

from __future__ import annotations

from collections.abc import Mapping

from .loops import Buffer, Loop

ATOMIC_SUMS = frozenset({"float32", "float64", "int32", "int64"})
"""Dtypes of numbers that programs add to in memory side by side. CUDA adds to halves, too, and rounds each sum, in no
order; of shorter integers there is nothing."""

TYPES = {
    "float32": "tl.float32", "float64": "tl.float64", "bfloat16": "tl.bfloat16", "float16": "tl.float16",
    "int64": "tl.int64", "int32": "tl.int32", "int16": "tl.int16", "int8": "tl.int8", "uint8": "tl.uint8",
    "bool": "tl.int1",
}  # fmt: skip
"""Triton's names for dtypes."""


def lacking(loop: Loop, buffers: Mapping[str, Buffer]) -> str | None:
    """Why a loop has no text in Triton; None: it has."""
    for dtype in (buffers[name].dtype for name in (*loop.reads, *loop.writes)):
        if dtype not in TYPES:
            return f"no {dtype} in Triton"
    for store in loop.stores:
        dtype = buffers[store.access.buffer].dtype
        if store.add and dtype not in ATOMIC_SUMS:
            return f"no atomic sum of {dtype} in Triton"
    return None
