"""Operators of torch.library without a formula for autograd, which then looks into their kernels: eager's gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import torchglass as tg

BACKENDS = ("eager", "aot_eager", "glass")
library = torch.library.Library("torchglass_looked_into", "DEF")
ops = torch.ops.torchglass_looked_into


def define(name: str, result: str, kernel: Any, key: str, fake: Any = None) -> None:
    library.define(f"{name}(Tensor x, Tensor y) -> {result}")
    library.impl(name, kernel, key)
    if fake is not None:
        library.impl(name, fake, "Meta")


def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.sin() * y


define("on_cpu", "Tensor", product, "CPU", lambda x, y: torch.empty_like(x))
define("explicit", "Tensor", product, "CompositeExplicitAutograd")
define("implicit", "Tensor", product, "CompositeImplicitAutograd")
define("order", "Tensor", lambda x, y: (x * y).argsort(), "CPU", lambda x, y: torch.empty_like(x, dtype=torch.int64))


def ran(function: Any) -> tuple[Any, ...]:
    x = torch.linspace(-1, 2, 9).requires_grad_()
    y = torch.arange(9.0).requires_grad_()
    result = function(x, y)
    result.square().sum().backward()
    return result.detach(), x.grad, y.grad


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["on_cpu", "explicit", "implicit"])
@pytest.mark.parametrize("overload", [False, True], ids=["packet", "overload"])
def test_gradients_are_those_of_the_kernel(name: str, overload: bool, backend: str) -> None:
    operator = getattr(ops, name).default if overload else getattr(ops, name)

    def f(x, y):
        return operator(x * 2, y) + y

    torch.testing.assert_close(ran(tg.compile(f, backend=backend)), ran(f))


@pytest.mark.parametrize("name", ["on_cpu", "explicit", "implicit"])
def test_captured_whole_where_nothing_is_differentiated(name: str) -> None:
    operator = getattr(ops, name)

    def f(x, y):
        return operator(x * 2, y) + y

    x = torch.linspace(-1, 2, 9)
    assert torch.equal(tg.compile(f, backend="aot_eager", fullgraph=True)(x, x), f(x, x))


def test_captured_whole_where_the_result_has_no_gradient() -> None:
    def f(x, y):
        return x.gather(0, ops.order(x, y)) * y

    torch.testing.assert_close(ran(tg.compile(f, backend="aot_eager", fullgraph=True)), ran(f))
