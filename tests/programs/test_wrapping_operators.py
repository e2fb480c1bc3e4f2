"""Operators of ``torch.ops.higher_order`` around one call of a function: captured whole, with eager's gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops import _invoke_quant

import torchglass as tg

BACKENDS = ("eager", "aot_eager", "glass")
ops = torch.ops.higher_order
product = torch.fx.symbolic_trace(lambda x, y: (x.sin() * y,))
quantized = _invoke_quant.InvokeQuant()


def wrapped(x, y):
    return ops.wrap(lambda z: z * 2 + x, y)


def without_gradients(x, y):
    return ops.wrap_with_set_grad_enabled(False, lambda z: z * 2 + x, y) * x


def under_autocast(x, y):
    return ops.wrap_with_autocast("cpu", torch.bfloat16, True, None, lambda z: z @ x, y)


def around(x, y):
    return ops.dynamo_bypassing_wrapper(lambda function: lambda z: function(z) + 1, lambda z: z * 2 + x, y)


def checkpointed(x, y):
    return ops.wrap_activation_checkpoint(product, x, y)[0]


def marked_checkpoint(x, y):
    return ops.tag_activation_checkpoint(product, x, y, use_reentrant=False)[0]


def with_hints(x, y):
    return ops.hints_wrapper(lambda z: (z * 2 + y,), (x.detach(),), {}, {"width": 4})[0]


def strict(x, y):
    return ops.strict_mode(lambda z: (z * 2 + y,), (x.detach(),))[0]


def quantized_packed(x, y):
    return _invoke_quant.invoke_quant_packed(lambda z, w: (z * w,), x, y, scheme="nf4")[0]


def quantized_object(x, y):
    return quantized(lambda z, w: (z * w,), x, y, scheme="nf4")[0]


def sub_graph(x, y):
    return ops.invoke_subgraph(product, "product", x.detach(), y.detach())[0]


def raw_cond(x, y):
    return ops.cond(x.sum() > 0, lambda z: (z + 1,), lambda z: (z - 1,), (x,))[0] * y


PROGRAMS = (
    wrapped, without_gradients, under_autocast, around, checkpointed, marked_checkpoint, with_hints, strict,
    quantized_packed, quantized_object, sub_graph, raw_cond,
)  # fmt: skip


def ran(function: Callable[..., Any]) -> tuple[Any, ...]:
    """Result, whether it is differentiable, and gradients."""
    x = torch.linspace(-1, 2, 9).reshape(3, 3).requires_grad_()
    y = torch.arange(9.0).reshape(3, 3).requires_grad_()
    result = function(x, y)
    if result.requires_grad:
        result.float().square().sum().backward()
    return result.detach(), result.requires_grad, x.grad, y.grad


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_captured_whole(program: Callable[..., Any], backend: str) -> None:
    expected = ran(program)
    torch.testing.assert_close(ran(tg.compile(program, backend=backend, fullgraph=True)), expected)


def strict_of_leaf(x, y):
    return ops.strict_mode(lambda z: (z * 2,), (x,))[0]


def hints_of_leaf(x, y):
    return ops.hints_wrapper(lambda z: (z * 2,), (x,), {}, {})[0]


@pytest.mark.parametrize("program", [strict_of_leaf, hints_of_leaf], ids=lambda program: program.__name__)
def test_backward_of_an_operator_without_derivative_raises(program: Callable[..., Any]) -> None:
    messages = []
    for function in (program, tg.compile(program, backend="aot_eager")):
        with pytest.raises(RuntimeError) as caught:
            ran(function)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
