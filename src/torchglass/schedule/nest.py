"""A fused kernel as loops will run it: dimensions in memory order, collapsed, split into rows and one row's inner ones.

A pointwise kernel over contiguous (4, 128, 256) becomes one dimension of 131072; a transposed copy keeps two, with the
one that most accesses walk contiguously innermost.
"""

from __future__ import annotations

from dataclasses import replace

from ..records.kernels import FusedKernel
from ..records.loops import Access, Index, Load, Loop, Scan, Store, rename_dims
from ..records.schedule import Nest
from ..records.sizes import Size, at_most, hint, is_known


def build(kernel: FusedKernel, short: int, total_block: int | None) -> Nest:
    """Order, collapse and divide the dimensions of a kernel.

    ``short``: elements of a dimension that are no vector; ``total_block``: those of a whole tensor's partial sums,
    None where it has none.
    """
    if any(loop.is_scatter for loop in kernel.loops):
        return _scattering(kernel)
    own = _without_short_rows(kernel, short)
    inner = own.inner
    order = _memory_order(own)
    order = [k for k in order if not inner[k]] + [k for k in order if inner[k]]
    order = _lines_in_order(own, order)
    loops = [_permute(loop, order) for loop in own.loops]
    dims = [own.dims[k] for k in order]
    flags: list[int] = [inner[k] for k in order]
    dims, flags, loops = _collapse(dims, flags, loops)
    if not any(flags) and dims and not any(loop.is_reduction for loop in loops):
        flags[-1] = True
        if at_most(dims[-1], short) and len(dims) > 1 and all(loop.dims == tuple(dims) for loop in loops):
            flags[-2] = True
    if (
        total_block is not None
        and all(flags)
        and dims
        and all(all(loop.reduced) for loop in loops if loop.is_reduction)
        and any(loop.is_reduction for loop in loops)
        and not any(loop.is_scan for loop in loops)
        and not _reads_total(loops)
    ):
        dims, flags, loops = _split_total(dims, flags, loops, total_block)
    return Nest(kernel, tuple(dims), flags.count(False), tuple(loops))


def _scattering(kernel: FusedKernel) -> Nest:
    """Points run in order along the dimensions in which the stored address has no stride: two may write one element.

    Outside them those along which all elements differ, but for one with elements closer than the computed places: it
    is the row.
    """
    (loop,) = kernel.loops
    access = loop.stores[0].access
    steps, near = access.strides, min(_magnitude(s) for _, s in access.indirect)
    free = sorted((k for k, s in enumerate(steps) if s != 0), key=lambda k: _magnitude(steps[k]), reverse=True)
    row = free[-1:] if free and _magnitude(steps[free[-1]]) < near else []
    outer, turns = free[: len(free) - len(row)], [k for k, s in enumerate(steps) if s == 0]
    order, kind = [*outer, *turns, *row], [0] * len(outer) + [1] * len(turns) + [2] * len(row)
    dims, kinds, loops = _collapse([kernel.dims[k] for k in order], kind, [_permute(loop, order)])
    return Nest(kernel, tuple(dims), len(kinds) - kinds.count(2), tuple(loops), kinds.count(0))


def _magnitude(stride: Size) -> float:
    return float(abs(hint(stride)))


def _without_short_rows(kernel: FusedKernel, short: int) -> FusedKernel:
    """Where rows are a few elements that share what one loop computed, that loop computes it for each of them."""
    columns = kernel.columns
    if not at_most(columns, short * short):
        return kernel
    if any(loop.is_reduction or loop.is_scan for loop in kernel.loops):
        return kernel
    loops = []
    for loop in kernel.loops:
        if loop.dims != kernel.dims:
            if any(b not in kernel.local for b in loop.writes):
                return kernel
            loop = replace(loop, dims=kernel.dims)
        loops.append(loop)
    return replace(kernel, loops=tuple(loops), inner=(False,) * len(kernel.dims))


def _reads_total(loops: list[Loop]) -> bool:
    """Whether a loop over elements needs a reduction of all of them; one over a single number can wait till the end."""
    late: set[str] = set()
    for loop in loops:
        reads = any(b in late for b in loop.reads)
        if reads and any(d != 1 for d in loop.dims):
            return True
        if reads or loop.is_reduction:
            late.update(loop.writes)
    return False


def _split_total(
    dims: list[Size], flags: list[int], loops: list[Loop], most: int
) -> tuple[list[Size], list[int], list[Loop]]:
    """A reduction of everything runs as rows of blocks, each with its own partial result."""
    if len(dims) > 1:
        return dims, [0] * (len(dims) - 1) + [1], loops
    size = dims[0]
    if not is_known(size) or size <= most:
        return dims, flags, loops
    block = next((b for b in range(most, 63, -1) if size % b == 0), None)
    if block is None:
        return dims, flags, loops
    count = size // block

    def move(strides: tuple[Size, ...]) -> tuple[Size, ...]:
        return (strides[0] * block, strides[0])

    split = [rename_dims(lp, (count, block), lp.reduced * 2, move) for lp in loops]
    return [count, block], [0, 1], split


def accesses(loop: Loop) -> list[Access]:
    return [op.access for op in loop.body if isinstance(op, (Load, Store))]


def _memory_order(kernel: FusedKernel) -> list[int]:
    """Dimensions from the one that moves furthest in memory to the one most accesses walk element by element."""
    rank = len(kernel.dims)
    contiguous = [0] * rank
    reach: list[float] = [0.0] * rank
    for loop in kernel.loops:
        for op in loop.body:
            if not isinstance(op, (Load, Store)) or op.access.buffer in kernel.local:
                continue
            weight = 2 if isinstance(op, Store) else 1
            for k, stride in enumerate(op.access.strides):
                if loop.dims[k] == 1 or stride == 0:
                    continue
                if stride == 1:
                    contiguous[k] += weight
                reach[k] = max(reach[k], float(abs(hint(stride))))
    order = sorted(range(rank), key=lambda k: (-reach[k], k))
    if rank:
        best = max(range(rank), key=lambda k: (contiguous[k], -reach[k], k))
        if contiguous[best]:
            order.remove(best)
            order.append(best)
    return order


def _lines_in_order(kernel: FusedKernel, order: list[int]) -> list[int]:
    """The dimensions of each scan's lines outermost first, in the places that they take together."""
    for op in (op for loop in kernel.loops for op in loop.body if isinstance(op, Scan)):
        steps = {k: s for k, s in enumerate(op.strides) if s != 0}
        if len(steps) > 1:
            inward = iter(sorted(steps, key=lambda k: -hint(steps[k])))
            order = [next(inward) if k in steps else k for k in order]
    return order


def _permute(loop: Loop, order: list[int]) -> Loop:
    def move(strides: tuple[Size, ...]) -> tuple[Size, ...]:
        return tuple(strides[k] for k in order)

    return rename_dims(loop, tuple(loop.dims[k] for k in order), tuple(loop.reduced[k] for k in order), move)


def _collapse(dims: list[Size], flags: list[int], loops: list[Loop]) -> tuple[list[Size], list[int], list[Loop]]:
    """Merge neighbouring dimensions with one flag that every access walks as one."""
    k = len(dims) - 2
    while k >= 0:
        if flags[k] == flags[k + 1] and all(_mergeable(loop, k, dims[k + 1]) for loop in loops):
            loops = [_merge(loop, k) for loop in loops]
            dims = [*dims[:k], dims[k] * dims[k + 1], *dims[k + 2 :]]
            flags = [*flags[: k + 1], *flags[k + 2 :]]
        k -= 1
    return dims, flags, loops


def _mergeable(loop: Loop, k: int, size: Size) -> bool:
    if loop.reduced[k] != loop.reduced[k + 1] or (loop.dims[k] == 1) != (loop.dims[k + 1] == 1):
        return False
    strides = [a.strides for a in accesses(loop)] + [o.strides for o in loop.body if isinstance(o, (Index, Scan))]
    return all(s[k] == s[k + 1] * size for s in strides)


def _merge(loop: Loop, k: int) -> Loop:
    def move(strides: tuple[Size, ...]) -> tuple[Size, ...]:
        return (*strides[:k], *strides[k + 1 :])

    dims = (*loop.dims[:k], loop.dims[k] * loop.dims[k + 1], *loop.dims[k + 2 :])
    return rename_dims(loop, dims, (*loop.reduced[:k], *loop.reduced[k + 1 :]), move)
