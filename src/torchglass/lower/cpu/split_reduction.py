"""Convolutions of images channels last in parts, so that they add up as exactly as eager's.

oneDNN with AVX-512 adds up all channels of such an image in one chain, whose error grows with its length; images as
eager lays them out are added up 16 channels at a time. Where a chain is longer than ``CpuLowering.chain``, the channels
are divided into groups, whose sums are results of their own that loops add (without AVX-512 eager has one chain, too)::

    y = convolution(x, w)  =>  parts = convolution(x, w by groups, groups=2); y = parts[:, :n] + parts[:, n:]

(192 channels, 3 x 3: an error of 3.1 times eager's without it, 1.6 times with four groups, for 10 to 20 % of the
time.) The gradient of an image sums over the channels of the result and is divided likewise; the gradients of weights
are more exact than eager's as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

import torch
from torch import fx

from ...records.target import Cpu
from ..node_builder import NodeBuilder
from ..strides import channels_last

aten = torch.ops.aten


def parts_of(node: fx.Node, cpu: Cpu) -> int:
    """Into how many groups the channels that a convolution adds up are to be divided; 1: it stays as it is.

    Groups are made of whole registers: so many channels oneDNN adds up at once.
    """
    back = node.target is aten.convolution_backward.default
    weight, transposed, groups = (node.args[k] for k in ((2, 7, 9) if back else (1, 6, 8)))
    assert isinstance(weight, fx.Node)
    val = weight.meta["val"]
    if transposed or groups != 1 or val.dtype != torch.float32 or not cpu.avx512:
        return 1
    channels, window = val.shape[0 if back else 1], prod(val.shape[2:])
    longest = cpu.lowering.chain
    if channels * window <= longest:
        return 1
    fitting = [n for n in range(2, channels // cpu.lanes + 1) if channels % (n * cpu.lanes) == 0]
    return next((n for n in fitting if channels // n * window <= longest), max(fitting, default=1))


def forward_in_parts(node: fx.Node, weight: fx.Node, parts: int) -> fx.Node:
    """A convolution's value from ``parts`` groups of its channels; ``weight`` as the user laid it out."""
    x, _, bias, *geometry = node.args
    out = node.meta["val"]
    outs, channels, *window = weight.meta["val"].shape
    made, size = NodeBuilder(node), channels // parts
    grouped = made(aten.view.default, weight, [outs, parts, size, *window])
    turned = made(aten.permute.default, grouped, [1, 0, 2, 3, 4])
    last = (outs * size * prod(window), size * prod(window), 1, window[1] * size, size)
    laid = made(aten.clone.default, turned, val=out.new_empty_strided(turned.meta["val"].shape, last))
    flat = made(aten.view.default, laid, [parts * outs, size, *window])
    total = _sums(made, [x, flat, None, *geometry[:-1], parts], out, parts)
    if bias is not None:
        total = made(aten.add.Tensor, total, made(aten.view.default, bias, [1, outs, 1, 1]), val=out)
    return total


def gradient_in_parts(node: fx.Node, parts: int) -> fx.Node:
    """The gradient of a convolution's image: groups of the channels of the result's gradient, each with its part of
    the weight, in one transposed convolution.
    """
    grad, _, weight, _, stride, padding, dilation, *_ = node.args
    assert isinstance(grad, fx.Node) and isinstance(weight, fx.Node)
    out = node.meta["val"][0]
    axes = zip(
        out.shape[2:], grad.meta["val"].shape[2:], weight.meta["val"].shape[2:], *map(pair, (stride, padding, dilation))
    )
    beyond = [size - ((count - 1) * s - 2 * p + d * (k - 1) + 1) for size, count, k, s, p, d in axes]
    call = [grad, weight, None, stride, padding, dilation, True, beyond, parts]
    return _sums(NodeBuilder(node), call, out, parts)


def pair(values: Any) -> Sequence[int]:
    return values if len(values) == 2 else [*values, *values]


def _sums(made: NodeBuilder, call: list[Any], out: torch.Tensor, parts: int) -> fx.Node:
    """The groups' sums, side by side, and what loops add of them."""
    batch, count, *image = out.shape
    shape = (batch, parts * count, *image)
    sums = made(aten.convolution.default, *call, val=out.new_empty_strided(shape, channels_last(shape)))
    each = [made(aten.slice.Tensor, sums, 1, k * count, (k + 1) * count) for k in range(parts)]
    return reduce(lambda a, b: made(aten.add.Tensor, a, b, val=out), each)
