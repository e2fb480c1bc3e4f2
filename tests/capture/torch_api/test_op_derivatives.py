"""Operators of torch.library without a formula for autograd, which then looks into their kernels, or with one that
reads what tensors hold: eager's gradients.
"""

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


@torch.library.custom_op("torchglass_looked_into::grouped", mutates_args=())
def grouped(x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return torch.cat([part * (place + 1) for place, part in enumerate(x.tensor_split(ends.tolist()))])


def grouped_backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
    return grouped(gradient, torch.tensor(ctx.ends.tolist())), None


grouped.register_fake(lambda x, ends: torch.empty_like(x))
grouped.register_autograd(grouped_backward, setup_context=lambda ctx, inputs, output: setattr(ctx, "ends", inputs[1]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_derivative_that_reads_data_breaks_the_graph(backend: str) -> None:
    """As that of transformers.grouped_mm_fallback does (5.17), which mixtures of experts are made of."""

    def f(x, y):
        return ops.grouped((x * 2).tanh(), torch.tensor([3, 5])).sin() * y

    compiled = tg.compile(f, backend=backend)
    torch.testing.assert_close(ran(compiled), ran(f))
    (broken,) = tg.explain(compiled).breaks()
    assert "whose derivative needs the data of a tensor" in str(broken)


def test_captured_whole_where_a_derivative_that_reads_data_is_not_asked_for() -> None:
    def f(x, y):
        return ops.grouped(x * 2, torch.tensor([3, 5])) * y

    x = torch.linspace(-1, 2, 9)
    assert torch.equal(tg.compile(f, backend="aot_eager", fullgraph=True)(x, x), f(x, x))


def halves(x, y):
    return x // 0.5, x * y


def halves_in_place(x, y):
    z = x * 1
    z //= 0.5
    return z, x * y


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [halves, halves_in_place])
def test_an_operator_without_a_derivative_breaks_the_graph(function: Any, backend: str) -> None:
    compiled = tg.compile(function, backend=backend)
    torch.testing.assert_close(ran(lambda x, y: compiled(x, y)[1]), ran(lambda x, y: function(x, y)[1]))
    assert len(tg.explain(compiled).entries) == 1
    (broken,) = tg.explain(compiled).breaks()
    assert "which has no derivative" in str(broken)
    x = torch.linspace(-1, 2, 9).requires_grad_()
    with pytest.raises(RuntimeError, match=r"floor_divide.* is not implemented"):
        compiled(x, x)[0].sum().backward()


def test_captured_whole_where_a_missing_derivative_is_not_asked_for() -> None:
    def f(x, y):
        return x.gather(0, (y // 10).long()) * (y // 2).detach()

    torch.testing.assert_close(ran(tg.compile(f, fullgraph=True)), ran(f))
