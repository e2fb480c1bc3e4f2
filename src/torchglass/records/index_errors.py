"""What is raised after a kernel met an index out of range: exception and message, as eager's.

``bound`` (``loops.OPS``) names a row by its number; the runtime makes the exception of the row, and of what the kernel
left: ``IndexError("index 7 is out of bounds for dimension 1 with size 5")``.
"""

from __future__ import annotations

INDEX_ERRORS: tuple[tuple[type[Exception], str], ...] = (
    (IndexError, "index out of range in self"),
    (IndexError, "index {index} is out of bounds for dimension {dim} with size {size}"),
    (RuntimeError, "index {index} is out of bounds for dimension {dim} with size {size}"),
    (IndexError, "Target {index} is out of bounds."),
    (RuntimeError, "ZeroDivisionError"),
    (IndexError, "index_copy_(): index {index} is out of bounds for dimension {dim} with size {size}"),
)
OF_CPUS_ALONE = frozenset({4})
"""Rows of what eager raises on a CPU; on a GPU whole numbers divided by zero are what they are."""
