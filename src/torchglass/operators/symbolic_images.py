"""The sizes of what operators on images give: convolutions, pools, resizing, norms (``symbolic_shapes``)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from ..process.tables import enters
from ..records.sizes import Size
from ..torch_compat import ON_SYMBOLS
from .symbolic_shapes import CONTIGUOUS_FIRST, FILLED, Layout, Results, Sizes, gives, normalizes

aten = torch.ops.aten
Numbers = Sequence[Size]

FILLED.update(
    (aten.convolution.default, aten.max_pool2d_with_indices.default, aten.avg_pool2d.default, aten.avg_pool1d.default)
)  # they refuse what is smaller than their windows


# --- convolutions -----------------------------------------------------------------------------------------------------
@gives(aten.convolution.default)
def _convolution(
    x: Layout, w: Layout, bias: Any, stride: Numbers, padding: Numbers, dilation: Numbers, transposed: bool,
    output_padding: Numbers, groups: Size,
) -> list[Sizes] | None:  # fmt: skip
    rank = len(w.sizes) - 2
    taken, channels = (w.sizes[0], w.sizes[1] * groups) if transposed else (w.sizes[1] * groups, w.sizes[0])
    if x.sizes[len(x.sizes) - rank - 1] != taken or not normalizes((channels,), (channels,), [bias]):
        return None
    steps, pads, gaps, ends = (_each(rank, given) for given in (stride, padding, dilation, output_padding))
    kernel = [1 + gap * (size - 1) for gap, size in zip(gaps, w.sizes[2:])]
    places = x.sizes[len(x.sizes) - rank :]
    if transposed:
        rows = zip(places, steps, pads, kernel, ends)
        made = tuple((size - 1) * step - 2 * pad + wide + end for size, step, pad, wide, end in rows)
    else:
        made = tuple(map(partial(_windows, up=0), places, kernel, steps, pads))
    return [(*x.sizes[: len(x.sizes) - rank - 1], channels, *made)]


def _each(rank: int, given: Any) -> Numbers:
    """One for each dimension, of which one may stand for all."""
    listed = list(given) if isinstance(given, (list, tuple)) else [given]
    return listed * rank if len(listed) == 1 else listed


def _windows(size: Size, wide: Size, step: Size, pad: Size, up: Size) -> Size:
    """How many windows there are; ``up`` is what is added before the division that rounds down."""
    return (size + 2 * pad - wide + up) // step + 1


@gives(aten.convolution_backward.default)
def _convolution_backward(grad: Layout, x: Layout, w: Layout, bias: Any, *args: Any) -> list[Sizes | None]:
    known = x.sizes, w.sizes, (w.sizes[1] * args[5] if args[3] else w.sizes[0],)
    return [sizes if wanted else None for sizes, wanted in zip(known, args[-1])]


# --- pools ------------------------------------------------------------------------------------------------------------
def _pooled(x: Layout, kernel: Any, stride: Any, padding: Any, rank: int) -> Sizes:
    wide, pads = _each(rank, kernel), _each(rank, padding)
    steps = _each(rank, stride) if stride else wide
    places = map(partial(_windows, up=0), x.sizes[len(x.sizes) - rank :], wide, steps, pads)
    return (*x.sizes[: len(x.sizes) - rank], *places)


@gives(aten.max_pool2d_with_indices.default)
def _max_pool(
    x: Layout, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> list[Sizes] | None:
    if ceil_mode or any(gap != 1 for gap in _each(2, dilation)):
        return None
    return [_pooled(x, kernel, stride, padding, 2)] * 2


@enters(ON_SYMBOLS)(torch.nn.functional.max_pool1d, torch.max_pool1d)
def max_pool1d(
    input: torch.Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """Pooling in a plane of one row, as PyTorch's own is where a gradient is asked for."""
    pool = torch.nn.functional.max_pool1d
    if input.dim() not in (2, 3):
        return pool(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    wide, gaps, pads = ([first, *_each(1, n)] for first, n in ((1, kernel_size), (1, dilation), (0, padding)))
    steps = [1, *_each(1, stride)] if stride else wide
    plane = input.unsqueeze(-2)
    pooled = torch.nn.functional.max_pool2d(plane, wide, steps, pads, gaps, ceil_mode, return_indices)
    return tuple(one.squeeze(-2) for one in pooled) if return_indices else pooled.squeeze(-2)


@gives(aten.avg_pool2d.default, aten.avg_pool1d.default)
def _average_pool(
    x: Layout, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False, *args: Any
) -> list[Sizes] | None:
    return None if ceil_mode else [_pooled(x, kernel, stride, padding, len(_each(1, kernel)))]


@gives(aten._adaptive_avg_pool2d.default)
def _adaptive_pool(x: Layout, sizes: Numbers) -> list[Sizes]:
    return [(*x.sizes[:-2], *sizes)]


@gives(
    aten.max_pool2d_with_indices_backward.default, aten.avg_pool2d_backward.default,
    aten._adaptive_avg_pool2d_backward.default,
)  # fmt: skip
def _as_second(grad: Layout, x: Layout, *args: Any) -> list[Sizes]:
    return [x.sizes]


# --- resizing ---------------------------------------------------------------------------------------------------------
RESIZING = {
    ("nearest", 1): aten.upsample_nearest1d, ("nearest", 2): aten.upsample_nearest2d,
    ("nearest-exact", 1): aten._upsample_nearest_exact1d, ("nearest-exact", 2): aten._upsample_nearest_exact2d,
    ("linear", 1): aten.upsample_linear1d, ("bilinear", 2): aten.upsample_bilinear2d,
    ("bicubic", 2): aten.upsample_bicubic2d, ("bilinear, antialias", 2): aten._upsample_bilinear2d_aa,
    ("bicubic, antialias", 2): aten._upsample_bicubic2d_aa,
}  # fmt: skip
"""Operators by mode and the number of dimensions."""
FILLED.update(packet.default for packet in RESIZING.values())
_BACKWARDS = [getattr(aten, f"{packet.__name__}_backward").default for packet in RESIZING.values()]


@gives(*(packet.default for packet in RESIZING.values()))
def _resized(x: Layout, sizes: Numbers, *args: Any) -> list[Sizes]:
    return [(*x.sizes[:2], *sizes)]


@gives(*_BACKWARDS)
def _resized_backward(grad: Layout, sizes: Numbers, before: Numbers, *args: Any) -> list[Sizes]:
    return [tuple(before)]


@enters(ON_SYMBOLS)(torch.nn.functional.interpolate)
def interpolate(
    input: torch.Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None,
    recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> torch.Tensor:  # fmt: skip
    """The operator that PyTorch's function comes to, which computes sizes as floats on the way."""
    rank = input.dim() - 2
    packet = RESIZING.get((f"{mode}, antialias" if antialias else mode, rank))
    given = size if scale_factor is None else scale_factor
    wanted = list(given) if isinstance(given, (list, tuple)) else [given] * rank
    nearest = mode.startswith("nearest")
    both = size is not None and (scale_factor is not None or recompute_scale_factor)
    wrong = both or given is None or len(wanted) != rank or (nearest and align_corners is not None)
    if packet is None or wrong:
        args = input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
        return torch.nn.functional.interpolate(*args)
    factors = [None] * rank if scale_factor is None or recompute_scale_factor else [float(f) for f in wanted]
    sizes = wanted if scale_factor is None else [_times(n, f) for n, f in zip(input.shape[2:], wanted)]
    corners = [] if nearest else [bool(align_corners)]
    return packet.default(input, sizes, *corners, *factors)


def _times(size: Any, factor: float) -> Any:
    """So many times a size, rounded down as the product of floats is: of others than sums of powers of two that may be
    one less.
    """
    if not isinstance(size, torch.SymInt):
        return int(size * factor)
    whole, parts = float(factor).as_integer_ratio()
    return size * whole // parts if max(whole, parts) < _EXACT else int(int(size) * factor)


_EXACT = 1 << 20


@enters(ON_SYMBOLS)(torch.nn.functional.adaptive_avg_pool1d)
def adaptive_avg_pool1d(input: torch.Tensor, output_size: Any) -> torch.Tensor:
    """The mean that pooling into one is."""
    if output_size in (1, (1,), [1]) and input.dim() in (2, 3) and input.is_floating_point():
        return input.mean(-1, keepdim=True)
    return torch.nn.functional.adaptive_avg_pool1d(input, output_size)


# --- norms ------------------------------------------------------------------------------------------------------------
@gives(aten.native_group_norm.default)
def _group_norm(
    x: Layout, w: Any, b: Any, n: Size, c: Size, count: Size, groups: Size, eps: float
) -> list[Sizes] | None:
    return [x.sizes, (n, groups), (n, groups)] if normalizes(x.sizes[1:2], [c], [w, b]) else None


CONTIGUOUS_FIRST.update((
    aten.native_batch_norm.default, aten._native_batch_norm_legit_no_training.default,
    aten._native_batch_norm_legit.no_stats, aten._native_batch_norm_legit_functional.default,
))  # fmt: skip


@gives(
    aten.native_batch_norm.default, aten._native_batch_norm_legit_no_training.default,
    aten._native_batch_norm_legit.no_stats,
)  # fmt: skip
def _batch_norm(x: Layout, *args: Any) -> list[Sizes] | None:
    """Where the mean and spread are known already nothing is kept for backward."""
    if not normalizes(x.sizes[1:2], x.sizes[1:2], args):
        return None
    training = next((arg for arg in args if isinstance(arg, bool)), False)
    kept: Sizes = (x.sizes[1],) if training else (0,)
    return [x.sizes, kept, kept]


@gives(aten._native_batch_norm_legit_functional.default)
def _batch_norm_of_running(x: Layout, w: Any, b: Any, mean: Layout, spread: Layout, *args: Any) -> Results:
    found = _batch_norm(x, w, b, mean, spread, *args)
    return None if found is None else [*found, mean.sizes, spread.sizes]


@gives(aten.native_batch_norm_backward.default, aten.native_group_norm_backward.default)
def _norm_backward(grad: Layout, x: Layout, *args: Any) -> list[Sizes | None]:
    return [sizes if wanted else None for sizes, wanted in zip((x.sizes, *[(x.sizes[1],)] * 2), args[-1])]
