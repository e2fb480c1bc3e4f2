"""Operators that read where other tensors say: embedding, index_select, gather, index.

``embedding(weight, ids)`` of ids (4, 7) and width 64 is one loop over (4, 7, 64)::

    t0 = load ids[7*i0 + i1] : int64
    t1 = bound t0 1000 ... : int64          an error after the kernel, as eager's, when 1000 <= t0 or t0 < 0
    t2 = load weight[i2 + 64*t1] : float32

``bound`` keeps the read inside the buffer whatever the index is; the wrapper raises what eager would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from ...records.index_errors import INDEX_ERRORS
from ...records.loops import Access, View, compute_dtype
from ...records.sizes import Size
from ...records.symbolic_ints import sizes_of
from ..context import Lowering
from ..table import NotLowered, rule
from ..values import V, where

INDEX_SELF, INDEX_DIM, INDEX_GATHER, INDEX_TARGET, ZERO_DIVISION, INDEX_COPY = range(len(INDEX_ERRORS))


def bounded(index: V, size: Size, error: int, dim: int = 0) -> V:
    """``index`` when ``0 <= index < size``, else 0 and the numbered error once the kernel has run."""
    index = index.cast("int64")
    facts = (index, index.lift(size), index.lift(error), index.lift(dim))
    return index.body.compute("bound", facts, "int64")


def wrapped(index: V, size: Size, error: int, dim: int = 0) -> V:
    """The same for indices that count from the end when negative."""
    index = index.cast("int64")
    return bounded(where(index < 0, index + size, index), size, error, dim)


def picked(low: Lowering, x: View, dim: int, place: V, rank: int, at: Sequence[int] | None = None) -> V:
    """``x`` at the loop's point, but for dimension ``dim``, where ``place`` says.

    ``at[d]``: which of the loop's ``rank`` dimensions walks dimension d of x (default: d itself).
    """
    at = list(range(len(x.shape))) if at is None else list(at)
    strides: list[Size] = [0] * rank
    for d, stride in enumerate(x.strides):
        if d != dim and x.shape[d] != 1:
            strides[at[d]] = stride
    access = Access(x.buffer, tuple(strides), x.offset, ((place.name, x.strides[dim]),))
    return place.body.load(access, compute_dtype(low.dtype(x)))


def indices_of(low: Lowering, index: Any) -> View:
    """An argument that is a tensor of whole numbers."""
    if not isinstance(index, View) or low.dtype(index) not in ("int64", "int32"):
        raise NotLowered("indices of another kind")
    return index


def _table(x: Any, dim: int) -> View:
    if not isinstance(x, View) or not x.shape or x.shape[dim] == 0:
        raise NotLowered("nothing to read from")
    return x


@rule("embedding")
def _embedding(
    low: Lowering, node: fx.Node, weight: Any, ids: Any, padding: int = -1, by_frequency: bool = False,
    sparse: bool = False,
) -> View:  # fmt: skip
    weight, ids = _table(weight, 0), indices_of(low, ids)
    rank = len(ids.shape)
    wide = View(ids.buffer, (*ids.shape, 1), (*ids.strides, 0), ids.offset)

    def row(index: V) -> V:
        return picked(low, weight, 0, bounded(index, weight.shape[0], INDEX_SELF), rank + 1, [0, rank])

    return low.finish(row, [wide], node)


@rule("index_select")
def _index_select(low: Lowering, node: fx.Node, x: Any, dim: int, index: Any) -> View:
    if not isinstance(x, View) or not x.shape:
        raise NotLowered("a single number")
    dim = dim % len(x.shape)
    x, index, rank = _table(x, dim), indices_of(low, index), len(x.shape)
    if len(index.shape) != 1:
        raise NotLowered("a single index")
    where_to = along(index, dim, rank)
    return low.finish(lambda i: picked(low, x, dim, bounded(i, x.shape[dim], INDEX_SELF), rank), [where_to], node)


def along(index: View, dim: int, rank: int) -> View:
    """One index (or one number) as a view of ``rank`` dimensions that moves along ``dim`` alone."""
    size, stride = (index.shape[0], index.strides[0]) if index.shape else (1, 0)
    shape = tuple(size if d == dim else 1 for d in range(rank))
    return View(index.buffer, shape, tuple(stride if d == dim else 0 for d in range(rank)), index.offset)


@rule("gather")
def _gather(low: Lowering, node: fx.Node, x: Any, dim: int, index: Any, sparse_grad: bool = False) -> View:
    if not isinstance(x, View) or not x.shape:
        raise NotLowered("a single number")
    dim = dim % len(x.shape)
    x, index = _table(x, dim), indices_of(low, index)

    def element(i: V) -> V:
        return picked(low, x, dim, bounded(i, x.shape[dim], INDEX_GATHER, dim), len(index.shape))

    return low.finish(element, [index], node)


@rule("index.Tensor")
def _index(low: Lowering, node: fx.Node, x: Any, indices: Sequence[Any]) -> View:
    """``x[:, i, j]``: the indices' common shape stands where they stand, or first when they are apart."""
    given = {d: indices_of(low, i) for d, i in enumerate(indices) if i is not None}
    if not isinstance(x, View) or not given or any(x.shape[d] == 0 for d in given):
        raise NotLowered("nothing to read from")
    shape = sizes_of(node.meta["val"].shape)
    kept, places, views = spread(given, len(x.shape))
    if len(kept) + max(len(i.shape) for i in given.values()) != len(shape):
        raise NotLowered("dimensions that do not add up")

    def element(*values: V) -> V:
        strides: list[Size] = [0] * len(shape)
        for d, p in zip(kept, places):
            strides[p] = x.strides[d]
        bound = [(wrapped(v, x.shape[d], INDEX_DIM, d).name, x.strides[d]) for d, v in zip(given, values)]
        access = Access(x.buffer, tuple(strides), x.offset, tuple(bound))
        return values[0].body.load(access, compute_dtype(low.dtype(x)))

    return low.finish(element, views, node)


def spread(given: dict[int, View], rank: int) -> tuple[list[int], list[int], list[View]]:
    """Of ``x[:, i, j]`` with ``rank`` dimensions: those without an index, where they stand among the result's, and the
    indices as views of all of the result's.
    """
    width = max(len(i.shape) for i in given.values())
    together = list(given) == list(range(min(given), min(given) + len(given)))
    start = min(given) if together else 0
    kept = [d for d in range(rank) if d not in given]
    places = [p if p < start else p + width for p in range(len(kept))]
    return kept, places, [_at_dims(i, start, width, len(kept) + width) for i in given.values()]


def _at_dims(index: View, start: int, width: int, rank: int) -> View:
    """The index's dimensions at ``start`` .. ``start + width`` of ``rank`` dimensions."""
    before = start + width - len(index.shape)
    after = rank - start - width
    shape = (*(1,) * before, *index.shape, *(1,) * after)
    return View(index.buffer, shape, (*(0,) * before, *index.strides, *(0,) * after), index.offset)
