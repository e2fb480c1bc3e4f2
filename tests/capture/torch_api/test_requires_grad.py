"""``requires_grad_()`` and ``.requires_grad =`` in the function, on inputs and on what is made inside, as in eager."""

import pytest
import torch

import torchglass as tg

from ..tables import tables
from .gradients import backends

WHOLE, BREAKS, whole, breaks = tables()
W = torch.arange(1.0, 5).requires_grad_()
FREE = torch.ones(4)


@whole
def view_of_an_input(x):
    h = x[:, None]
    h.requires_grad = True
    return (h * W).sin()


@whole
def computed(x):
    h = (x * 2).requires_grad_()
    return h * W, h.requires_grad, h.is_leaf


@whole
def taken_back(x):
    h = x.clone()
    h.requires_grad = True
    found = h.is_leaf and h.requires_grad
    h.requires_grad = False
    return h + 1, found


@whole
def as_it_is(x):
    y = x.requires_grad_(False) * W
    return y.requires_grad_()


@whole
def an_input(x):
    x.requires_grad_()
    return x * 2


@whole
def an_input_by_attribute(x):
    x.requires_grad = True
    return x.sin() * W


@whole
def an_input_unused(x):
    x.requires_grad_()
    return 3


@whole
def a_global(x):
    FREE.requires_grad_()
    return x * FREE


@whole
def force(x):
    x.requires_grad_()
    energy = (x**3 * W).sum()
    (gradient,) = torch.autograd.grad(energy, x, create_graph=True)
    return gradient, energy


@whole
def by_a_leaf(x):
    h = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad((h**2).sum(), h)
    return gradient * W


@whole
def parameters_frozen(x):
    layer = [W]
    for p in layer:
        p.requires_grad = True
    return x * layer[0]


@breaks
def leaves(x):
    h = x * 2
    h.requires_grad_()
    return h


@breaks
def alone(x):
    h = x * 2
    h.requires_grad = True
    return (h * 3).sum()


@breaks
def written_to_an_input(x):
    h = (x * 2).requires_grad_()
    x.copy_(h * 3)
    return x * 1


@breaks
def after_its_use(x):
    y = x * 2
    x.requires_grad_()
    return x * 3 + y, y


@breaks
def off(x):
    x.requires_grad_()
    y = x * 2
    x.requires_grad_(False)
    return y, x * 2


@breaks
def of_a_result(x):
    y = x * W
    y.requires_grad = False
    return y


@breaks
def of_a_result_as_it_is(x):
    y = x * W
    y.requires_grad = True
    return y


@breaks
def not_a_bool(x):
    y = x * 1
    y.requires_grad = 3
    return y


@breaks
def integers(x):
    x.long().requires_grad = True


@breaks
def backward_inside(x):
    y = torch.zeros(4, requires_grad=True)
    (y * x).sum().backward()
    return y.grad


def outcome(function):
    W.grad, FREE.grad = None, None
    FREE.requires_grad_(False)
    x = torch.arange(12.0).view(3, 4)
    try:
        found = function(x)
    except Exception as error:
        return type(error), str(error), x.requires_grad
    results = found if isinstance(found, tuple) else (found,)
    tensors = [r for r in results if isinstance(r, torch.Tensor)]
    facts = [(t.requires_grad, t.is_leaf) if isinstance(t, torch.Tensor) else t for t in results]
    loss = sum(t.sin().sum() for t in tensors if t.requires_grad)
    if isinstance(loss, torch.Tensor):
        loss.backward()
    grads = [t.grad if t.is_leaf else None for t in [x, W, FREE, *tensors]]
    return facts, [x.requires_grad, FREE.requires_grad], grads, [t.detach() for t in tensors]


def same(a, b):
    if isinstance(a, torch.Tensor):
        torch.testing.assert_close(a, b)
        return
    assert type(a) is type(b)
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for left, right in zip(a, b):
            same(left, right)
    else:
        assert a == b


@backends
@pytest.mark.parametrize("name", [*WHOLE, *BREAKS])
def test_as_eager(name, backend):
    tg.reset()
    function = (WHOLE | BREAKS)[name]
    expected = outcome(function)
    compiled = tg.compile(function, backend=backend, fullgraph=name in WHOLE)
    for _ in range(2):
        same(outcome(compiled), expected)
    assert len(tg.explain(compiled).entries) == 1


@backends
def test_two_inputs_that_are_one(backend):
    def f(x, y):
        x.requires_grad_()
        return y * 2

    compiled = tg.compile(f, backend=backend)
    assert not compiled(torch.ones(2), torch.ones(2)).requires_grad
    x = torch.ones(2)
    assert compiled(x, x).requires_grad


@pytest.mark.complains("which ran eagerly instead")  # once: the function catches the error
@backends
def test_a_graph_that_fails_leaves_the_flag_to_python(backend):
    def f(x, i):
        before = x.requires_grad
        x.requires_grad_()
        try:
            return x.sin()[i], before
        except IndexError:
            return "caught", before, x.requires_grad

    compiled = tg.compile(f, backend=backend)
    for index in (1, 7, 7, 1):
        x = torch.ones(2)
        found = compiled(x, torch.tensor([index]))
        assert x.requires_grad and found[1] is False
        assert (found[0] == "caught") is (index == 7)


def test_forward_and_backward_of_a_model_that_sets_it():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution, self.linear = torch.nn.Conv1d(1, 3, 2), torch.nn.Linear(3, 2)

        def forward(self, x):
            h = x[:, None]
            if self.training:
                h.requires_grad = True
            return self.linear(self.convolution(h).relu().transpose(1, 2))

    model = Model()
    compiled = tg.compile(model, fullgraph=True)
    gradients = []
    for call in (model, compiled):
        model.zero_grad()
        call(torch.arange(10.0).view(2, 5)).sin().sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    torch.testing.assert_close(*gradients)
