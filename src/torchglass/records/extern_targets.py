"""Targets of an ``ExternCall`` that are no ATen operator: what the wrapper does itself, or the runtime."""

from __future__ import annotations

JOIN = "join"
"""Nothing is called: all parts of the result, the arguments, have been written."""

ATTENTION = "attention"
"""The runtime's function computes attention by our own loops, into the outputs."""

OPEN_ATTENTION = "open_attention"
"""The same of sizes that change: by PyTorch's for fewer queries or more keys than two further arguments say."""

RESERVE_PHILOX = "reserve_philox"
"""The runtime's function takes random numbers from a GPU's generator, for kernels to draw: see ``records.philox``."""
