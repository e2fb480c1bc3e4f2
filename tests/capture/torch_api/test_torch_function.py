"""Objects that are no tensors and whose class has a ``__torch_function__``: it says what PyTorch's functions mean."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

import torchglass as tg

from ..compared import outcome, same


@pytest.fixture(autouse=True)
def clean():
    tg.reset()


class Scaled:
    """``factor * values``, multiplied late."""

    known = {
        torch.matmul: lambda a, b: (a.values @ b) * a.factor if isinstance(a, Scaled) else (a @ b.values) * b.factor
    }

    def __init__(self, values, factor=2.0):
        self.values, self.factor = values, factor

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in cls.known:
            return cls.known[func](*args, **(kwargs or {}))
        if func is torch.stack:
            return cls(torch.stack([a.values for a in args[0]], **kwargs), args[0][0].factor)
        if func is F.linear:
            return F.linear(args[0], args[1].values * args[1].factor, *args[2:])
        if func in (torch.add, F.relu, F.softmax, torch.Tensor.mul):
            named = sorted(kwargs or {})
            return func.__name__, [t.__name__ for t in types], len(args), named, [type(a).__name__ for a in args]
        return NotImplemented

    def softmax(self, dim):
        raise AssertionError("functional.softmax asks __torch_function__ first")

    def __radd__(self, other):
        return Scaled(self.values + other, self.factor)

    def __rmul__(self, other):
        raise AssertionError("Tensor.__mul__ asks __torch_function__ first")

    def __sub__(self, other):
        return Scaled(self.values - other, self.factor)


class Doubled(Scaled):
    pass


class Refusing(Scaled):
    __torch_function__ = torch._C._disabled_torch_function_impl


class Counting(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def under_a_mode(x, s):
    with Counting():
        return torch.matmul(s, x)


PROGRAMS = {
    "function": lambda x, s: (torch.matmul(x, s), torch.matmul(s, x)),
    "in_a_list": lambda x, s: vars(torch.stack([s, s], dim=1)),
    "made_inside": lambda x, s: torch.matmul(Scaled(x, 3.0), x),
    "python_function": lambda x, s: (F.relu(s, inplace=False), F.softmax(s, dim=0), F.linear(x, s)),
    "subclass_first": lambda x, s: (torch.add(s, Doubled(x)), torch.add(Doubled(x), s), torch.add(x, s, alpha=2)),
    "operators": lambda x, s: (x * s, vars(s - x)),
    "asked_whether": lambda x, s: (
        torch.overrides.has_torch_function((x, s)), torch.overrides.has_torch_function((x, x)),
        torch.overrides.has_torch_function_unary(s), torch.overrides.has_torch_function_variadic(x, Refusing(x)),
        torch.overrides.is_tensor_like(s), torch.is_tensor(s),
    ),
    "under_a_mode": under_a_mode,
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_answers(name):
    function, values = PROGRAMS[name], torch.arange(9.0).reshape(3, 3)
    compiled = tg.compile(function, fullgraph=True, backend="eager")
    for n in range(3):
        x = torch.full((3, 3), float(n))
        same(compiled(x, Scaled(values + n)), function(x, Scaled(values + n)))


@pytest.mark.parametrize(
    "function",
    [lambda x, s: torch.sin(s), lambda x, s: x.matmul(s), lambda x, s: x @ s, lambda x, s: vars(x + s),
     lambda x, s: torch.matmul(x, Refusing(x)), lambda x, s: nn.Identity()(s).softmax],
    ids=["sin", "method", "operator", "reflected", "disabled", "attribute"],
)  # fmt: skip
def test_what_it_does_not_know(function):
    compiled, x = tg.compile(function, backend="eager"), torch.ones(2, 2)
    scaled = Scaled(x + 1)
    for _ in range(2):
        same(outcome(compiled, x, scaled), outcome(function, x, scaled))


def test_another_answer_is_noticed(monkeypatch):
    def f(x, s):
        return torch.matmul(x, s)

    compiled, x, scaled = tg.compile(f, fullgraph=True, backend="eager"), torch.ones(2, 2), Scaled(torch.ones(2, 2))
    same(compiled(x, scaled), f(x, scaled))
    answer = classmethod(lambda cls, func, types, args=(), kwargs=None: args[0] - 1)
    monkeypatch.setattr(Scaled, "__torch_function__", answer)
    same(compiled(x, scaled), f(x, scaled))


def test_gradients_go_through():
    def f(x, weight):
        return torch.matmul(x, Scaled(weight, 3.0)).square().sum()

    x, weight = torch.ones(2, 2), torch.randn(2, 2, requires_grad=True)
    (expected,) = torch.autograd.grad(f(x, weight), weight)
    (found,) = torch.autograd.grad(tg.compile(f, fullgraph=True, backend="eager")(x, weight), weight)
    same(found, expected)


def test_a_subclass_hears_of_its_operations_alone():
    heard = []

    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            heard.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    compiled = tg.compile(lambda x: x.sin() + 1)
    compiled(torch.ones(2))
    compiled(torch.ones(2).as_subclass(Loud))
    assert heard == ["sin", "add"]
