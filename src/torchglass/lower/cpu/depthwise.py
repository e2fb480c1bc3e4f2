"""Weight gradients of depthwise convolutions as loops, where oneDNN has no kernel of its own for them.

For images channels last it has one for windows of up to 3 x 3 without gaps. Wider ones run as convolutions by groups
of 16 channels that are filled up with zeros: 7 x 7 over 512 channels takes 25 MB of scratch for 0.1 MB of weights, and
ten times as long as the sum that it is, in which channels are neighbours in memory::

    weight[c, a, b] = sum over n, i, j of grad[n, c, i, j] * padded[n, c, i + a, j + b]

The image's gradient stays a call, and the bias' joins the loops that make ``grad``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ...records.loops import View
from ...records.sizes import Size, all_known, hint
from ...records.symbolic_ints import sizes_of
from ...records.target import Cpu
from ..context import Lowering, dtype_name
from ..rules.indexing import padded
from ..strategies import strategy
from ..strides import contiguous
from ..table import NotLowered
from .split_reduction import pair


@strategy(Cpu, torch.ops.aten.convolution_backward.default, rank=0)
def depthwise_gradient(
    low: Lowering, cpu: Cpu, node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[View | None, ...] | None:
    """The gradients of a depthwise convolution, that of its weight by a loop."""
    grad, image, weight, _, _, _, dilation, transposed, _, groups, wanted = args
    if transposed or not wanted[1] or not all(isinstance(x, View) and len(x.shape) == 4 for x in args[:3]):
        return None
    if weight.shape[:2] != (groups, 1):
        return None
    _check(cpu, grad, image, weight, dilation)
    of_image, of_weight, of_bias = node.meta["val"]
    first = third = None
    if wanted[0]:
        first = low.result_of(of_image, f"{node.name}_0")
        call, target = [*args[:-1], [True, False, False]], "torch.ops.aten.convolution_backward.default"
        low.extern(target, call, {}, [first.buffer, None, None], unpack=True)
    second = _of_weight(low, grad, image, of_weight, args[4:7], f"{node.name}_1")
    if wanted[2]:
        total = low.reduce("sum", [grad], [0, 2, 3], dtype=dtype_name(of_bias.dtype), name=f"{node.name}_2")
        third = View(total.buffer, sizes_of(of_bias.shape), (1,))
    return first, second, third


def _check(cpu: Cpu, grad: View, image: View, weight: View, dilation: Sequence[int]) -> None:
    """NotLowered where oneDNN's call is as good."""
    window = weight.shape[2:]
    if min(hint(size) for x in (grad, image) for size in (*x.shape, *x.strides)) < 1:
        raise NotLowered("no images, or one that is expanded")
    if not all_known(weight.shape) or weight.shape[0] < cpu.lowering.depthwise_channels:
        raise NotLowered(f"fewer than {cpu.lowering.depthwise_channels} channels")
    if image.strides[1] != 1 or grad.strides[1] != 1:
        raise NotLowered("images that do not lie channels last")
    if all_known(window) and max(window) <= cpu.lowering.depthwise_window and max(dilation) <= 1:
        raise NotLowered("a window that oneDNN has a kernel for")


def _of_weight(
    low: Lowering, grad: View, image: View, val: torch.Tensor, geometry: Sequence[Sequence[int]], name: str
) -> View:
    """One loop over (batch, rows, columns of the result, rows, columns of the window, channels)."""
    stride, padding, dilation = map(pair, geometry)
    x, g = _channels_last(image), _channels_last(grad)
    x = _with_border(low, x, padding, f"{name}_padded")
    batch, *out, channels = g.shape
    _, _, *window = sizes_of(val.shape)
    n, h, w, c = x.strides
    steps = (n, h * stride[0], w * stride[1], h * dilation[0], w * dilation[1], c)
    places = View(x.buffer, (batch, *out, *window, channels), steps, x.offset)
    slopes = View(g.buffer, (batch, *out, 1, 1, channels), (*g.strides[:3], 0, 0, g.strides[3]), g.offset)
    across, *along = sizes_of(val.stride())[0], *sizes_of(val.stride())[2:]
    total = low.reduce(
        "sum", [places, slopes], [0, 1, 2], lambda x, g: x * g, dtype=dtype_name(val.dtype),
        strides=(1, 1, 1, *along, across), name=name,
    )  # fmt: skip
    return low.cast_like(total, val)


def _channels_last(image: View) -> View:
    """(batch, rows, columns, channels) of an image."""
    shape, strides = (tuple(v[k] for k in (0, 2, 3, 1)) for v in (image.shape, image.strides))
    return View(image.buffer, shape, strides, image.offset)


def _with_border(low: Lowering, image: View, padding: Sequence[int], name: str) -> View:
    if not any(padding):
        return image
    before = (0, *padding, 0)
    shape: tuple[Size, ...] = tuple(size + 2 * p for size, p in zip(image.shape, before))
    return low.map(
        padded(low, image, before, shape, 0), [], shape=shape, strides=contiguous(shape), dtype=low.dtype(image),
        name=name, indexed=True,
    )  # fmt: skip
