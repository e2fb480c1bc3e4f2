"""Tensors whose numbers are not in memory as they are: zero tensors, which autograd makes, and negative views."""

import pytest
import torch
import torch.nn.functional as F

import torchglass as tg

BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])

VIEWS = {
    "view": lambda x: x.view(-1),
    "reshape": lambda x: x.t().reshape(-1),
    "as_strided": lambda x: x.as_strided((2, 2), (3, 1)),
    "t": lambda x: x.t(),
    "expand": lambda x: x.expand(2, 4, 3),
    "unbind": lambda x: x.unbind(0)[1],
    "split": lambda x: x.split(2)[0],
    "squeeze": lambda x: x.unsqueeze(1).squeeze(1),
    "imag": lambda x: torch.complex(x, x * 2).conj().imag,
    "in place": lambda x: x.clone().view(-1).mul_(2),
}


@pytest.fixture(autouse=True)
def clean():
    tg.reset()


def data(grad=True):
    return torch.tensor([[1.3, -0.7, 0.5], [0.2, -1.9, 0.4], [2.2, 0.3, -0.1], [-0.6, 0.9, -1.1]], requires_grad=grad)


def outcome(function, *inputs):
    """The result, and its gradients by those inputs that have one."""
    result = function(*inputs)
    wanted = [x for x in inputs if x.requires_grad]
    gradients = torch.autograd.grad(result.sum(), wanted, allow_unused=True) if wanted else ()
    return [result.detach(), *gradients]


def assert_as_eager(function, backend, *inputs):
    expected, found = (
        outcome(function, *inputs),
        outcome(tg.compile(function, backend=backend, fullgraph=True), *inputs),
    )
    torch.testing.assert_close(found, expected)


def test_gradient_of_absolute_values_of_a_view():
    """A view of a zero tensor was a segmentation fault."""

    def gradient(x):
        return torch.autograd.grad(x.view(-1).abs().sum(), x, create_graph=True)[0]

    for backend in ("eager", "aot_eager", "glass"):
        assert_as_eager(gradient, backend, torch.ones(2, 2, requires_grad=True))


@BACKENDS
def test_l1_loss_of_a_view(backend):
    torch.manual_seed(0)
    lin = torch.nn.Linear(2, 2)

    def loss(x, t):
        return F.l1_loss(lin(x).view(-1), t)

    assert_as_eager(loss, backend, torch.randn(2, 2, requires_grad=True), torch.zeros(4))
    assert_as_eager(loss, backend, torch.randn(2, 2), torch.zeros(4, requires_grad=True))


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("backend", ["aot_eager", "glass"])
def test_second_derivatives_that_are_zero(view, backend):
    def penalty(x):
        seen = VIEWS[view](x)
        energy = seen.abs().sum() + (seen.sgn() * seen).sum() + F.l1_loss(seen, torch.zeros_like(seen))
        (gradient,) = torch.autograd.grad(energy, x, create_graph=True)
        return gradient.square() + gradient.abs()

    assert_as_eager(penalty, backend, data())


@BACKENDS
def test_zero_times_infinity(backend):
    """Autograd's zeros are no numbers: what they are multiplied by does not matter."""

    def penalty(x):
        (gradient,) = torch.autograd.grad(x.log().abs().sum(), x, create_graph=True)
        return gradient

    assert_as_eager(penalty, backend, torch.tensor([0.0, 1.0, 2.0], requires_grad=True))


@BACKENDS
def test_signs_are_not_differentiated(backend):
    assert_as_eager(lambda x: (x.t().sgn() * x).sum(), backend, torch.ones(2, 2, requires_grad=True))


@BACKENDS
@pytest.mark.parametrize("grad", [False, True])
def test_negative_views(backend, grad):
    """What is in memory are the numbers before they are negated."""
    z = torch.complex(data(False), data(False) * 2)
    assert z.conj().imag.is_neg()
    function = lambda x: x * 2 + x.clone() + x.sin()
    assert_as_eager(function, backend, z.conj().imag.requires_grad_(grad))
    assert_as_eager(lambda x: torch.complex(x, x * 2).conj().imag.exp(), backend, data(grad))
    held = z.conj().imag
    assert_as_eager(lambda x: x * held, backend, data(grad))


@BACKENDS
def test_gradients_that_arrive_without_memory(backend):
    function = lambda x: x.sin().exp()
    for tangent in (torch._efficientzerotensor((4, 3)), torch._neg_view(data(False)), data(False).t().contiguous().t()):
        found = []
        for call in (function, tg.compile(function, backend=backend)):
            x = data()
            call(x).backward(tangent)
            found.append(x.grad)
        torch.testing.assert_close(found[1], found[0])


@BACKENDS
def test_zero_tensors_as_inputs_run_eagerly(backend):
    compiled = tg.compile(lambda x: x * float("inf") + x.sin(), backend=backend)
    for x in (torch._efficientzerotensor((2, 2)), torch._efficientzerotensor((4,)).view(2, 2)):
        torch.testing.assert_close(compiled(x), torch.zeros(2, 2))
