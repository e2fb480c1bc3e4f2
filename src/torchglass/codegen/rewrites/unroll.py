"""Loop unrolling: a body for each index of a short loop, one after the other.

    for (i1 = 0; i1 < 2; ++i1) { t1 = x[i0]; t2 = t1 * w[i1]; y[2*i0 + i1] = t2; }

becomes ``t1 = x[i0];`` and the rest twice, each in a block with its own ``i1``: values that do not depend on the index
come once, before.
"""

from __future__ import annotations

from ..statements import Block, For, Stmt, constant, defines, mentions


def unroll(loop: For, size: int) -> list[Stmt]:
    """The loop's bodies for ``size`` indices. A short loop is no vector: whoever has one wants it written out."""
    moving, once, each = {loop.counter}, [], []
    for stmt in loop.body:
        made = defines(stmt)
        names = mentions(stmt)
        if made is not None and moving.isdisjoint(names):
            once.append(stmt)
            continue
        each.append(stmt)
        moving |= {made} if made is not None else _written(stmt)
    return [*once, *(Block((constant(loop.counter, str(n)), *each)) for n in range(size))]


def _written(stmt: Stmt) -> set[str]:
    """The variable or array that a statement writes."""
    target = getattr(stmt, "target", None) or getattr(stmt, "place", None) or getattr(stmt, "flag", None)
    array = getattr(target, "array", target)
    return {array} if isinstance(array, str) else set()
