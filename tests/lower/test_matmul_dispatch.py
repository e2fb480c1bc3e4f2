"""Products by oneDNN: which, and that they are as exact as eager's. The processor's part in the rule is replaced."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import torchglass as tg
from torchglass import torch_compat

pytestmark = pytest.mark.skipif(not torch_compat.packs_weights(torch.float32), reason="this torch has no oneDNN")
Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def slow_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_compat.onednn, "_mkl_is_slow", lambda: True)


def calls(compiled: Callable[..., object], side: str = "forward") -> int:
    (graph,) = tg.explain(compiled).graphs()
    return graph.files[f"{side}_wrapper.py"].count("= mkldnn__linear_pointwise(")


SIZES = [(128, 160), (96, 160), (96,)]
PROGRAMS: dict[str, tuple[Callable[[Tensor, Tensor, Tensor], Tensor], list[tuple[int, ...]], int]] = {
    "linear": (lambda x, w, b: F.linear(x, w, b), SIZES, 1),
    "no bias": (lambda x, w, b: F.linear(x, w) + b, SIZES, 1),
    "batched": (lambda x, w, b: F.linear(x, w, b), [(4, 32, 160), *SIZES[1:]], 1),
    "weight by columns": (lambda x, w, b: x @ w + b, [(128, 160), (160, 96), (96,)], 1),
    "both turned": (lambda x, w, b: x.t() @ w.t() + b, [(160, 128), *SIZES[1:]], 1),
    "part of a weight": (lambda x, w, b: F.linear(x, w[:, :160], b), [(128, 160), (96, 200), (96,)], 0),
    "rows of a weight": (lambda x, w, b: F.linear(x, w[8:104], b), [(128, 160), (120, 160), (96,)], 1),
    "scaled": (lambda x, w, b: torch.addmm(b, x, w.t(), beta=2), SIZES, 0),
    "a matrix added": (lambda x, w, b: torch.addmm(b, x, w.t()), [*SIZES[:2], (128, 96)], 0),
    "one number added": (lambda x, w, b: torch.addmm(b, x, w.t()), [*SIZES[:2], (1,)], 0),
    "a vector": (lambda x, w, b: F.linear(x, w, b), [(1, 2000), (2000, 2000), (2000,)], 0),
    "small": (lambda x, w, b: F.linear(x, w, b), [(16, 160), *SIZES[1:]], 0),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_which_products(name: str) -> None:
    fn, shapes, expected = PROGRAMS[name]
    torch.manual_seed(0)
    inputs = [torch.randn(shape) for shape in shapes]
    compiled = tg.compile(fn, fullgraph=True)
    ours, theirs, exact = compiled(*inputs), fn(*inputs), fn(*(x.double() for x in inputs))
    assert calls(compiled) == expected
    assert ours.stride() == theirs.stride()
    error, eager = ((y - exact).square().mean().sqrt() for y in (ours, theirs))
    assert error <= 2 * eager + 1e-6


def test_gradients() -> None:
    torch.manual_seed(0)
    x, layer = torch.randn(128, 160, requires_grad=True), torch.nn.Linear(160, 96)
    compiled = tg.compile(lambda x: layer(x).tanh(), fullgraph=True)
    tensors = [x, *layer.parameters()]
    ours = torch.autograd.grad(compiled(x).sum(), tensors)
    theirs = torch.autograd.grad(layer(x).tanh().sum(), tensors)
    assert calls(compiled, "backward") == 2
    for a, b in zip(ours, theirs, strict=True):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


BIASED: dict[str, tuple[Callable[[Tensor, Tensor, Tensor], object], tuple[int, int]]] = {
    "a loop reads it": (lambda x, w, b: F.gelu(F.linear(x, w, b)), (1, 0)),
    "through a view": (lambda x, w, b: F.linear(x, w, b).view(4, 8, 40).softmax(-1), (1, 0)),
    "two loops": (lambda x, w, b: (y := F.linear(x, w, b)).sum(0) + y.exp(), (1, 0)),
    "it is returned": (lambda x, w, b: ((y := F.linear(x, w, b)), y.exp()), (0, 1)),
    "a product reads it": (lambda x, w, b: F.linear(x, w, b).t() @ x, (1, 1)),
    "a matrix is added": (lambda x, w, b: torch.addmm(b.expand(32, 40), x, w.t()).exp(), (0, 1)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", BIASED)
def test_loops_add_the_bias(name: str, dtype: torch.dtype) -> None:
    fn, expected = BIASED[name]
    torch.manual_seed(0)
    x, w, b = (torch.randn(shape, dtype=dtype) for shape in ((32, 24), (40, 24), (40,)))
    compiled = tg.compile(fn, fullgraph=True)
    torch.testing.assert_close(compiled(x, w, b), fn(x, w, b))
    (graph,) = tg.explain(compiled).graphs()
    text = graph.files["forward_wrapper.py"]
    assert (text.count("torch.mm("), text.count("torch.addmm(")) == expected


def test_symbolic_sizes_and_other_dtypes() -> None:
    weight = torch.randn(200, 160)
    compiled = tg.compile(lambda x: x @ weight.to(x.dtype).t())
    for rows, dtype in ((128, torch.float32), (77, torch.float32), (128, torch.float64)):
        x = torch.randn(rows, 160, dtype=dtype)
        torch.testing.assert_close(compiled(x), x @ weight.to(dtype).t(), rtol=1e-4, atol=1e-4)
