"""Pooling and nearest upsampling of images: windows as views of the input, one for every place in the window.

``avg_pool2d(x, 2)`` is one loop over the output that adds four loads, ``x[2*i + a, 2*j + b]``. Backwards of windows
that do not overlap are loops over (outputs, places in the window). Anything else stays an ATen call.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from ...records.loops import Access, View, compute_dtype
from ...records.sizes import Size, at_least, divides, hint, is_known
from ...records.symbolic_ints import sizes_of
from ..context import Lowering, dtype_name, known_size
from ..table import NotLowered, rule
from ..values import Body, V, every, summed, where
from .resampling import limited, read_at, resized_nearest


def _pair(value: Any, default: tuple[int, int]) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    values = tuple(value or ())
    return default if not values else (values[0], values[-1])


def _image(x: Any) -> View:
    if not isinstance(x, View) or len(x.shape) != 4 or 0 in x.shape:
        raise NotLowered("no batch of images")
    return x


def _sizes(x: Any) -> tuple[Size, ...]:
    """The sizes of a batch of images."""
    return _image(x).shape


class Windows:
    """The windows over an image: their places, and the value of the image at one of them. ``begun``: whether there may
    be windows that begin inside and do not fit.
    """

    def __init__(
        self, low: Lowering, x: Any, out: Sequence[Size], kernel: Any, stride: Any, padding: Any, dilation: Any = 1,
        begun: bool = False,
    ) -> None:  # fmt: skip
        self.x, self.size = _image(x), _sizes(x)
        self.kernel = _pair(kernel, (1, 1))
        self.stride = _pair(stride, self.kernel)
        self.padding = _pair(padding, (0, 0))
        self.dilation = _pair(dilation, (1, 1))
        self.out, self.begun = tuple(out), begun
        if self.kernel[0] * self.kernel[1] > low.limits.window:
            raise NotLowered("a wide window")

    def places(self) -> list[tuple[int, int]]:
        return [(a, b) for a in range(self.kernel[0]) for b in range(self.kernel[1])]

    def position(self, body: Body, place: tuple[int, int], k: int) -> tuple[V, bool]:
        """The row (k 0) or column (k 1) of the image at a place of the window, and whether it may lie outside."""
        start = place[k] * self.dilation[k] - self.padding[k]
        i = body.index(tuple(self.stride[k] if d == 2 + k else 0 for d in range(4)), start)
        last = start + (self.out[2 + k] - 1) * self.stride[k]
        beyond = self.begun or self.padding[k] > (self.kernel[k] - 1 - place[k]) * self.dilation[k]
        inside = at_least(self.size[2 + k] - 1 - last, 0) or not (is_known(last) or beyond)
        return i, start < 0 or not inside

    @property
    def is_channels_last(self) -> bool:
        """Whether neighbours in memory are channels, all of them at the same place of a window."""
        return self.x.strides[1] == 1 and hint(self.size[1]) > 1

    def value(self, low: Lowering, body: Body, place: tuple[int, int], other: float) -> tuple[V, V | None]:
        """The image there, ``other`` outside; and the mask of what is inside (None: everything)."""
        positions = ((k, *self.position(body, place, k)) for k in (0, 1))
        mask = every((i >= 0).do("and", i < self.size[2 + k]) for k, i, outside in positions if outside)
        (n, c, h, w), (sh, sw) = self.x.strides, self.stride
        offset = self.x.offset
        for k in (0, 1):
            offset = offset + (place[k] * self.dilation[k] - self.padding[k]) * self.x.strides[2 + k]
        access = Access(self.x.buffer, (n, c, h * sh, w * sw), offset)
        return body.load(access, compute_dtype(low.dtype(self.x)), mask, other), mask

    def nearest(self, low: Lowering, body: Body, place: tuple[int, int]) -> tuple[V, list[V]]:
        """The image there, or where it ends nearest to it; and that row and column."""
        at = [limited(self.position(body, place, k)[0], self.size[2 + k]) for k in (0, 1)]
        return read_at(low, self.x, [None, None, *at], at[0]), at

    def sums(self, low: Lowering, body: Body) -> V:
        """The sum of the image's numbers in a window."""
        return summed(self.value(low, body, place, 0)[0] for place in self.places())


def _check_means(low: Lowering, w: Windows) -> None:
    """NotLowered where windows that reach out of the image, or overlap backward, are faster by ATen."""
    if not low.limits.padded_means_of_channels and w.is_channels_last:
        raise NotLowered("padded windows over channels last: ATen leaves out what is outside")


@rule("avg_pool2d")
def _avg_pool(
    low: Lowering, node: fx.Node, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
    count_padding: bool = True, divisor: Any = None,
) -> View:  # fmt: skip
    w = Windows(low, x, sizes_of(node.meta["val"].shape), kernel, stride, padding)
    if ceil_mode or (w.padding != (0, 0) and not count_padding and divisor is None):
        raise NotLowered("windows of different sizes")
    if not compute_dtype(low.dtype(x)).startswith("float"):
        raise NotLowered("a mean of integers")
    if w.padding != (0, 0):
        _check_means(low, w)
    share = 1.0 / (divisor or w.kernel[0] * w.kernel[1])

    return low.finish(lambda counters: w.sums(low, counters[0].body) * share, [], node, indexed=True)


@rule("max_pool2d_with_indices")
def _max_pool(
    low: Lowering, node: fx.Node, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:  # fmt: skip
    vals = node.meta["val"]
    w = Windows(low, x, sizes_of(vals[0].shape), kernel, stride, padding, dilation, ceil_mode)
    if not compute_dtype(low.dtype(x)).startswith("float"):
        raise NotLowered("a maximum of integers")

    def best(counters: list[V]) -> tuple[V, V]:
        body = counters[0].body
        value: V | None = None
        place_of: V | None = None
        if w.padding != (0, 0) and not repeats:  # the first place inside holds until a greater one comes
            row, column = (w.position(body, (0, 0), k)[0].do("maximum", 0) for k in (0, 1))
            place_of = row * w.size[3] + column
            value = body.const(float("-inf"), compute_dtype(low.dtype(w.x)))
        for place in w.places():
            if repeats:
                (v, (row, column)), mask = w.nearest(low, body, place), None
            else:
                v, mask = w.value(low, body, place, float("-inf"))
                row, column = (w.position(body, place, k)[0] for k in (0, 1))
            here = row * w.size[3] + column
            if value is None or place_of is None:
                value, place_of = v, here
                continue
            better = (v > value).do("or", v.do("isnan"))
            better = better if mask is None else better.do("and", mask)
            value, place_of = where(better, v, value), where(better, here, place_of)
        assert value is not None and place_of is not None
        return value, place_of

    # A window without gaps holds the border's numbers itself: seen again in the same order they change nothing, and
    # what is read without a condition becomes vectors (of channels last, 3 x 3 windows took 12 times eager's time).
    repeats = w.is_channels_last and w.padding != (0, 0) and w.dilation == (1, 1)
    if w.padding != (0, 0) and w.dilation != (1, 1):
        raise NotLowered("the first place inside is not the window's first or the image's")
    y = low.map_like(vals[0], node.name, lambda c: best(c)[0], [], indexed=True)
    return y, low.map_like(vals[1], f"{node.name}_places", lambda c: best(c)[1], [], indexed=True)


def _tile(w: Windows, image: Sequence[Size]) -> bool:
    """Whether the windows tile the image."""
    tiles = all(w.kernel[k] == w.stride[k] and w.out[2 + k] * w.kernel[k] == image[2 + k] for k in (0, 1))
    return tiles and w.padding == (0, 0) and w.dilation == (1, 1)


def _gathered(
    low: Lowering, node: fx.Node, w: Windows, fn: Callable[[list[V], list[V]], V], tensors: list[Any]
) -> View:
    """The sum, for each place of the image, of ``fn`` over the windows that hold it. ``tensors`` are of the outputs.

    Along a dimension these are the last window that begins at or before the place, and the ones before that.
    """
    if w.dilation != (1, 1):
        raise NotLowered("windows with gaps")
    tensors = [_image(t) for t in tensors]

    def windows(i: V, k: int) -> list[tuple[V, V]]:
        last = (i + w.padding[k]).do("floordiv", w.stride[k])
        found = []
        for back in range(-(-w.kernel[k] // w.stride[k])):
            o = last - back
            holds = (o >= 0).do("and", o < w.out[2 + k])
            if back or w.kernel[k] < w.stride[k]:
                holds = holds.do("and", (i + w.padding[k]) - o * w.stride[k] < w.kernel[k])
            found.append((o.do("maximum", 0).do("minimum", w.out[2 + k] - 1), holds))
        return found

    def element(counters: list[V]) -> V:
        def read(row: V, holds_row: V, column: V, holds_column: V) -> V:
            reads = [read_at(low, t, [None, None, row, column], counters[0]) for t in tensors]
            return where(holds_row.do("and", holds_column), fn(counters, reads), 0)

        pairs = itertools.product(windows(counters[2], 0), windows(counters[3], 1))
        return summed(read(*row, *column) for row, column in pairs)

    return low.finish(element, [], node, indexed=True)


def _spread(
    low: Lowering, node: fx.Node, w: Windows, tile: tuple[Size, Size], fn: Any, inputs: list[Any]
) -> View:  # fmt: skip
    """A loop over (n, c, rows of outputs, rows of a tile, columns of outputs, columns of a tile)."""
    n, c, oh, ow = w.out
    (kh, kw), val = tile, node.meta["val"]
    shape = (n, c, oh, kh, ow, kw)
    sn, sc, sh, sw = strides = sizes_of(val.stride())
    wide = [_wide(v, shape) for v in inputs]
    out = low.map(
        fn, wide, shape=shape, strides=(sn, sc, sh * kh, sh, sw * kw, sw), dtype=dtype_name(val.dtype), name=node.name,
        indexed=True,
    )  # fmt: skip
    return View(out.buffer, sizes_of(val.shape), strides, out.offset)


def _wide(v: Any, shape: Sequence[Size]) -> View:
    v = _image(v)
    sizes = (*v.shape[:3], 1, v.shape[3], 1)
    return View(v.buffer, sizes, (*v.strides[:3], 0, v.strides[3], 0), v.offset)


@rule("avg_pool2d_backward")
def _avg_pool_backward(
    low: Lowering, node: fx.Node, grad: Any, x: Any, kernel: Any, stride: Any, padding: Any, ceil_mode: bool,
    count_padding: bool, divisor: Any,
) -> View:  # fmt: skip
    w = Windows(low, grad, _sizes(grad), kernel, stride, padding)
    share = 1.0 / (divisor or w.kernel[0] * w.kernel[1])
    if ceil_mode or (w.padding != (0, 0) and not count_padding and divisor is None):
        raise NotLowered("windows of different sizes")
    if not _tile(w, _sizes(x)):
        _check_means(low, w)
        return _gathered(low, node, w, lambda c, reads: reads[0] * share, [grad])
    return _spread(low, node, w, w.kernel, lambda c, g: g * share, [grad])


@rule("max_pool2d_with_indices_backward")
def _max_pool_backward(
    low: Lowering, node: fx.Node, grad: Any, x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any,
    ceil_mode: bool, index: Any,
) -> View:  # fmt: skip
    w = Windows(low, grad, _sizes(grad), kernel, stride, padding, dilation)
    image = _sizes(x)
    width = image[3]
    if not _tile(w, image):
        once = w.is_channels_last and all(w.kernel[k] <= w.stride[k] for k in (0, 1))
        if not low.limits.max_pool_gradients and not once:
            raise NotLowered("windows that do not tile the image: ATen looks at each of them once")
        return _gathered(
            low, node, w, lambda c, reads: where(reads[1].do("eq", c[2] * width + c[3]), reads[0], 0), [grad, index]
        )

    def slope(counters: list[V], g: V, place: V) -> V:
        body, (kh, kw) = g.body, w.kernel
        here = body.index((0, 0, kh * width, width, kw, 1))
        return where(place.do("eq", here), g, 0)

    return _spread(low, node, w, w.kernel, slope, [grad, index])


# -- means of equal parts --------------------------------------------------------------------------------------------
def _parts(image: Sequence[Size], out: Sequence[Size]) -> tuple[Size, Size]:
    """The sizes of the equal parts that an adaptive pooling averages."""
    if not all(divides(out[k], image[k]) for k in (2, 3)):
        raise NotLowered("parts of different sizes")
    return image[2] // out[2], image[3] // out[3]


@rule("_adaptive_avg_pool2d")
def _adaptive_avg_pool(low: Lowering, node: fx.Node, x: Any, size: Any) -> View:
    x, val = _image(x), node.meta["val"]
    n, c, oh, ow = out = sizes_of(val.shape)
    if 0 in out or not compute_dtype(low.dtype(x)).startswith("float"):
        raise NotLowered("no means")
    kh, kw = _parts(_sizes(x), out)
    sn, sc, sh, sw = x.strides
    wide = View(x.buffer, (n, c, oh, kh, ow, kw), (sn, sc, sh * kh, sh, sw * kw, sw), x.offset)
    strides = sizes_of(val.stride())
    y = low.reduce(
        "sum", [wide], [3, 5], post=lambda s: s / (kh * kw), dtype=dtype_name(val.dtype), name=node.name,
        strides=(*strides[:3], 1, strides[3], 1),
    )  # fmt: skip
    return View(y.buffer, out, strides)


@rule("_adaptive_avg_pool2d_backward")
def _adaptive_avg_pool_backward(low: Lowering, node: fx.Node, grad: Any, x: Any) -> View:
    kernel = _parts(_sizes(x), _sizes(grad))
    w = Windows(low, grad, _sizes(grad), (1, 1), (1, 1), 0)
    return _spread(low, node, w, kernel, lambda c, g: g / (kernel[0] * kernel[1]), [grad])


# -- nearest upsampling by whole factors -----------------------------------------------------------------------------
def _factors(small: Sequence[Size], large: Sequence[Size], scales: Sequence[Any]) -> tuple[int, int]:
    found = [known_size(large[k] // small[k]) for k in (2, 3)]
    for k, (factor, scale) in enumerate(zip(found, scales), 2):
        if not divides(small[k], large[k]) or (scale is not None and scale != factor):
            raise NotLowered("a factor that is not whole")
    return found[0], found[1]


@rule("upsample_nearest2d.default")
def _upsample(low: Lowering, node: fx.Node, x: Any, size: Any, sh: Any = None, sw: Any = None) -> View:
    x = _image(x)
    try:
        factors = _factors(_sizes(x), sizes_of(node.meta["val"].shape), (sh, sw))
        return _spread(low, node, Windows(low, x, _sizes(x), (1, 1), (1, 1), 0), factors, lambda c, v: v, [x])
    except NotLowered:
        return resized_nearest(low, node, x, size, sh, sw)


@rule("upsample_nearest2d_backward.default")
def _upsample_backward(
    low: Lowering, node: fx.Node, grad: Any, size: Any, shape: Any, sh: Any = None, sw: Any = None
) -> View:
    out = sizes_of(node.meta["val"].shape)
    factors = _factors(out, _sizes(grad), (sh, sw))
    w = Windows(low, grad, out, factors, factors, 0)

    return low.finish(lambda counters: w.sums(low, counters[0].body), [], node, indexed=True)
