"""A fused kernel in parts, each with reductions along its own rows only.

A CPU kernel adds up columns while it walks rows (a layernorm's backward: dx by rows, dw and db by columns). Programs of
a GPU run side by side, so the columns' sums become kernels of their own, whose "rows" run down the columns; what they
read of the first part goes through memory. ::

    kernel dx, dw, db  ->  kernel dx (stores what dw and db read);  kernel dw and db, over the transposed nest
"""

from __future__ import annotations

from dataclasses import replace

from ..records.kernels import Allocate, Free, FusedGraph, FusedKernel, Step
from ..records.loops import Loop
from ..records.sizes import Size


def expand(fused: FusedGraph) -> FusedGraph:
    """The schedule with every kernel in parts; unchanged where no kernel has to be split."""
    steps: list[Step] = []
    for step in fused.steps:
        steps += parts(step) if isinstance(step, FusedKernel) else [step]
    return replace(fused, steps=tuple(steps))


def parts(kernel: FusedKernel) -> list[Step]:
    """The kernel's parts in order, with allocations for what passes between them."""
    columns: dict[tuple[tuple[Size, ...], tuple[bool, ...]], list[Loop]] = {}
    rest: list[Loop] = []
    for loop in kernel.loops:
        if any(r and not i for r, i in zip(loop.reduced, kernel.inner)):
            columns.setdefault((loop.dims, loop.reduced), []).append(loop)
        else:
            rest.append(loop)
    if not columns:
        return [kernel]
    made = {b for loop in rest for b in loop.writes}
    crossing = sorted({b for loops in columns.values() for loop in loops for b in loop.reads} & made & kernel.local)
    local = kernel.local - set(crossing)
    steps: list[Step] = [Allocate(b) for b in crossing]
    if rest:
        steps.append(replace(kernel, loops=tuple(rest), local=local))
    for n, ((dims, reduced), loops) in enumerate(columns.items()):
        steps.append(FusedKernel(f"{kernel.name}.columns{n}", dims, reduced, tuple(loops)))
    return [*steps, *(Free(b) for b in crossing)]
