"""A reduction in two loops, for targets on which parts of it run side by side: partial results, then one of these.

    loop total over [reduce 1048576]:         loop total_parts over [64, reduce 16384]:
        t0 = load x[i0] : float32                 t0 = load x[16384*i0 + i1] : float32
        t1 = reduce_sum t0 : float32    =>        t1 = reduce_sum t0 : float32
        t2 = mul t1 t9 : float32                  store total_parts[i0] t1
        store total[0] t2                     loop total over [reduce 64]:
                                                  p0 = load total_parts[i0] : float32; t1 = reduce_sum p0; ...

Parts are whole outer dimensions of those that are reduced, and blocks of the next one; the last block may be shorter,
behind a mask. Partial results have the dtype of the reduction, and are added up in one order, whoever is first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ..records.check_loops import operands
from ..records.loops import (
    Access,
    Buffer,
    Compute,
    Const,
    Index,
    Load,
    Loop,
    Operation,
    Reduce,
    Store,
    compute_dtype,
    rename_dims,
)
from ..records.sizes import Size
from .strides import contiguous
from .values import bits, is_float


@dataclass(frozen=True)
class Division:
    """Of a loop's reduced dimensions those ``whole`` ones that tell parts apart, and ``blocks`` of ``block`` elements
    of the dimension ``dim`` (None: of none), more than enough where its size is not known."""

    whole: tuple[int, ...] = ()
    dim: int | None = None
    blocks: int = 1
    block: Size = 1


def can_divide(loop: Loop) -> bool:
    """Whether a loop's reductions are of what it reads, and none of what another came to."""
    if not loop.is_reduction or loop.is_scan or loop.is_scatter or 0 in loop.dims:
        return False
    late: set[str] = set()
    for op in loop.body:
        used = late.intersection(operands(op))
        if isinstance(op, Reduce) and used:
            return False
        if not isinstance(op, Store) and (used or isinstance(op, Reduce)):
            late.add(op.result)
    return True


def divided(
    loop: Loop, by: Division, fresh: Callable[[str], str], device: str
) -> tuple[Loop, Loop, tuple[Buffer, ...]]:
    """The loop over parts, the loop over their results, and the buffers between them, for a loop of ``can_divide``."""
    first = _with_blocks(loop, by)
    parts = [k for k, d in enumerate(first.dims) if not first.reduced[k] and _is_part(k, loop, by)]
    kept = [k for k in range(len(first.dims)) if not first.reduced[k] and k not in parts]
    order = (*parts, *kept)
    shape = tuple(first.dims[k] for k in order)
    steps = dict(zip(order, contiguous(shape)))
    buffers: dict[str, Buffer] = {}
    body = list(_needed(first.body, [op.arg for op in first.body if isinstance(op, Reduce)]))
    for op in (op for op in first.body if isinstance(op, Reduce)):
        name = fresh(f"{loop.name}_parts")
        buffers[op.result] = Buffer(name, op.dtype, shape, contiguous(shape), device=device)
        body += [op, Store(Access(name, tuple(steps.get(k, 0) for k in range(len(first.dims)))), op.result)]
    names = tuple(buffer.name for buffer in buffers.values())
    over_parts = replace(first, name=names[0], body=tuple(body))
    return over_parts, _last(loop, by, buffers, steps), tuple(buffers.values())


def _is_part(k: int, loop: Loop, by: Division) -> bool:
    """Whether a dimension of the loop with blocks tells parts apart."""
    if by.dim is not None and k == by.dim:
        return True
    return (k if by.dim is None or k < by.dim else k - 1) in by.whole


def _with_blocks(loop: Loop, by: Division) -> Loop:
    """The loop over parts and, reduced, what is in one; points beyond the end of the last block change no result."""
    flags = tuple(r and k not in by.whole for k, r in enumerate(loop.reduced))
    k = by.dim
    if k is None:
        return replace(loop, reduced=flags)

    def move(strides: tuple[Size, ...]) -> tuple[Size, ...]:
        return (*strides[:k], strides[k] * by.block, *strides[k:])

    dims = (*loop.dims[:k], by.blocks, by.block, *loop.dims[k + 1 :])
    split = rename_dims(loop, dims, (*flags[:k], False, *flags[k:]), move)
    if by.blocks * by.block == loop.dims[k]:
        return split
    counted = move(tuple(int(j == k) for j in range(len(loop.dims))))
    return replace(split, body=tuple(_masked(split.body, counted, loop.dims[k])))


def _masked(body: Iterable[Operation], counted: tuple[Size, ...], size: Size) -> Iterable[Operation]:
    """The operations with loads, and what is reduced, for points below a size alone."""
    yield Index("place", counted, 0)
    yield Index("size", (0,) * len(counted), size)
    yield Compute("inside", "lt", ("place", "size"), "bool")
    for op in body:
        if isinstance(op, Load):
            mask = "inside"
            if op.mask is not None:
                mask = f"{op.result}_inside"
                yield Compute(mask, "and", (op.mask, "inside"), "bool")
            yield replace(op, mask=mask)
        elif isinstance(op, Reduce):
            yield Const(f"{op.result}_none", neutral(op.kind, op.dtype), op.dtype)
            yield Compute(f"{op.result}_of", "where", ("inside", op.arg, f"{op.result}_none"), op.dtype)
            yield replace(op, arg=f"{op.result}_of")
        else:
            yield op


def neutral(kind: str, dtype: str) -> float | int | bool:
    """The number that changes no result of a reduction."""
    if kind in ("sum", "any"):
        return False if dtype == "bool" else 0
    if kind in ("prod", "all"):
        return True if dtype == "bool" else 1
    if dtype == "bool":
        return kind == "min"
    if is_float(dtype):
        return math.inf if kind == "min" else -math.inf
    low, high = (0, 2 ** bits(dtype) - 1) if dtype.startswith("u") else (-(2 ** (bits(dtype) - 1)), 0)
    high = high or -low - 1
    return high if kind == "min" else low


def _needed(body: Iterable[Operation], results: Iterable[str]) -> Iterable[Operation]:
    """The operations that these results come of, but for reductions."""
    needed, found = set(results), []
    for op in reversed(tuple(body)):
        if not isinstance(op, (Store, Reduce)) and op.result in needed:
            needed.update(operands(op))
            found.append(op)
    return reversed(found)


def _last(loop: Loop, by: Division, buffers: dict[str, Buffer], steps: dict[int, Size]) -> Loop:
    """The loop that reduces what the parts came to, and goes on as the undivided one did."""
    dims = list(loop.dims)
    for k, reduced in enumerate(loop.reduced):
        if reduced and k not in by.whole:
            dims[k] = by.blocks if k == by.dim else 1
    places = [k if by.dim is None or k <= by.dim else k + 1 for k in range(len(dims))]
    strides = tuple(steps.get(place, 0) for place in places)
    kept = [op for op in loop.body if isinstance(op, Store)]
    wanted = {op.arg for op in kept} | {v for op in kept for v, _ in op.access.indirect}
    after = set(wanted)
    body: list[Operation] = []
    for op in reversed(loop.body):
        if isinstance(op, Reduce) and op.result in after:
            load = f"{op.result}_part"
            access = Access(buffers[op.result].name, strides)
            body += [replace(op, arg=load), Load(load, access, compute_dtype(op.dtype))]
        elif isinstance(op, Store) or (not isinstance(op, Reduce) and op.result in after):
            after.update(operands(op))
            body.append(op)
    flags = tuple(reduced and (k in by.whole or k == by.dim) for k, reduced in enumerate(loop.reduced))
    return replace(loop, dims=tuple(dims), reduced=flags, body=tuple(reversed(body)))
