"""Products with frozen weights: calls that keep the weight in oneDNN's own layout (``options={"freezing": True}``).

``aten.addmm(bias, x, weight.t())`` with a parameter ``weight`` becomes ``extern packed_linear(x, weight, bias)``; a
convolution of channels-last images ``extern packed_convolution(...)``. The wrapper holds one packed weight a call. A
batch norm by running statistics, the only reader of such a product, is folded into its weight and bias: ``extern
packed_normalized_convolution(x, weight, bias, gamma, beta, mean, var, eps, ...)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import fx

from ...records.loops import View
from ...records.target import Cpu
from ..context import Lowering, dtype_name
from ..strategies import strategy
from ..strides import channels_last, contiguous
from ..table import NotLowered

aten = torch.ops.aten
Packing: TypeAlias = "Callable[[Lowering, fx.Node, Sequence[Any]], list[Any]]"


def _is_input(low: Lowering, operand: Any) -> bool:
    """Whether an operand is None or the whole of a tensor that the caller brings: the same object in every call."""
    if operand is None:
        return True
    if not isinstance(operand, View) or operand.buffer not in low.buffers or operand.offset != 0:
        return False
    buffer = low.buffers[operand.buffer]
    return buffer.role == "input" and (operand.shape, operand.strides) == (buffer.shape, buffer.strides)


def _mm(low: Lowering, node: fx.Node, args: Sequence[Any]) -> list[Any]:
    x, turned = args
    weight = _weight(low, turned)
    if not isinstance(x, View) or x.strides != contiguous(x.shape):
        raise NotLowered("rows that do not lie together")
    if turned.shape != weight.shape[::-1] or turned.strides != weight.strides[::-1]:
        raise NotLowered("a weight that is not turned")
    return [x, weight, None]


def _addmm(low: Lowering, node: fx.Node, args: Sequence[Any]) -> list[Any]:
    bias, *operands = args
    x, weight, _ = _mm(low, node, operands)
    if not isinstance(bias, View) or bias.shape != weight.shape[:1] or bias.strides != (1,):
        raise NotLowered("no bias of one row")
    return [x, weight, bias]


def _convolution(low: Lowering, node: fx.Node, args: Sequence[Any]) -> list[Any]:
    x, kernel, bias, stride, padding, dilation, transposed, _, groups = args
    weight, val = _weight(low, kernel), node.meta["val"]
    if transposed or not isinstance(x, View) or len(x.shape) != 4 or kernel.shape != weight.shape:
        raise NotLowered("a transposed convolution, or none of images")
    if not _is_channels_last(x.shape, x.strides) or not _is_channels_last(val.shape, val.stride()):
        raise NotLowered("images that do not lie channels last")  # as results come: anything else would be copied
    return [x, weight, bias, list(stride), list(padding), list(dilation), groups]


def _is_channels_last(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    return tuple(strides) == channels_last(shape) and tuple(shape[2:]) != (1, 1)


def _weight(low: Lowering, operand: Any) -> View:
    """The whole parameter that an operand shows, if it is frozen and lies in order."""
    if not isinstance(operand, View) or operand.buffer not in low.frozen or operand.offset != 0:
        raise NotLowered("a weight that is no frozen parameter")
    buffer = low.buffers[operand.buffer]
    if buffer.strides != contiguous(buffer.shape) or 0 in buffer.shape:
        raise NotLowered("a parameter that does not lie in order")
    return View(buffer.name, buffer.shape, buffer.strides, 0)


PACKINGS: dict[Any, tuple[str, Packing]] = {
    aten.mm.default: ("packed_linear", _mm),
    aten.addmm.default: ("packed_linear", _addmm),
    aten.convolution.default: ("packed_convolution", _convolution),
}
"""Operator to the name of the packed call, and the function that gives its arguments."""


@strategy(Cpu, *PACKINGS, rank=0)
def packed_weight(low: Lowering, cpu: Cpu, node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> View | None:
    """A product as a call with a packed weight."""
    if not low.frozen:
        return None
    call, arguments = PACKINGS[node.target]
    if kwargs or dtype_name(node.meta["val"].dtype) not in cpu.packs:
        raise NotLowered("a scaled product, or a dtype of which oneDNN packs nothing")
    packed = arguments(low, node, args)
    view = low.result(node)
    low.extern(call, packed, {}, [view.buffer])
    return view


NORMS = {
    aten._native_batch_norm_legit_no_training.default: lambda args: (*args[1:5], args[6]),
    aten.native_batch_norm.default: lambda args: None if args[5] else (*args[1:5], args[7]),
}
"""Batch norms to their gamma, beta, mean, variance and eps; None in training."""


@strategy(Cpu, *NORMS, rank=0)
def packed_normalization(
    low: Lowering, cpu: Cpu, node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[View, None, None] | None:
    """The values of a batch norm as one call of the product that it alone reads."""
    product, numbers = node.args[0], NORMS[node.target](args)
    if not low.frozen or numbers is None or not isinstance(product, fx.Node) or product.target not in PACKINGS:
        return None
    call, arguments = PACKINGS[product.target]
    val, read = node.meta["val"][0], {user.args[1] for user in node.users}
    if len(product.users) > 1 or read - {0}:
        raise NotLowered("something else reads the product or its statistics")
    if product.kwargs or val.dtype != torch.float32 or "float32" not in cpu.packs:
        raise NotLowered("a scaled product, or a dtype of which oneDNN packs nothing")
    packed = arguments(low, product, low.argument(product.args))
    if not all(_is_input(low, v) for v in (*packed[1:3], *numbers[:4])):
        raise NotLowered("numbers that are computed")
    view = low.result_of(val, node.name)
    name = call.replace("packed_", "packed_normalized_")
    low.extern(name, [*packed[:3], *numbers, *packed[3:]], {}, [view.buffer])
    return view, None, None
