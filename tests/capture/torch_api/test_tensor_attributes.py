"""``.grad`` and ``.data`` of tensors from outside, written in the function: captured whole, replayed as eager does."""

import copy

import pytest
import torch
from torch import nn

import torchglass as tg

from ..tables import tables
from .gradients import backends

WHOLE, BREAKS, whole, breaks = tables()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        for n, p in enumerate(self.parameters()):
            p.data = torch.sin(torch.arange(p.numel()) + n * 0.1).view(p.shape)

    def forward(self, x):
        return self.second(self.first(x).tanh())


@whole
def dropped_in_a_loop(model, opt, x):
    for p in model.parameters():
        p.grad = None
    return model(x)


@whole
def dropped_by_the_module(model, opt, x):
    model.zero_grad()
    return model(x)


@whole
def dropped_by_the_optimizer(model, opt, x):
    opt.zero_grad(set_to_none=True)
    return model(x)


@whole
def zeroed(model, opt, x):
    model.zero_grad(set_to_none=False)
    return model(x)


@whole
def zeroed_by_the_optimizer(model, opt, x):
    grads = [p.grad for p in model.parameters()]
    opt.zero_grad(set_to_none=False)
    return model(x), grads


@whole
def read_after_it_was_dropped(model, opt, x):
    grads = [p.grad for p in model.parameters()]
    model.zero_grad()
    return [p.grad for p in model.parameters()], grads, model.first.weight.grad is None


@whole
def replaced(model, opt, x):
    with torch.no_grad():
        for p in model.parameters():
            p.grad = p.grad * 2 + p if p.grad is not None else torch.ones_like(p)
            p.grad.clamp_(-0.1, 0.1)
            p.add_(p.grad, alpha=-0.1)
    return model(x)


@whole
def swapped(model, opt, x):
    a, b = model.first.weight, model.first.bias
    a.grad, b.grad = torch.zeros_like(a), b.detach()
    b.grad.mul_(2)
    return model(x)


@whole
def step_by_data(model, opt, x):
    for p in model.parameters():
        if p.grad is not None:
            p.data += -0.1 * p.grad
            p.data -= 0.01 * p.data
    return x * 2


@whole
def data_replaced(model, opt, x):
    y = model(x)
    before = model.first.weight.data
    for p in model.parameters():
        p.data = p.data * 0.5 + 1
    before.add_(1)
    return y, before


@whole
def data_of_another(model, opt, x):
    model.first.bias.data = model.first.weight.data[:, 0]
    return x + 1


@breaks
def data_replaced_and_read(model, opt, x):
    model.first.weight.data = model.first.weight.data * 2
    return model(x)


@breaks
def data_of_another_size(model, opt, x):
    model.second.bias.data = torch.zeros(1)
    return x + model.second.bias.data


@breaks
def grad_of_the_wrong_size(model, opt, x):
    try:
        model.second.bias.grad = torch.zeros(7)
    except RuntimeError as error:
        return x + len(str(error))


def outcomes(function, backend=None, **options):
    """What three calls with a backward between them return, and what they leave behind."""
    tg.reset()
    model = Model()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    held = model.first.weight
    compiled = function if backend is None else tg.compile(function, backend=backend, **options)
    found = []
    for n in range(3):
        x = torch.arange(6.0).view(2, 3) * 0.1 + n
        result = compiled(model, opt, x)
        found.append(copy.deepcopy([[p.detach(), p.grad, p.requires_grad] for p in model.parameters()]))
        found.append(result)
        if model.second.bias.numel() == 2:
            model(x).square().sum().backward()
    assert model.first.weight is held
    shared = model.first.bias.untyped_storage().data_ptr() == model.first.weight.untyped_storage().data_ptr()
    return found, shared, compiled


@backends
@pytest.mark.parametrize("name", WHOLE)
def test_whole(name, backend):
    *theirs, _ = outcomes(WHOLE[name])
    *mine, compiled = outcomes(WHOLE[name], backend, fullgraph=True)
    torch.testing.assert_close(mine, theirs)
    record = tg.explain(compiled).record
    assert len(record.entries) <= 2 and not record.fallbacks


@backends
@pytest.mark.parametrize("name", BREAKS)
def test_breaks(name, backend):
    *theirs, _ = outcomes(BREAKS[name])
    *mine, compiled = outcomes(BREAKS[name], backend)
    torch.testing.assert_close(mine, theirs)
    assert tg.explain(compiled).breaks()


@pytest.mark.parametrize("drop", [dropped_in_a_loop, dropped_by_the_module, dropped_by_the_optimizer])
def test_what_a_dropped_gradient_was_is_not_asked(drop):
    compiled = outcomes(drop, "eager", fullgraph=True)[2]
    assert len(tg.explain(compiled).entries) == 1


def replaced_data(x, y):
    y.data = torch.ones(3)
    return x[0]


def dropped_grad(x, y):
    y.grad = None
    return x.grad


def attached(x, y):
    y.note = 2
    return getattr(x, "note", 1)


@pytest.mark.parametrize("function", [replaced_data, dropped_grad, attached], ids=lambda f: f.__name__)
def test_one_tensor_under_two_names_at_a_later_call(function):
    def given(twice):
        x, y = (torch.zeros(3) for _ in range(2))
        x.grad = torch.ones(3)
        return (x, x if twice else y)

    compiled = tg.compile(function, backend="eager")
    for twice in (False, True, False):
        expected, found = function(*given(twice)), compiled(*given(twice))
        torch.testing.assert_close(found, expected)
