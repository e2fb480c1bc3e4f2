"""Products with frozen weights: calls that keep the weight in oneDNN's own layout (``options={"freezing": True}``).

``aten.addmm(bias, x, weight.t())`` with a parameter ``weight`` becomes ``extern packed_linear(x, weight, bias)``; a
convolution of channels-last images ``extern packed_convolution(...)``. The wrapper holds one packed weight a call. A
batch norm by running statistics, the only reader of such a product, is folded into its weight and bias: ``extern
packed_normalized_convolution(x, weight, bias, gamma, beta, mean, var, eps, ...)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from ..records.loops import View
from ..torch_compat import packs_weights
from .context import Lowering, contiguous, sizes_of

Arguments = list[Any] | None
Rule = Callable[[Lowering, fx.Node, Sequence[Any]], Arguments]

RULES: dict[Any, tuple[str, Rule]] = {}
"""Operator to the name of the packed call, and the function that gives its arguments, or None where it does not fit."""


def _rule(operator: Any, call: str) -> Callable[[Rule], Rule]:
    def enter(rule: Rule) -> Rule:
        if operator in RULES:
            raise AssertionError(f"two rules pack {operator}")
        RULES[operator] = (call, rule)
        return rule

    return enter


def packed(low: Lowering, node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> View | None:
    """The node's value as a call with a packed weight; None where the operator or its operands do not allow it."""
    found = RULES.get(node.target)
    val = node.meta.get("val")
    if not low.frozen or found is None or kwargs or not isinstance(val, torch.Tensor) or not packs_weights(val.dtype):
        return None
    call, rule = found
    arguments = rule(low, node, args)
    if arguments is None:
        return None
    view = low.result(node)
    low.extern(call, arguments, {}, [view.buffer])
    return view


NORMS = {
    torch.ops.aten._native_batch_norm_legit_no_training.default: lambda args: (*args[1:5], args[6]),
    torch.ops.aten.native_batch_norm.default: lambda args: None if args[5] else (*args[1:5], args[7]),
}
"""Batch norms to their gamma, beta, mean, variance and eps; None in training."""


def normalized(low: Lowering, node: fx.Node) -> tuple[View, None, None] | None:
    """The values of a batch norm as one call of the product that it alone reads; None where that does not go."""
    product = node.args[0] if node.target in NORMS else None
    if not low.frozen or not isinstance(product, fx.Node) or product.target not in RULES or len(product.users) > 1:
        return None
    call, rule = RULES[product.target]
    vals, numbers = node.meta["val"], NORMS[node.target](node.args)
    read = {user.args[1] for user in node.users}
    if numbers is None or read - {0} or vals[0].dtype != torch.float32 or not packs_weights(vals[0].dtype):
        return None
    operands = low.argument(numbers)
    arguments = None if product.kwargs else rule(low, product, low.argument(product.args))
    if arguments is None or not all(_is_input(low, v) for v in (*arguments[1:3], *operands[:4])):
        return None
    view = low.result_of(vals[0], node.name)
    name = call.replace("packed_", "packed_normalized_")
    low.extern(name, [*arguments[:3], *operands, *arguments[3:]], {}, [view.buffer])
    return view, None, None


def _is_input(low: Lowering, operand: Any) -> bool:
    """Whether an operand is None or the whole of a tensor that the caller brings: the same object in every call."""
    if operand is None:
        return True
    if not isinstance(operand, View) or operand.buffer not in low.buffers or operand.offset != 0:
        return False
    buffer = low.buffers[operand.buffer]
    return buffer.role == "input" and (operand.shape, operand.strides) == (buffer.shape, buffer.strides)


@_rule(torch.ops.aten.mm.default, "packed_linear")
def _mm(low: Lowering, node: fx.Node, args: Sequence[Any]) -> Arguments:
    x, turned = args
    weight = _weight(low, turned)
    if weight is None or not isinstance(x, View) or x.strides != contiguous(x.shape):
        return None
    if not isinstance(turned, View) or turned.shape != weight.shape[::-1] or turned.strides != weight.strides[::-1]:
        return None
    return [x, weight, None]


@_rule(torch.ops.aten.addmm.default, "packed_linear")
def _addmm(low: Lowering, node: fx.Node, args: Sequence[Any]) -> Arguments:
    bias, *operands = args
    found = _mm(low, node, operands)
    if found is None or not isinstance(bias, View) or bias.shape != found[1].shape[:1] or bias.strides != (1,):
        return None
    return [*found[:2], bias]


@_rule(torch.ops.aten.convolution.default, "packed_convolution")
def _convolution(low: Lowering, node: fx.Node, args: Sequence[Any]) -> Arguments:
    x, kernel, bias, stride, padding, dilation, transposed, _, groups = args
    weight = _weight(low, kernel)
    if weight is None or transposed or not isinstance(x, View) or len(x.shape) != 4 or kernel.shape != weight.shape:
        return None
    if not _is_channels_last(x.shape, x.strides) or not _is_channels_last(*_laid_out(node)):
        return None  # results come channels last: anything else would be copied
    return [x, weight, bias, list(stride), list(padding), list(dilation), groups]


def _laid_out(node: fx.Node) -> tuple[Any, Any]:
    val = node.meta["val"]
    return sizes_of(val.shape), sizes_of(val.stride())


def _is_channels_last(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    _, c, h, w = shape
    return tuple(strides) == (h * w * c, 1, w * c, c) and not (h == 1 and w == 1)


def _weight(low: Lowering, operand: Any) -> View | None:
    """The whole parameter that an operand shows, if it is frozen and lies in order."""
    if not isinstance(operand, View) or operand.buffer not in low.frozen or operand.offset != 0:
        return None
    buffer = low.buffers[operand.buffer]
    if buffer.strides != contiguous(buffer.shape) or 0 in buffer.shape:
        return None
    return View(buffer.name, buffer.shape, buffer.strides, 0)
