"""How much a kernel computes, to tell whether threads are worth waking."""

from __future__ import annotations

from ..records.loops import Compute, Index, Load, Loop, Reduce, Scan, Store
from ..records.schedule import Nest
from ..records.sizes import hint, product
from ..records.tuned.operations import HEAVY


def work(nest: Nest) -> float:
    """A rough count of simple operations; what is the same for a whole row counts once a row."""
    total = 0.0
    for loop in nest.loops:
        each, once = product(loop.dims), product(loop.dims[: nest.outer_rank])
        moving = _moving(loop, nest.outer_rank)
        for op in loop.body:
            if isinstance(op, (Load, Store, Reduce, Scan, Compute)):
                count = once if isinstance(op, (Load, Compute)) and op.result not in moving else each
                total += float(hint(count)) * (8.5 if isinstance(op, Compute) and op.op in HEAVY else 0.5)
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
