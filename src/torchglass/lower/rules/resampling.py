"""Padding by what is there and resizing of images: every output reads the input at places computed from its own.

``reflection_pad1d(x, [2, 1])`` is one loop over the output: ``j = |i - 2|``, ``j = (n - 1) - |(n - 1) - j|``, a load of
``x[j]``. A bilinear resize loads four places and adds them by their weights. Places and weights are computed as eager
computes them, in float32 (float64 for float64), so that both pick the same elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from ...records.loops import HALF, Access, View, compute_dtype
from ...records.size_floats import Float, as_float, maximum
from ...records.sizes import Size, hint, product
from ...records.symbolic_ints import sizes_of
from ...torch_compat import OpOverload
from ..context import Lowering, known_sizes
from ..table import NotLowered, find_rule, rule
from ..values import V, absolute, is_float, summed, where

CUBIC = -0.75  # the free coefficient of eager's cubic convolution
Places = list[tuple[V, "V | None"]]  # a place along one dimension, and its weight


def _still(x: Any, spatial: int) -> View:
    """The input: not empty, at least ``spatial`` dimensions."""
    if not isinstance(x, View) or len(x.shape) < spatial or 0 in x.shape:
        raise NotLowered("nothing to read from")
    return x


def read_at(low: Lowering, x: View, places: Sequence[V | None], body_of: V) -> V:
    """``x`` at the loop's point, but for dimensions with a computed place."""
    strides = tuple(0 if place is not None else stride for place, stride in zip(places, x.strides))
    moved = tuple((place.name, stride) for place, stride in zip(places, x.strides) if place is not None)
    return body_of.body.load(Access(x.buffer, strides, x.offset, moved), compute_dtype(low.dtype(x)))


def limited(i: V, size: Size) -> V:
    """The nearest place that there is."""
    return i.do("maximum", 0).do("minimum", size - 1)


# -- padding ---------------------------------------------------------------------------------------------------------
def _reflected(i: V, size: Size) -> V:
    last = i.lift(size - 1)
    return last - absolute(last - absolute(i))


def _is_apart(low: Lowering, node: fx.Node, x: View, spatial: int) -> bool:
    """Whether a padding shares no loop with what it is of and what becomes of it, or its gathers are no vectors."""
    made_here = low.buffers[x.buffer].role == "temp"
    joins = spatial == 1 or made_here or any(map(_is_loops, node.users))
    return low.dtype(x) in HALF or not joins


def _is_loops(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and find_rule(node.target) is not None


def _padding(spatial: int, place: Callable[[V, Size], V]) -> Callable[..., View]:
    def lower(low: Lowering, node: fx.Node, x: Any, pad: Sequence[int]) -> View:
        x = _still(x, spatial)
        rank, pad = len(x.shape), known_sizes(sizes_of(pad))
        if x.strides[-1] == 1 and hint(product(x.shape)) >= low.limits.padded_rows and _is_apart(low, node, x, spatial):
            raise NotLowered("rows that ATen copies: nothing is computed beside it, or of halves")
        before = {rank - 1 - k: pad[2 * k] for k in range(len(pad) // 2)}

        def element(counters: list[V]) -> V:
            places = [place(counters[d] - before[d], x.shape[d]) if d in before else None for d in range(rank)]
            return read_at(low, x, places, counters[0])

        return low.finish(element, [], node, indexed=True)

    return lower


for _spatial in (1, 2, 3):
    rule(f"reflection_pad{_spatial}d")(_padding(_spatial, _reflected))
    rule(f"replication_pad{_spatial}d")(_padding(_spatial, limited))


Folds = list[
    tuple[Size, Size]
]  # what a place in the middle gets from the padding: (place, where that lies in the whole)


def _reflecting(size: Size, before: int, after: int) -> Folds:
    left: Folds = [(k, before - k) for k in range(1, before + 1)]
    return left + [(size - 1 - k, before + size - 1 + k) for k in range(1, after + 1)]


def _replicating(size: Size, before: int, after: int) -> Folds:
    return [*((0, k) for k in range(before))] + [(size - 1, before + size + k) for k in range(after)]


def _padding_backward(spatial: int, folds: Callable[[Size, int, int], Folds], limit: str) -> Callable[..., View]:
    """One dimension after the other, each a loop that adds to what came from the middle what came from the padding."""

    def lower(low: Lowering, node: fx.Node, grad: Any, x: Any, pad: Sequence[int]) -> View:
        x, grad = _still(x, spatial), _still(grad, spatial)
        rank, to, pad = len(x.shape), compute_dtype(low.dtype(x)), known_sizes(sizes_of(pad))
        if not all(0 <= p <= getattr(low.limits, limit) for p in pad):
            raise NotLowered("a padding that takes away, or a wide one")
        padded = [rank - 1 - k for k in range(len(pad) // 2) if pad[2 * k] or pad[2 * k + 1]]
        for d in sorted(padded):
            before, after = pad[2 * (rank - 1 - d) : 2 * (rank - d)]
            size = x.shape[d]
            element = _folded(low, grad, d, before, folds(size, before, after))
            if d == max(padded):
                return low.finish(element, [], node, indexed=True)
            shape = tuple(size if j == d else n for j, n in enumerate(grad.shape))
            grad = low.map(element, [], shape=shape, dtype=to, name=f"{node.name}_{d}", indexed=True)
        return low.finish(lambda g: g, [grad], node)

    return lower


def _folded(low: Lowering, grad: View, d: int, before: int, folds: Folds) -> Callable[[list[V]], V]:
    step, dtype = grad.strides[d], compute_dtype(low.dtype(grad))

    def element(counters: list[V]) -> V:
        body = counters[d].body
        total = body.load(Access(grad.buffer, grad.strides, grad.offset + before * step), dtype)
        for place, source in folds:
            there = Access(grad.buffer, grad.strides, grad.offset + (source - place) * step)
            total = total + body.load(there, dtype, counters[d].do("eq", place))
        return total

    return element


for _spatial in (1, 2, 3):
    rule(f"reflection_pad{_spatial}d_backward")(_padding_backward(_spatial, _reflecting, "mirrored_padding"))
    rule(f"replication_pad{_spatial}d_backward")(_padding_backward(_spatial, _replicating, "repeated_padding"))


# -- resizing --------------------------------------------------------------------------------------------------------
def _scale(small: Size, large: Size, align: bool, factor: Any) -> Float:
    """Input elements per output element; of one alone, which is the first, any number will do."""
    if align:
        return as_float(small - 1) / maximum(as_float(large - 1), 1)
    return 1.0 / factor if factor is not None and factor > 0 else as_float(small) / as_float(large)


def _nearest(half: float) -> Callable[..., Places]:
    """The element whose cell holds the output's corner (``half`` 0) or its middle (0.5)."""

    def places(i: V, small: Size, large: Size, align: bool, factor: Any, dtype: str) -> Places:
        at = (i.cast(dtype) + half) * _scale(small, large, False, factor) if half else (
            i.cast(dtype) * _scale(small, large, False, factor)
        )  # fmt: skip
        return [(at.do("floor").cast("int64").do("minimum", small - 1), None)]

    return places


def _source(i: V, small: Size, large: Size, align: bool, factor: Any, dtype: str) -> V:
    scale = _scale(small, large, align, factor)
    return i.cast(dtype) * scale if align else (i.cast(dtype) + 0.5) * scale - 0.5


def _linear(i: V, small: Size, large: Size, align: bool, factor: Any, dtype: str) -> Places:
    if small == large:
        return [(i, None)]
    at = _source(i, small, large, align, factor, dtype).do("maximum", 0)
    first = at.cast("int64").do("minimum", small - 1)
    second = where(first < small - 1, first + 1, first)
    weight = (at - first.cast(dtype)).do("maximum", 0).do("minimum", 1)
    return [(first, 1 - weight), (second, weight)]


def _cubic(i: V, small: Size, large: Size, align: bool, factor: Any, dtype: str) -> Places:
    at = _source(i, small, large, align, factor, dtype)
    floor = at.do("floor")
    t = (at - floor).do("maximum", 0).do("minimum", 1)
    first, a = floor.cast("int64"), CUBIC

    def near(x: V) -> V:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: V) -> V:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    weights = (far(t + 1), near(t), near(1 - t), far(2 - t))
    return [(limited(first + (k - 1), small), weight) for k, weight in enumerate(weights)]


def _resize(spatial: int, along: Callable[..., Places], aligns: bool) -> Callable[..., View]:
    def lower(low: Lowering, node: fx.Node, x: Any, size: Any, *more: Any, **named: Any) -> View:
        x, out = _still(x, spatial + 2), sizes_of(node.meta["val"].shape)
        dtype = compute_dtype(low.dtype(x))
        if named or not is_float(dtype) or len(x.shape) != spatial + 2 or 0 in out:
            raise NotLowered("no batch of float images")
        align, factors = (more[0], more[1:]) if aligns else (False, more)
        factors = (*factors, *(None,) * (spatial - len(factors)))

        def element(counters: list[V]) -> V:
            dims = [
                along(counters[2 + k], x.shape[2 + k], out[2 + k], align, factors[k], dtype) for k in range(spatial)
            ]

            def weighted(chosen: tuple[V, ...]) -> V:
                """The sum over the dimensions in which no place is chosen yet, the last first, as eager sums."""
                if len(chosen) == spatial:
                    return read_at(low, x, [None, None, *chosen], counters[0])
                parts = ((weighted((*chosen, place)), weight) for place, weight in dims[len(chosen)])
                return summed(value if weight is None else value * weight for value, weight in parts)

            return weighted(())

        return low.finish(element, [], node, indexed=True)

    return lower


for _name, _spatial, _along, _aligns in (
    ("upsample_nearest1d", 1, _nearest(0), False), ("upsample_nearest3d", 3, _nearest(0), False),
    ("_upsample_nearest_exact1d", 1, _nearest(0.5), False), ("_upsample_nearest_exact2d", 2, _nearest(0.5), False),
    ("_upsample_nearest_exact3d", 3, _nearest(0.5), False), ("upsample_linear1d", 1, _linear, True),
    ("upsample_bilinear2d", 2, _linear, True), ("upsample_trilinear3d", 3, _linear, True),
    ("upsample_bicubic2d", 2, _cubic, True),
):  # fmt: skip
    rule(f"{_name}.default")(_resize(_spatial, _along, _aligns))

resized_nearest = _resize(2, _nearest(0), False)
