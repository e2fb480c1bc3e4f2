"""How much a kernel computes, to tell whether threads are worth waking."""

from __future__ import annotations

import os

from ..records.loops import Compute, Index, Load, Loop, Reduce, Scan, Store, product
from .nest import Nest

PARALLEL_EFFORT = 50_000  # estimated operations below which one thread is faster than waking the others
SLEEPING_EFFORT = (
    300_000  # the same where they sleep between kernels: 6.8 microseconds a region, and 0.5 where they spin
)
HEAVY = frozenset(
    {"exp", "log", "tanh", "erf", "ndtr", "sigmoid", "expm1", "log1p", "sin", "cos", "pow", "exp2", "lgamma", "atan"}
)


def least_shared() -> int:
    """The effort from which a kernel's work is shared among threads, by how OpenMP was told to let them wait."""
    sleeping = os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive" or os.environ.get("GOMP_SPINCOUNT") == "0"
    return SLEEPING_EFFORT if sleeping else PARALLEL_EFFORT


def effort(nest: Nest) -> float:
    """A rough count of simple operations; what is the same for a whole row counts once a row."""
    total = 0.0
    for loop in nest.loops:
        each, once = product(loop.dims), product(loop.dims[: nest.rows])
        moving = _moving(loop, nest.rows)
        for op in loop.body:
            if isinstance(op, (Load, Store, Reduce, Scan, Compute)):
                count = once if isinstance(op, (Load, Compute)) and op.result not in moving else each
                n = float(count) if isinstance(count, int) else 1e9
                total += n * (8.5 if isinstance(op, Compute) and op.op in HEAVY else 0.5)
    return total


def _moving(loop: Loop, rows: int) -> set[str]:
    """Values of a body that differ within a row; the others are computed once a row."""
    moving: set[str] = set()
    for op in loop.body:
        if isinstance(op, Load):
            differs = any(op.access.strides[rows:]) or any(v in moving for v, _ in op.access.indirect)
            differs = differs or op.mask in moving
        elif isinstance(op, (Index, Scan)):
            differs = any(op.strides[rows:]) or (isinstance(op, Scan) and op.arg in moving)
        elif isinstance(op, Compute):
            differs = any(arg in moving for arg in op.args)
        else:
            continue
        if differs:
            moving.add(op.result)
    return moving
