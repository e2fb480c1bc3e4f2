"""A fused kernel in parts, each with values carried along its own rows only.

A CPU kernel adds up columns while it walks rows (a layernorm's backward: dx by rows, dw and db by columns). Programs of
a GPU run side by side, so the columns' sums become kernels of their own, whose "rows" run down the columns; what they
read of the first part goes through memory. ::

    kernel dx, dw, db  ->  kernel dx (stores what dw and db read);  kernel dw and db, over the transposed nest
"""

from __future__ import annotations

from dataclasses import replace

from ..records.kernels import Allocate, Free, FusedGraph, FusedKernel, Step
from ..records.loops import Loop
from .gpu import carried


def expand(fused: FusedGraph) -> FusedGraph:
    """The schedule with every kernel in parts; unchanged where no kernel has to be split."""
    steps: list[Step] = []
    for step in fused.steps:
        steps += parts(step) if isinstance(step, FusedKernel) else [step]
    return replace(fused, steps=tuple(steps))


def parts(kernel: FusedKernel) -> list[Step]:
    """The kernel's parts in order, with allocations for what passes between them."""
    found: list[list[Loop]] = [[]]
    rows: list[tuple[bool, ...] | None] = [None]
    at: dict[str, int] = {}  # the part that writes a buffer
    for loop in kernel.loops:
        own, first = carried(loop), max((at[b] for b in loop.reads if b in at), default=0)
        fits = (n for n in range(first, len(found)) if not any(own) or rows[n] in (None, own))
        place = next(fits, len(found))
        if place == len(found):
            found.append([])
            rows.append(None)
        found[place].append(loop)
        rows[place] = own if any(own) else rows[place]
        at |= dict.fromkeys(loop.writes, place)
    read = [{b for loop in part for b in loop.reads} for part in found]
    crossing = [b for b in sorted(kernel.local) if any(b in names for names in read[at[b] + 1 :])]
    local = [kernel.local & {b for loop in part for b in loop.writes} - set(crossing) for part in found]
    kernels = [
        replace(kernel, name=f"{kernel.name}.part{n}" if n else kernel.name, loops=tuple(part), local=local[n])
        for n, part in enumerate(found)
    ]
    return [*(Allocate(b) for b in crossing), *kernels, *(Free(b) for b in crossing)]
