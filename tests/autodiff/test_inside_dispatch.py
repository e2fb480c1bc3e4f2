"""Compiled functions called inside kernels: a mode's or subclass's ``__torch_dispatch__``, a custom operator's."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import torchglass as tg


def function(x):
    return (x.sin() * 2).relu()


@pytest.fixture(params=[(b, before) for b in ("eager", "aot_eager", "glass") for before in (False, True)], ids=str)
def compiled(request):
    tg.reset()
    backend, before = request.param
    call = tg.compile(function, backend=backend)
    if before:
        call(torch.ones(3, 3))
        call(torch.ones(3, 3, requires_grad=True)).sum().backward()
    return call


def under(call, on_result):
    """A mode whose every result goes through ``on_result``."""

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return on_result(func(*args, **(kwargs or {})))

    with Mode():
        return call()


def wrapper(on_result):
    """A wrapper subclass, likewise."""

    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
            made.inner = inner
            return made

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            result = func(*(getattr(arg, "inner", arg) for arg in args), **(kwargs or {}))
            return cls(on_result(result))

    return Wrapper


def test_inside_a_mode(compiled):
    x = torch.randn(3, 3)
    torch.testing.assert_close(under(lambda: x + 1, compiled), function(x + 1))
    torch.testing.assert_close(compiled(x), function(x))  # and outside again


def test_inside_a_mode_with_a_gradient(compiled):
    """Autograd is off there, whatever grad mode says."""
    x = torch.randn(3, 3)

    def step(result):
        with torch.enable_grad():
            return compiled(result.detach().clone().requires_grad_()).detach()

    torch.testing.assert_close(under(lambda: x + 1, step), function(x + 1))
    y = x.clone().requires_grad_()
    compiled(y).sum().backward()
    (expected,) = torch.autograd.grad(function(y).sum(), y)
    torch.testing.assert_close(y.grad, expected)


def test_inside_a_subclass(compiled):
    x = torch.randn(3, 3)
    torch.testing.assert_close((wrapper(compiled)(x) + 1).inner, function(x + 1))


def test_inside_a_mode_that_is_entered_again(compiled):
    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            result = func(*args, **(kwargs or {}))
            if func is torch.ops.aten.add.Tensor:
                with self:
                    return compiled(result)
            return result

    x = torch.randn(3, 3)
    with Mode():
        found = x + 1
    torch.testing.assert_close(found, function(x + 1))
    assert torch.ops.aten.sin.default in seen and torch.ops.aten.relu.default in seen


def test_inside_a_custom_operator(compiled):
    library = torch.library.Library("torchglass_test", "FRAGMENT")
    library.define("call(Tensor x) -> Tensor")
    library.impl("call", lambda x: compiled(x), "CPU")
    x = torch.randn(3, 3)
    torch.testing.assert_close(torch.ops.torchglass_test.call(x), function(x))
    library._destroy()


def test_modes_see_the_operations(compiled):
    x = torch.randn(3, 3)
    for _ in range(2):
        seen = []
        with FlopCounterMode(display=False):
            under(lambda: compiled(x), lambda result, seen=seen: seen.append(result) or result)
        assert len(seen) == 3
