"""Operators that write where other tensors say: scatter, index_add, index_put, index_copy, the backward of embedding.

``x.index_add(0, ids, rows)`` of 7 rows of width 64 is a copy of ``x`` and one loop over (7, 64) that adds to it::

    t0 = load ids[i0] : int64
    t1 = bound t0 1000 ... : int64
    t2 = load rows[64*i0 + i1] : float32
    add index_add[i1 + 64*t1] t2 onto index_add_before

``index_add_before`` is the copy, in the same memory. Rows come one after the other, as in eager: two may meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from ...records.loops import Access, View, compute_dtype
from ...records.sizes import Size
from ...records.symbolic_ints import sizes_of
from ..context import Lowering, Splat, dtype_name, layout_of
from ..strides import broadcast, is_dense
from ..table import NotLowered, rule
from ..values import Body, V, where
from .gathering import INDEX_COPY, INDEX_DIM, INDEX_GATHER, INDEX_SELF, along, bounded, indices_of, spread, wrapped

Places = Sequence[tuple[V, Size]]


def _check_ordered(low: Lowering) -> None:
    """NotLowered where points do not run in order, and eager's call adds up in one."""
    if not low.limits.ordered_sums:
        raise NotLowered("sums in one order: by sorting the places")


class _Writer:
    """The loop of one node that writes to some elements of ``x``'s copy, at the points of ``shape``.

    ``wide``: numbers of half precision are added up in float32, as some of eager's operators do.
    """

    def __init__(self, low: Lowering, node: fx.Node, x: Any, shape: Sequence[Size], wide: bool = False) -> None:
        val = node.meta["val"]
        if 0 in (*sizes_of(val.shape), *shape) or not is_dense(*layout_of(val)):
            raise NotLowered("nothing to write, or elements that overlap")
        self.low, self.node, self.shape, self.body = low, node, tuple(shape), Body(len(shape))
        self.dtype = dtype_name(val.dtype)
        kind = compute_dtype(self.dtype) if wide else self.dtype
        name = node.name if kind == self.dtype else f"{node.name}_sum"
        self.out = out = low.buffer(name, kind, *layout_of(val))
        self.before = low.copy_into(out, x, 0, f"{node.name}_before").buffer

    def load(self, x: Any) -> V:
        """``x`` at the loop's point, with broadcasting; a number as it is."""
        if isinstance(x, View):
            return self.body.load(self.low.access(x, self.shape), compute_dtype(self.low.dtype(x)))
        value = x.value if isinstance(x, Splat) else x
        return self.body.const(value, compute_dtype(self.low.dtype(self.out)))

    def write(self, strides: Sequence[Size], places: Places, value: V, add: bool) -> View:
        """Store ``value`` where the counters, by ``strides``, and the computed ``places`` say."""
        low, out, dtype = self.low, self.out, self.low.dtype(self.out)
        if add and dtype == "bool":
            raise NotLowered("a sum of bools")
        access = Access(out.buffer, tuple(strides), 0, tuple((v.name, s) for v, s in places))
        self.body.store(access, value.cast(compute_dtype(dtype)), self.before, add)
        low.append(out.buffer, self.shape, self.body)
        return low.finish(lambda v: v, [out], self.node) if dtype != self.dtype else out

    def write_along(self, dim: int, place: V, value: V, add: bool) -> View:
        """The same at the point itself, but for dimension ``dim``, where ``place`` says."""
        strides = [0 if d == dim or self.out.shape[d] == 1 else s for d, s in enumerate(self.out.strides)]
        return self.write(strides, [(place, self.out.strides[dim])], value, add)


def _rows(low: Lowering, x: Any, dim: int, index: Any, source: Any) -> tuple[int, View]:
    """The dimension counted from the front, and the index as a view that broadcasts with ``source``."""
    if not isinstance(x, (View, Splat)) or not x.shape or not isinstance(source, View) or not source.shape:
        raise NotLowered("a single number")
    dim, index = dim % len(x.shape), indices_of(low, index)
    if len(index.shape) > 1:
        raise NotLowered("indices of several dimensions")
    return dim, along(index, dim, len(x.shape))


@rule("index_add")
def _index_add(
    low: Lowering, node: fx.Node, x: Any, dim: int, index: Any, source: Any, *, alpha: float = 1
) -> View:  # fmt: skip
    dim, index = _rows(low, x, dim, index, source)
    w = _Writer(low, node, x, source.shape, wide=alpha == 1 and len(x.shape) > 1)
    value = w.load(source)
    place = bounded(w.load(index), x.shape[dim], INDEX_SELF if len(x.shape) == 1 else INDEX_GATHER, dim)
    return w.write_along(dim, place, value if alpha == 1 else value * alpha, add=True)


@rule("index_copy")
def _index_copy(low: Lowering, node: fx.Node, x: Any, dim: int, index: Any, source: Any) -> View:
    dim, index = _rows(low, x, dim, index, source)
    w = _Writer(low, node, x, source.shape)
    return w.write_along(dim, bounded(w.load(index), x.shape[dim], INDEX_COPY, dim), w.load(source), add=False)


@rule("index_fill.int_Scalar", "index_fill.int_Tensor")
def _index_fill(low: Lowering, node: fx.Node, x: Any, dim: int, index: Any, value: Any) -> View:
    if not isinstance(x, (View, Splat)) or not x.shape:
        raise NotLowered("a single number")
    dim, index = dim % len(x.shape), indices_of(low, index)
    rows = index.shape[0] if index.shape else 1
    w = _Writer(low, node, x, (*x.shape[:dim], rows, *x.shape[dim + 1 :]))
    place = wrapped(w.load(along(index, dim, len(x.shape))), x.shape[dim], INDEX_DIM, dim)
    return w.write_along(dim, place, w.load(value), add=False)


@rule("scatter.src", "scatter.value", "scatter_add")
def _scatter(low: Lowering, node: fx.Node, x: Any, dim: int, index: Any, source: Any) -> View:
    """``x[..., index[i], ...] = source[i]``, or ``+=``: source may be larger than the index, or a number."""
    if not isinstance(x, (View, Splat)) or not x.shape:
        raise NotLowered("a single number")
    dim, index = dim % len(x.shape), indices_of(low, index)
    if len(index.shape) != len(x.shape):
        raise NotLowered("an empty index")
    add = low.op.endswith("scatter_add")
    w = _Writer(low, node, x, index.shape, wide=add)
    if isinstance(source, View):
        source = View(source.buffer, index.shape, source.strides, source.offset)
    place = bounded(w.load(index), x.shape[dim], INDEX_GATHER, dim)
    return w.write_along(dim, place, w.load(source), add)


@rule("embedding_dense_backward")
def _embedding_dense_backward(
    low: Lowering, node: fx.Node, grad: Any, ids: Any, count: int, padding: int, by_frequency: bool
) -> View:
    ids = indices_of(low, ids)
    if by_frequency or not isinstance(grad, View):
        raise NotLowered("gradients divided by how often a row was read")
    _check_ordered(low)
    out = sizes_of(node.meta["val"].shape)
    w = _Writer(low, node, Splat(0, low.dtype(grad), out), grad.shape)
    rank = len(grad.shape)
    index = w.load(View(ids.buffer, (*ids.shape, 1), (*ids.strides, 0), ids.offset))
    value = w.load(grad)
    if padding >= 0:
        value = where(index.do("eq", padding), 0, value)
    strides = (*(0,) * (rank - 1), w.out.strides[1])
    return w.write(strides, [(bounded(index, count, INDEX_SELF), w.out.strides[0])], value, add=True)


@rule("index_put", "_unsafe_index_put")
def _index_put(
    low: Lowering, node: fx.Node, x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False
) -> View:
    """``x[:, i, j] = values``: the indices' common shape stands where they stand, or first when they are apart."""
    if len(indices) == 1 and isinstance(indices[0], View) and low.dtype(indices[0]) == "bool":
        return _masked(low, node, x, indices[0], values, accumulate)
    if accumulate:
        _check_ordered(low)
    given = {d: indices_of(low, i) for d, i in enumerate(indices) if i is not None}
    if not isinstance(x, (View, Splat)) or not given:
        raise NotLowered("no indices")
    x_shape = x.shape
    kept, places, views = spread(given, len(x_shape))
    shape = list(broadcast(*(i.shape for i in views)))
    for d, p in zip(kept, places):
        shape[p] = x_shape[d]
    w = _Writer(low, node, x, shape)
    if isinstance(values, View) and len(values.shape) > len(shape):
        raise NotLowered("values of more dimensions")
    strides: list[Size] = [0] * len(shape)
    for d, p in zip(kept, places):
        strides[p] = w.out.strides[d] if x_shape[d] != 1 else 0
    loads = [(d, w.load(view)) for d, view in zip(given, views)]
    bound = [(wrapped(v, x_shape[d], INDEX_DIM, d), w.out.strides[d]) for d, v in loads]
    return w.write(strides, bound, w.load(values), accumulate)


def _masked(low: Lowering, node: fx.Node, x: Any, mask: View, value: Any, accumulate: bool) -> View:
    """``x[mask] = number``: a choice for each element."""
    if accumulate or not isinstance(x, (View, Splat)) or any(s != 1 for s in getattr(value, "shape", ())):
        raise NotLowered("values for some elements")
    if mask.shape != x.shape[: len(mask.shape)]:
        raise NotLowered("a mask of another shape")
    rank = len(x.shape)
    fits = View(mask.buffer, (*mask.shape, *(1,) * (rank - len(mask.shape))),
                (*mask.strides, *(0,) * (rank - len(mask.shape))), mask.offset)  # fmt: skip
    number = View(value.buffer, (), (), value.offset) if isinstance(value, View) else value
    return low.finish(lambda m, v, old: where(m, v, old), [fits, number, x], node)
