"""Functions that stay in the graph because they are written in other operators, with eager's results and errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import torchglass as tg


def test_one_hot_is_captured_and_raises_as_eager() -> None:
    def fn(classes: torch.Tensor) -> torch.Tensor:
        return F.one_hot(classes, 5).float() * 2

    compiled = tg.compile(fn, fullgraph=True)
    classes = torch.tensor([[1, 2], [0, 4]])
    assert torch.equal(compiled(classes), fn(classes))
    assert tg.explain(compiled).entries
    for wrong, message in ((classes + 3, "smaller than num_classes"), (classes - 1, "non-negative")):
        with pytest.raises(RuntimeError, match=message):
            compiled(wrong)


def put(x: torch.Tensor, mask: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[mask] = value
    return y


FILLS = {
    "a mask": put,
    "index_put": lambda x, m, v: torch.index_put(x, (m,), v),
    "a full mask": lambda x, m, v: x.index_put((x.t() > 0,), v.sum()),
    "added": lambda x, m, v: x.clone().index_put_((m,), v[None], accumulate=True),
    "index_fill": lambda x, m, v: x.t().index_fill(-1, torch.tensor([0, 2, 0]), v[0]),
    "index_fill_": lambda x, m, v: x.clone().index_fill_(0, torch.tensor([4]), v.sum()),
}


@pytest.mark.parametrize("name", FILLS)
def test_a_value_with_gradient_fills_places(name: str) -> None:
    """Eager's gradient by the value has steps of data-dependent shapes."""
    torch.manual_seed(0)
    x, v = torch.randn(5, 5, requires_grad=True), torch.randn(5, requires_grad=True)
    mask = torch.tensor([True, False, True, True, False])
    results = [FILLS[name](x, mask, v), tg.compile(FILLS[name], fullgraph=True)(x, mask, v)]
    assert results[0].stride() == results[1].stride()
    ours, theirs = ([y.detach(), *torch.autograd.grad(y.sin().sum(), (x, v))] for y in results)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("backend", ["aot_eager", "glass"])
def test_a_value_for_each_place_of_a_mask_ends_the_graph(backend: str) -> None:
    """What comes before and after is compiled."""

    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        inside = x.flatten().argsort().argsort().view_as(x) < 5
        y = torch.zeros_like(x)
        y[~inside] = x[~inside]
        y[inside] = w.flatten()[:5] * 2
        return y.exp() * w

    compiled = tg.compile(fn, backend=backend)
    assert_as_eager(fn, compiled)
    assert any("through a mask" in b.reason for b in tg.explain(compiled).breaks())


@pytest.mark.parametrize("backend", ["aot_eager", "glass"])
def test_as_many_values_as_a_mask_chooses_stay_in_the_graph(backend: str) -> None:
    """As splines of flows write what lies inside their bounds."""

    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        inside = x.abs() < 1
        y = torch.zeros_like(x)
        y[~inside] = x[~inside]
        y[inside] = w[inside] * 2
        return y.exp() * w

    assert_as_eager(fn, tg.compile(fn, backend=backend, fullgraph=True))


def assert_as_eager(fn: Callable[..., torch.Tensor], compiled: Callable[..., torch.Tensor]) -> None:
    for seed in range(2):
        torch.manual_seed(seed)
        x, w = torch.randn(6, 3), torch.randn(6, 3, requires_grad=True)
        results = [f(x, w) for f in (fn, compiled)]
        ours, theirs = ([y.detach(), *torch.autograd.grad(y.sin().sum(), w)] for y in results)
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (9, 2)])
def test_diagonals_of_views_are_filled(shape: tuple[int, int]) -> None:
    """As similarities leave out what is compared with itself; PyTorch's own code writes through ``as_strided``."""

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        turned, part = (x * 2).t(), torch.cat([x, x])[: len(x)]
        turned.fill_diagonal_(-1.0)
        part[:, 1:].fill_diagonal_(5)
        return turned, part.sin(), (x + 1).view(1, *x.shape)[0].fill_diagonal_(0.0, wrap=True)

    x = torch.randn(*shape, requires_grad=True)
    results = fn(x), tg.compile(fn, fullgraph=True)(x)
    ours, theirs = ([*(y.detach() for y in r), *torch.autograd.grad(sum(y.sum() for y in r), x)] for r in results)
    torch.testing.assert_close(ours, theirs)
