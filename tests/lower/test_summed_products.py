"""Sums of products that become one product: which, and that the numbers stay those of eager."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.codegen.harness import check

import torchglass as tg

Tensor = torch.Tensor
SMALL = [(24, 4), (4, 20)] * 4  # the factors' 176 elements are fewer than the product's 480


def products(xs: tuple[Tensor, ...]) -> list[Tensor]:
    return [a @ b for a, b in zip(xs[::2], xs[1::2])]


def together(*xs: Tensor) -> Tensor:
    a, b, c, d = products(xs)
    return (a + b) + (c + d)


def turned(*xs: Tensor) -> Tensor:
    a, b, c, d = (x.t().contiguous().t() @ y for x, y in zip(xs[::2], xs[1::2]))
    return a + b + c + d


def with_others(*xs: Tensor) -> Tensor:
    a, b, c, d = products(xs)
    return (a + b + c + d.relu() + 1).relu()


def two_sums(*xs: Tensor) -> Tensor:
    a, b, c, d = products(xs)
    return (a + b + c) * (b.exp() + d)


def doubled(*xs: Tensor) -> Tensor:
    a, b, c, _ = products(xs)
    s = a + b + c
    return s + s


def weighted(*xs: Tensor) -> Tensor:
    a, b, c, d = products(xs)
    return torch.add(torch.add(a, b, alpha=2), c) + d


def returned(*xs: Tensor) -> tuple[Tensor, ...]:
    a, b, c, d = products(xs)
    return a + b + c + d, a, b


PROGRAMS: dict[str, tuple[Callable[..., object], list[tuple[int, ...]], int]] = {
    "four": (together, SMALL, 1),
    "of turned factors": (turned, SMALL, 1),
    "beside another number": (with_others, SMALL, 2),
    "one that is read elsewhere too": (two_sums, SMALL, 4),
    "a sum twice": (doubled, SMALL, 1),
    "with a weight": (weighted, SMALL, 4),
    "products that are returned": (returned, SMALL, 4),
    "long factors": (together, [(24, 30), (30, 20)] * 4, 4),
    "of several lengths": (together, [(24, 4), (4, 20), (24, 2), (2, 20)] * 2, 1),
    "of none": (together, [(24, 0), (0, 20)] * 4, 1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", PROGRAMS)
def test_which_products_are_one(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    fn, shapes, left = PROGRAMS[name]
    torch.manual_seed(0)
    inputs = [torch.randn(shape, dtype=dtype) for shape in shapes]
    compiled = check(fn, inputs, tmp_path, tol=0.06 if dtype == torch.bfloat16 else 1e-4)
    assert sum(target.startswith("torch.ops.aten.mm") for target in compiled.externs) == left


@pytest.mark.parametrize("layer", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_gradients_of_recurrent_layers(layer: type[torch.nn.Module]) -> None:
    torch.manual_seed(0)
    model = layer(8, 16, batch_first=True)
    x = torch.randn(3, 7, 8, requires_grad=True)
    compiled = tg.compile(model)
    compiled(x)[0].square().sum().backward()
    got = [x.grad, *(p.grad for p in model.parameters())]
    x.grad = None
    model.zero_grad()
    model(x)[0].square().sum().backward()
    for ours, theirs in zip(got, [x.grad, *(p.grad for p in model.parameters())]):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    (graph,) = tg.explain(compiled).graphs()
    assert graph.files["backward_wrapper.py"].count("torch.mm(") == 9  # six between the steps, and three of all steps
