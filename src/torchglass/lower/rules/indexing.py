"""Operators that join, pad and pick: cat, slice and select backwards, padding, embedding, gather, index.

``cat([a, b], 1)`` of widths 2 and 3 is one loop over 5 columns: ``where(i1 < 2, a[i0, i1], b[i0, i1 - 2])`` with masked
loads, so that producers and consumers can join it. Where the result lies in memory anyway, each part is a loop of its
own that writes to its place, and joins what makes the part.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from ...records.extern_targets import JOIN
from ...records.loops import Access, Loop, View, compute_dtype
from ...records.sizes import Size, at_least, maximum, minimum
from ...records.symbolic_ints import environment_of, size_of, sizes_of
from ..context import Lowering, Splat, dtype_name, known_size, known_sizes
from ..strides import is_dense
from ..table import NotLowered, find_rule, rule
from ..values import V, chosen, every, fits, where


def masked_load(low: Lowering, counter: V, x: Any, shifts: Sequence[Size], mask: V | None, other: Any) -> V:
    """``x`` at ``point - shifts`` where ``mask`` holds, ``other`` elsewhere."""
    body = counter.body
    dtype = compute_dtype(low.dtype(x))
    if isinstance(x, Splat):
        value = body.const(x.value, dtype)
        return value if mask is None else where(mask, value, other)
    offset = x.offset
    for shift, stride in zip(shifts, x.strides):
        offset = offset - shift * stride
    return body.load(Access(x.buffer, tuple(x.strides), offset), dtype, mask, other)


@rule("stack")
def _stack(low: Lowering, node: fx.Node, tensors: Sequence[Any], dim: int = 0) -> View:
    dim = dim % len(node.meta["val"].shape)
    return _cat(low, node, [_unsqueeze(x, dim) for x in tensors], dim)


def _triangle(op: str) -> Any:
    def lower(low: Lowering, node: fx.Node, x: Any, diagonal: int = 0) -> View:
        def element(counters: list[V], v: V) -> V:
            return where((counters[-1] - counters[-2]).do(op, diagonal), v, 0)

        return low.finish(element, [x], node, indexed=True)

    return lower


rule("tril")(_triangle("le"))
rule("triu")(_triangle("ge"))


@rule("flip")
def _flip(low: Lowering, node: fx.Node, x: Any, dims: Sequence[int]) -> View:
    if not isinstance(x, View):
        raise NotLowered("a repeated number")
    if not x.shape:  # eager lets dims name the one dimension that is not there
        return low.finish(lambda v: v, [x], node)
    over = {d % len(x.shape) for d in dims}
    offset = x.offset
    for d in over:
        offset = offset + (x.shape[d] - 1) * x.strides[d]
    if 0 in x.shape:
        raise NotLowered("no elements")
    strides = tuple(-s if d in over else s for d, s in enumerate(x.strides))
    return low.finish(lambda v: v, [View(x.buffer, x.shape, strides, offset)], node)


@rule("roll")
def _roll(low: Lowering, node: fx.Node, x: Any, shifts: Sequence[int], dims: Sequence[int] = ()) -> View:
    """Two parts of a dimension change places, four of two: what wrapped around, and what moved on."""
    rank = len(x.shape)
    moved = {d % rank: shift for d, shift in zip(dims, known_sizes(sizes_of(shifts)))}
    if not isinstance(x, View) or not 1 <= len(moved) <= 2 or len(moved) != len(dims):
        raise NotLowered("the flat tensor, or many dimensions")
    if 0 in x.shape:
        raise NotLowered("nothing to move")
    sizes = dict(zip(moved, known_sizes([x.shape[d] for d in moved])))
    moved = {d: shift % sizes[d] for d, shift in moved.items() if shift % sizes[d]}
    if not moved:
        return low.finish(lambda v: v, [x], node)

    def element(counters: list[V]) -> V:
        def part(wraps: Sequence[bool]) -> tuple[V | None, V]:
            wrapped = dict(zip(moved, wraps))
            mask = every(counters[d].do("lt" if wrapped[d] else "ge", shift) for d, shift in moved.items())
            steps = [moved[d] - wrapped[d] * sizes[d] if d in moved else 0 for d in range(rank)]
            return mask, masked_load(low, counters[0], x, steps, mask, 0)

        return chosen(map(part, itertools.product((False, True), repeat=len(moved))))

    return low.finish(element, [], node, indexed=True)


@rule("cat")
def _cat(low: Lowering, node: fx.Node, tensors: Sequence[Any], dim: int = 0) -> View:
    val = node.meta["val"]
    shape = sizes_of(val.shape)
    rank = len(shape)
    dim = dim % max(rank, 1)
    parts = [x for x in tensors if not (len(x.shape) == 1 and x.shape[0] == 0)]  # the old empty 1-D tensors
    if not parts or any(len(p.shape) != rank for p in parts):
        raise NotLowered("parts of different ranks")
    made_here = any(isinstance(x, View) and low.buffers[x.buffer].role == "temp" for x in parts)
    if made_here and _is_stored(node) and is_dense(shape, sizes_of(val.stride())):
        return _written_in_place(low, node, parts, dim)
    if len(parts) > low.limits.joined_parts:
        raise NotLowered("many parts: a copy each by ATen is as fast")
    to = compute_dtype(dtype_name(val.dtype))
    ends: list[Size] = list(itertools.accumulate((part.shape[dim] for part in parts), initial=0))

    def element(counters: list[V]) -> V:
        i, last = counters[dim], len(parts) - 1

        def picked(k: int) -> tuple[V | None, V]:
            inside = _between(i, ends[k] if k else None, ends[k + 1] if k < last else None) if last else None
            shifts = [ends[k] if d == dim else 0 for d in range(rank)]
            return inside, masked_load(low, i, parts[k], shifts, inside, 0).cast(to)

        return chosen(map(picked, range(len(parts))))

    return low.finish(element, [], node, indexed=True)


def _is_stored(node: fx.Node) -> bool:
    """Whether the result lies in memory in any case: something other than loops reads it, or it leaves the graph."""
    for user in node.users:
        schema = getattr(user.target, "_schema", None)
        if user.op == "output" or schema is None or find_rule(user.target) is None:
            return True
        if any(r.alias_info is not None for r in schema.returns) and _is_stored(user):
            return True
    return False


def _written_in_place(low: Lowering, node: fx.Node, parts: Sequence[Any], dim: int) -> View:
    """A copy of each part to its place, which can become part of the kernel that makes it."""
    whole = low.result(node)
    starts = itertools.accumulate((part.shape[dim] for part in parts), initial=0)
    copies = [
        low.copy_into(whole, part, start * whole.strides[dim], f"{node.name}_part_{k}")
        for k, (part, start) in enumerate(zip(parts, starts))
    ]
    low.extern(JOIN, copies, {}, [whole.buffer])
    return whole


def _between(i: V, start: Size | None, end: Size | None) -> V:
    checks = [i.do(op, edge) for op, edge in (("ge", start), ("lt", end)) if edge is not None]
    return checks[0] if len(checks) == 1 else checks[0].do("and", checks[1])


@rule("constant_pad_nd")
def _pad(low: Lowering, node: fx.Node, x: Any, pad: Sequence[int], value: Any = 0) -> View:
    shape = sizes_of(node.meta["val"].shape)
    if not fits(value, low.dtype(x)):
        raise NotLowered("a number that the dtype does not hold: eager raises")
    rank, pads = len(shape), known_sizes(sizes_of(pad))
    before = [0] * rank
    for k in range(len(pads) // 2):
        before[rank - 1 - k] = pads[2 * k]
    if _is_stored(node) and _made_by_loop(low, x) and min(pads, default=0) >= 0:
        return _padded_in_place(low, node, x, before, value)
    return low.finish(padded(low, x, before, shape, value), [], node, indexed=True)


def padded(low: Lowering, x: Any, before: Sequence[int], shape: Sequence[Size], value: Any) -> Callable[[list[V]], V]:
    """The elements of ``x`` and ``value`` around it, ``shape`` in all, of which ``before`` lie ahead of ``x``."""

    def element(counters: list[V]) -> V:
        edges = [(first if first > 0 else None, first + size) for first, size in zip(before, x.shape)]
        sides = [(start, end if end != size else None) for (start, end), size in zip(edges, shape)]
        mask = every(_between(i, *side) for i, side in zip(counters, sides) if side != (None, None))
        return masked_load(low, counters[0], x, before, mask, value)

    return element


def _made_by_loop(low: Lowering, x: Any) -> bool:
    maker = next((n for n in reversed(low.nodes) if isinstance(x, View) and x.buffer in n.writes), None)
    return isinstance(maker, Loop)


def _padded_in_place(low: Lowering, node: fx.Node, x: View, before: Sequence[int], value: Any) -> View:
    """A copy of ``x`` to the middle, which can become part of the kernel that makes it, and a border of numbers."""
    whole = low.result(node)
    shape, strides, dtype = whole.shape, whole.strides, low.dtype(whole)
    if not is_dense(shape, strides) or 0 in x.shape:
        raise NotLowered("elements that overlap, or none")
    parts: list[View] = []

    def part(source: View | Splat, starts: Sequence[Size]) -> None:
        place: Size = sum(start * stride for start, stride in zip(starts, strides))
        parts.append(low.copy_into(whole, source, place, f"{node.name}_part_{len(parts)}"))

    part(x, before)
    for k, size in enumerate(x.shape):  # outside along k, inside along those before, anywhere along those after
        for first, end in ((0, before[k]), (before[k] + size, shape[k])):
            if known_size(end - first) > 0:
                slab = (*x.shape[:k], end - first, *shape[k + 1 :])
                part(Splat(value, dtype, slab), (*before[:k], first, *(0,) * (len(shape) - k - 1)))
    low.extern(JOIN, parts, {}, [whole.buffer])
    return whole


@rule("slice_backward")
def _slice_backward(
    low: Lowering, node: fx.Node, grad: Any, sizes: Any, dim: int, start: Any, end: Any, step: int
) -> View:
    if step != 1:
        raise NotLowered("a step")
    shape = sizes_of(node.meta["val"].shape)
    dim = dim % len(shape)
    length, start = shape[dim], known_size(0 if start is None else start)
    first = minimum(start, length) if start >= 0 else maximum(start + length, 0)
    last = first + grad.shape[dim]

    def element(counters: list[V]) -> V:
        i = counters[dim]
        low_edge, high = (first if first != 0 else None), (last if last != length else None)
        mask = None if low_edge is None and high is None else _between(i, low_edge, high)
        return masked_load(low, i, grad, [first if d == dim else 0 for d in range(len(shape))], mask, 0)

    return low.finish(element, [], node, indexed=True)


@rule("select_backward")
def _select_backward(low: Lowering, node: fx.Node, grad: Any, sizes: Any, dim: int, index: Any) -> View:
    shape = sizes_of(node.meta["val"].shape)
    dim = dim % len(shape)
    place = _from_the_start(index, shape[dim])
    wide = _unsqueeze(grad, dim)

    def element(counters: list[V]) -> V:
        return masked_load(low, counters[dim], wide, [0] * len(shape), counters[dim].do("eq", place), 0)

    return low.finish(element, [], node, indexed=True)


def _from_the_start(index: Any, size: Size) -> Size:
    """A place that may count from the end; forward has assumed whether it does."""
    environment, place = environment_of([index]), size_of(index)
    counts_on = environment.proved(place, ">=", 0) if environment is not None else at_least(place, 0)
    if counts_on is None:
        raise NotLowered("a place that may count from the end, or not")
    return place if counts_on else place + size


def _unsqueeze(x: Any, dim: int) -> Any:
    if isinstance(x, Splat):
        return Splat(x.value, x.dtype, (*x.shape[:dim], 1, *x.shape[dim:]))
    return View(x.buffer, (*x.shape[:dim], 1, *x.shape[dim:]), (*x.strides[:dim], 0, *x.strides[dim:]), x.offset)
