"""torch.autograd.grad inside compiled code."""

import pytest
import torch
from torch import nn

import torchglass as tg

from .gradients import assert_as_eager, backends, make_input


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


def by_input(x):
    (gradient,) = torch.autograd.grad((x**3).sum(), x)
    return gradient * 2


def with_graph(x):
    energy = (x**3).sum()
    (gradient,) = torch.autograd.grad(energy, x, create_graph=True)
    return energy, gradient.square()


def unused(x):
    y = x * 2
    first, second = torch.autograd.grad(y.sum(), [y, x], allow_unused=True, retain_graph=True)
    return first, second, y


@backends
@pytest.mark.parametrize("function", [by_input, unused])
def test_as_eager(function, backend):
    assert_as_eager(function, backend)


@backends
def test_gradients_of_gradients(backend):
    assert_as_eager(with_graph, backend)


@backends
def test_by_parameters(backend):
    module = nn.Linear(4, 2)
    assert_as_eager(lambda m, x: torch.autograd.grad(m(x).sin().sum(), list(m.parameters())), backend, module)


def test_a_history_outside_breaks():
    weight = torch.ones(4, requires_grad=True)

    def f(y, w):
        return torch.autograd.grad(y.sum(), w, allow_unused=True)

    for call in (f, tg.compile(f, backend="eager")):
        y = make_input(False) * weight
        (found,) = call(y, weight)
        torch.testing.assert_close(found, make_input(False).sum(0))


def by_a_leaf_made_inside(x):
    with torch.enable_grad():
        inner = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad((inner**3).sum(), inner)
    return gradient * 2


def helped_by_a_leaf_made_inside(x):
    return x * torch.ones(4).requires_grad_()


@backends
@pytest.mark.parametrize("function", [by_a_leaf_made_inside, helped_by_a_leaf_made_inside])
def test_leaves_made_inside(function, backend):
    assert_as_eager(function, backend)


@backends
def test_leaves_that_leave(backend):
    def returned(x):
        leaf = torch.ones(4).requires_grad_()
        return x * leaf, leaf

    def alone(x):
        return torch.ones(4, requires_grad=True) * 2 + x

    for function in (returned, alone):
        compiled = tg.compile(function, backend=backend)
        for _ in range(2):
            found, expected = compiled(make_input(False)), function(make_input(False))
            pairs = zip(found, expected) if isinstance(found, tuple) else [(found, expected)]
            for a, b in pairs:
                assert (a.requires_grad, a.is_leaf) == (b.requires_grad, b.is_leaf)


@pytest.mark.parametrize("backend", ["eager", "glass"])
def test_by_an_iterator_over_parameters(backend):
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))

    def f(x):
        loss = model(x).square().mean()
        last = torch.autograd.grad(inputs=model[2].parameters(), outputs=loss, retain_graph=True)
        return torch.autograd.grad(loss, model.parameters()), last

    compiled = tg.compile(f, backend=backend, fullgraph=True)
    x = torch.randn(5, 4)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), f(x))


@pytest.mark.parametrize("backend", ["eager", "glass"])
def test_a_loss_whose_history_was_freed_is_returned(backend):
    """As in eager it requires grad, and raises when it is asked for a gradient."""

    def f(x):
        loss = (x * 3).sin().square().sum()
        (g,) = torch.autograd.grad(loss, x)
        return loss, g

    def kept(x):
        loss = (x * 3).sin().square().sum()
        (g,) = torch.autograd.grad(loss, x, retain_graph=True)
        return loss, g

    compiled = tg.compile(f, backend=backend)
    for _ in range(2):
        x = make_input(True)
        (loss, g), expected = compiled(x), f(x)
        torch.testing.assert_close((loss, g), expected)
        assert loss.requires_grad and not g.requires_grad
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()
    assert len(tg.explain(compiled).record.entries) == 1 and not tg.explain(compiled).record.fallbacks
    loss, _ = tg.compile(kept, backend=backend, fullgraph=True)(x)
    loss.backward()
    assert x.grad is not None
