"""torch.autograd.Function whose code calls NumPy: whole, with NumPy's own results; what cannot be traced breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import torchglass as tg

BACKENDS = ("eager", "aot_eager", "glass")


def function_of(forward: Callable[..., Any], factor: float = 2.0) -> Any:
    """An autograd.Function of one tensor; its backward multiplies in NumPy."""

    class Made(torch.autograd.Function):
        @staticmethod
        def backward(ctx, gradient):
            return torch.tensor(gradient.numpy() * factor)

    Made.forward = staticmethod(lambda ctx, x: forward(x))
    return Made


def back(array: Any) -> torch.Tensor:
    return torch.tensor(array)


TRACED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "operators": lambda x: back(3 * x.numpy() ** 2 - x.numpy() / 2),
    "ufunc": lambda x: back(np.exp(x.cpu().numpy(), dtype=np.float32)),
    "function": lambda x: back(np.take_along_axis(x.numpy(), np.argsort(x.numpy(), axis=0), 0)),
    "double": lambda x: torch.tensor(np.multiply(x.numpy(), 2, dtype=np.float64), dtype=torch.float32),
    "as_tensor": lambda x: torch.as_tensor(np.sin(x.numpy())),
    "transposed": lambda x: back(np.sin(x.t().numpy())).t().clone(),
    "in_place_before": lambda x: written_through_torch(x.clone()),
    "into_an_array": lambda x: written_through_numpy(x.clone()),
    "augmented": lambda x: augmented(x.clone()),
    "questions": lambda x: back(x.numpy() * (len(x.numpy()) + x.numpy().ndim + (x.numpy().dtype == np.float32))),
    "isinstance": lambda x: back(np.sin(x.numpy()) if isinstance(x.numpy(), np.ndarray) else np.cos(x.numpy())),
    "methods": lambda x: back(x.numpy().astype(np.float64).cumsum(1).astype("float32")),
    "sums": lambda x: back(x.numpy() - x.numpy().sum(axis=0, keepdims=True) * x.numpy().max(1, keepdims=True).copy()),
    "several": lambda x: back(np.where(x.numpy() > 0, x.numpy(), 0.5)),
}


def written_through_torch(y: torch.Tensor) -> torch.Tensor:
    array = y.numpy()
    y.mul_(3)
    return back(np.sin(array))


def written_through_numpy(y: torch.Tensor) -> torch.Tensor:
    array = y.numpy()
    np.exp(array, array)
    np.add(array, 1, out=array)
    return y


def augmented(y: torch.Tensor) -> torch.Tensor:
    array = y.numpy()
    array += 1
    array *= np.sin(array)
    return y


def applied(forward: Callable[..., Any]) -> Any:
    made = function_of(forward)
    return lambda x: made.apply(x.sin()) * x


def ran(function: Any, shape: tuple[int, ...] = (3, 3)) -> tuple[Any, Any]:
    x = torch.linspace(-1, 2, 9).reshape(shape) if shape else torch.tensor(0.5)
    x.requires_grad_()
    result = function(x)
    result.square().sum().backward()
    return result.detach(), x.grad


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", TRACED)
def test_numpy_is_traced(name: str, backend: str) -> None:
    f = applied(TRACED[name])
    expected = ran(f)
    found = ran(tg.compile(f, backend=backend, fullgraph=True))
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
        assert one.stride() == other.stride()


UNTRACED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "scalar": lambda x: x * float(np.sum(x.numpy())),
    "places": lambda x: back(x.numpy()[::2].repeat(2, 0)[:3].copy()),
    "data": lambda x: x * len(np.unique(x.numpy())),
    "class": lambda x: back(np.sin(x.numpy()) if type(x.numpy()) is np.ndarray else np.cos(x.numpy())),
    "text": lambda x: x * len(str(x.numpy())),
    "truth": lambda x: x * 2 if (x.numpy() > -5).all() else x,
    "loop": lambda x: back(np.stack([row * 2 for row in x.numpy()])),
    "from_numpy": lambda x: torch.from_numpy(np.sin(x.numpy())),
    "given_back": lambda x: back(x.numpy().astype(np.float32, copy=False)),
    "view": lambda x: back(np.transpose(x.numpy())),
    "caught": lambda x: caught(x),
    "out": lambda x: back(np.cumsum(x.numpy(), 0, None, x.clone().numpy())),
    "reduced": lambda x: back(np.add.reduce(x.numpy()) + np.zeros((3, 1), np.float32)),
}


def caught(x: torch.Tensor) -> torch.Tensor:
    try:
        return back(np.linalg.inv(x.numpy() + 3 * np.eye(3, dtype=np.float32)))
    except Exception:
        return x * 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", UNTRACED)
def test_what_is_not_traced_breaks_the_graph(name: str, backend: str) -> None:
    f = applied(UNTRACED[name])
    with pytest.raises(tg.GraphBreakError):
        ran(tg.compile(f, backend=backend, fullgraph=True))
    torch.testing.assert_close(ran(tg.compile(f, backend=backend)), ran(f))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_tensor_without_dimensions_runs_as_in_eager(backend: str) -> None:
    made = function_of(lambda x: torch.tensor(np.multiply(x.numpy(), 2)))
    f = lambda x: made.apply(x) + 1
    torch.testing.assert_close(ran(tg.compile(f, backend=backend), ()), ran(f, ()))


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_that_arrive_transposed(backend: str) -> None:
    made = function_of(lambda x: back(np.sin(x.numpy())))

    def gradient(function: Any) -> torch.Tensor:
        x = torch.linspace(-1, 2, 9).reshape(3, 3).requires_grad_()
        function(x).backward(torch.arange(9.0).reshape(3, 3).t())
        return x.grad

    compiled = tg.compile(lambda x: made.apply(x), backend=backend, fullgraph=True)
    assert torch.equal(gradient(compiled), gradient(lambda x: made.apply(x)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_within_a_backward(backend: str) -> None:
    """torch.autograd.grad in the program's backward runs NumPy of another function's backward."""
    inner = function_of(lambda x: back(np.sin(x.numpy())), factor=3.0)

    class Outer(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                y = x.detach().requires_grad_()
                (found,) = torch.autograd.grad(inner.apply(y), y, gradient)
            return found

    def f(x):
        return Outer.apply(x) * 2

    torch.testing.assert_close(ran(tg.compile(f, backend=backend)), ran(f))


@pytest.mark.parametrize("backend", BACKENDS)
def test_numpy_within_a_branch(backend: str) -> None:
    made = function_of(lambda x: back(np.sin(x.numpy())))

    def f(x):
        return torch.cond(x.sum() > 0, lambda x: made.apply(x), lambda x: x * 2, (x,))

    x = torch.linspace(-1, 2, 9)
    torch.testing.assert_close(tg.compile(f, backend=backend, fullgraph=True)(x), x.sin())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "x", [torch.zeros(0, 3), torch.ones(1, 3).expand(4, 3), torch.rand(8, 3)[::2]], ids=["empty", "expanded", "steps"]
)
def test_layouts_are_those_of_eager(x: torch.Tensor, backend: str) -> None:
    made = function_of(lambda x: back(np.sort(np.exp(x.numpy()), axis=0)))
    found, expected = tg.compile(lambda x: made.apply(x), backend=backend)(x), made.apply(x)
    assert torch.equal(found, expected) and found.stride() == expected.stride()
