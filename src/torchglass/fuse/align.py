"""Bringing two nests over the same points to the same dimensions.

Two loops meet in a buffer: one walks it as (4, 128, 256), the other as (512, 256). From the strides with which each
moves through it follows which dimensions are the same, and where one must be split: 512 -> 4 x 128. Example::

    match([4, 128, 256], [32768, 256, 1], [512, 256], [256, 1])
    -> Match(first=[[4], [128], [256]], second=[[4, 128], [256]], pairs=[(0, 0), (1, 1), (2, 2)])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..records.loops import Compute, Index, Loop, Reduce, Scan, rename_dims
from ..records.sizes import Size, divides, hint

Moving: TypeAlias = "tuple[int, Size, Size]"
"""A dimension, its size, and the stride with which it moves through the buffer."""


@dataclass(frozen=True)
class Match:
    """How to split the dimensions of two nests, outermost factor first, and which resulting dimensions are the same.

    ``pairs``: (dimension of the first, dimension of the second), None where the other nest does not move.
    """

    first: tuple[tuple[Size, ...], ...]
    second: tuple[tuple[Size, ...], ...]
    pairs: tuple[tuple[int | None, int | None], ...]


def match(
    dims_a: Sequence[Size], strides_a: Sequence[Size], dims_b: Sequence[Size], strides_b: Sequence[Size]
) -> Match | None:
    """Match two nests by the strides with which they walk one buffer; None if they cannot be brought together."""
    factors_a: list[list[Size]] = [[] for _ in dims_a]
    factors_b: list[list[Size]] = [[] for _ in dims_b]
    links: list[tuple[tuple[int, int], tuple[int, int]]] = []
    moving_a, moving_b = _moving(dims_a, strides_a), _moving(dims_b, strides_b)
    if not _walk(moving_a, moving_b, factors_a, factors_b, links, by_stride=True):
        return None
    rest_a: list[Moving] = [(k, d, 0) for k, d in reversed(list(enumerate(dims_a))) if strides_a[k] == 0 and d != 1]
    rest_b: list[Moving] = [(k, d, 0) for k, d in reversed(list(enumerate(dims_b))) if strides_b[k] == 0 and d != 1]
    if rest_a and rest_b and not _walk(rest_a, rest_b, factors_a, factors_b, links, by_stride=False):
        return None
    return _finish(dims_a, dims_b, factors_a, factors_b, links)


def _moving(dims: Sequence[Size], strides: Sequence[Size]) -> list[Moving]:
    """The dimensions that move, innermost first."""
    moving = [(k, d, s) for k, (d, s) in enumerate(zip(dims, strides)) if d != 1 and s != 0]
    return sorted(moving, key=lambda m: hint(m[2]))


def _walk(
    rest_a: list[Moving],
    rest_b: list[Moving],
    factors_a: list[list[Size]],
    factors_b: list[list[Size]],
    links: list[tuple[tuple[int, int], tuple[int, int]]],
    by_stride: bool,
) -> bool:
    """Walk both lists from the innermost dimension out, splitting the larger where they differ."""
    stack_a, stack_b = list(reversed(rest_a)), list(reversed(rest_b))
    while stack_a and stack_b:
        ka, da, sa = stack_a.pop()
        kb, db, sb = stack_b.pop()
        if by_stride and sa != sb:
            return False
        if da == db:
            step = da
        elif divides(db, da):
            step = db
        elif divides(da, db):
            step = da
        else:
            return False
        links.append(((ka, len(factors_a[ka])), (kb, len(factors_b[kb]))))
        factors_a[ka].append(step)
        factors_b[kb].append(step)
        if da != step:
            stack_a.append((ka, da // step, sa * step))
        if db != step:
            stack_b.append((kb, db // step, sb * step))
    return not stack_a and not stack_b


def _finish(
    dims_a: Sequence[Size],
    dims_b: Sequence[Size],
    factors_a: list[list[Size]],
    factors_b: list[list[Size]],
    links: list[tuple[tuple[int, int], tuple[int, int]]],
) -> Match:
    first = tuple(tuple(reversed(f)) if f else (d,) for f, d in zip(factors_a, dims_a))
    second = tuple(tuple(reversed(f)) if f else (d,) for f, d in zip(factors_b, dims_b))
    place_a = [sum(len(f) for f in first[:k]) for k in range(len(first))]
    place_b = [sum(len(f) for f in second[:k]) for k in range(len(second))]
    partner: dict[int, int] = {}
    for (ka, ia), (kb, ib) in links:
        partner[place_a[ka] + len(first[ka]) - 1 - ia] = place_b[kb] + len(second[kb]) - 1 - ib
    flat_a = [d for f in first for d in f]
    flat_b = [d for f in second for d in f]
    pairs: list[tuple[int | None, int | None]] = [(k, partner.get(k)) for k in range(len(flat_a)) if flat_a[k] != 1]
    taken = set(partner.values())
    pairs += [(None, k) for k in range(len(flat_b)) if k not in taken and flat_b[k] != 1]
    return Match(first, second, tuple(pairs))


def apply_split(loop: Loop, factors: Sequence[Sequence[Size]], order: Sequence[int | None]) -> Loop:
    """Split every dimension into ``factors`` (outermost first), then pick the results in ``order`` (None: size 1)."""
    if all(len(fs) == 1 for fs in factors) and tuple(order) == tuple(range(len(loop.dims))):
        return loop  # a loop has no steps along its dimensions of size 1: see ``drop_ones``
    dims: list[Size] = []
    flags: list[bool] = []
    for fs, reduced, dim in zip(factors, loop.reduced, loop.dims):
        own = list(fs) if dim != 1 else [1] * len(fs)
        dims += own
        flags += [reduced and d != 1 for d in own]

    def move(strides: tuple[Size, ...]) -> tuple[Size, ...]:
        flat: list[Size] = []
        for fs, stride, dim in zip(factors, strides, loop.dims):
            step = stride if dim != 1 else 0
            pieces: list[Size] = []
            for f in reversed(fs):
                pieces.append(step)
                step = step * f
            flat += reversed(pieces)
        return tuple(flat[k] if k is not None else 0 for k in order)

    new_dims = tuple(dims[k] if k is not None else 1 for k in order)
    return rename_dims(loop, new_dims, tuple(flags[k] if k is not None else False for k in order), move)


def drop_ones(loop: Loop) -> Loop:
    """The loop without its dimensions of size 1, and with strides 0 where it does not move."""
    keep = [k for k, d in enumerate(loop.dims) if d != 1]
    if len(keep) == len(loop.dims):
        return loop

    def move(strides: tuple[Size, ...]) -> tuple[Size, ...]:
        return tuple(strides[k] for k in keep)

    flags = tuple(loop.reduced[k] for k in keep)
    slim = rename_dims(loop, tuple(loop.dims[k] for k in keep), flags, move)
    idle = (Reduce,) * (not any(flags)) + (Scan,) * (not any(slim.scanned))  # over a single element
    body = tuple(Compute(o.result, "cast", (o.arg,), o.dtype) if isinstance(o, idle) else o for o in slim.body)
    return replace(slim, body=body)


def collapsed(loop: Loop) -> Loop:
    """The loop with neighbouring dimensions as one wherever all its addresses walk them as one."""
    for k in reversed(range(len(loop.dims) - 1)):
        walks = [load.access.strides for load in loop.loads] + [store.access.strides for store in loop.stores]
        walks += [op.strides for op in loop.body if isinstance(op, (Index, Scan))]
        size = loop.dims[k + 1]
        if loop.reduced[k] != loop.reduced[k + 1] or any(s[k] != s[k + 1] * size for s in walks):
            continue

        def move(strides: tuple[Size, ...], k: int = k) -> tuple[Size, ...]:
            return (*strides[:k], *strides[k + 1 :])

        dims = (*loop.dims[:k], loop.dims[k] * size, *loop.dims[k + 2 :])
        loop = rename_dims(loop, dims, (*loop.reduced[:k], *loop.reduced[k + 1 :]), move)
    return loop
