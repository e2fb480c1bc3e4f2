"""torch.autograd.Function in compiled code: one node of the graph, differentiated as eager does."""

import pytest
import torch
from torch import nn
from torch.autograd.function import once_differentiable

import torchglass as tg

from .gradients import assert_as_eager, backends, make_input


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


class Power(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, exponent=2):
        ctx.save_for_backward(x)
        ctx.exponent = exponent
        return x**exponent

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * ctx.exponent * x ** (ctx.exponent - 1) * 10, None  # ten times too much, to be told apart


class TwoResults(torch.autograd.Function):
    @staticmethod
    def forward(x, factor):
        return x * factor, x.argmax(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, gradient, _):
        return gradient * ctx.factor * 3, None


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, gradient):
        return nn.functional.hardtanh(gradient)


class Handed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x

    @staticmethod
    def backward(ctx, gradient):
        return -gradient * ctx.scale, None


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return x @ weight.t() + bias

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        result = [None, None, None]
        if ctx.needs_input_grad[0]:
            result[0] = gradient @ weight
        if ctx.needs_input_grad[1]:
            result[1] = gradient.t() @ x
        if ctx.needs_input_grad[2]:
            result[2] = gradient.sum(0)
        return tuple(result)


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 5


class Cast(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0]


class Inner(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_()
            ctx.y = (ctx.x**3).sum()
        return ctx.y.detach()

    @staticmethod
    def backward(ctx, gradient):
        return torch.autograd.grad(ctx.y, ctx.x)[0] * gradient


power = Power.apply

FUNCTIONS = {
    "saved tensors and attributes": lambda x: Power.apply(x.sin(), 3) + 1,
    "default argument": lambda x: Power.apply(x).sum(1),
    "apply under a name": lambda x: power(x, 2),
    "setup_context and a result without gradient": lambda x: TwoResults.apply(x, 2.0)[0] + 1,
    "straight through": lambda x: StraightThrough.apply(x * 3),
    "argument returned": lambda x: Handed.apply(x + 0, 0.5),
    "in place": lambda x: Dirty.apply(x + 1) * 2,
    "autocast decorators": lambda x: Cast.apply(x),
    "twice": lambda x: Power.apply(Power.apply(x, 2), 3),
    "several results": lambda x: (Power.apply(x, 2), TwoResults.apply(x, 3.0)[0]),
}


@backends
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_eager(name, backend):
    assert_as_eager(FUNCTIONS[name], backend)


@backends
@pytest.mark.parametrize("name", FUNCTIONS)
def test_without_gradients(name, backend):
    assert_as_eager(FUNCTIONS[name], backend, requires_grad=False)


@backends
def test_parameters(backend):
    module = nn.Linear(4, 5)
    assert_as_eager(lambda m, x: Linear.apply(x, m.weight, m.bias).relu(), backend, module)
    frozen = nn.Linear(4, 5)
    frozen.weight.requires_grad_(False)
    assert_as_eager(lambda m, x: Linear.apply(x, m.weight, m.bias).relu(), backend, frozen)


def test_autograd_inside_forward():
    assert_as_eager(lambda x: Inner.apply(x), "eager", whole=False)


SCALE = 2.0


class ReadsGlobal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient * SCALE


def test_a_global_read_in_backward_is_guarded(monkeypatch):
    compiled = tg.compile(lambda x: ReadsGlobal.apply(x).sum(), backend="aot_eager", fullgraph=True)
    for scale in (2.0, 3.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        x = make_input()
        compiled(x).backward()
        assert x.grad.unique().tolist() == [scale]
    assert len(tg.explain(compiled).entries) == 2


LOG = []
TABLE = torch.ones(4)


class Notes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        LOG.append("forward")
        return x * TABLE

    @staticmethod
    def backward(ctx, gradient):
        LOG.append("backward")
        return gradient


class NotesBackward(Notes):
    @staticmethod
    def forward(ctx, x):
        return x * 2


class ReadsTensor(Notes):
    @staticmethod
    def forward(ctx, x):
        return x * TABLE

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@backends
@pytest.mark.parametrize("function", [Notes, NotesBackward, ReadsTensor])
def test_what_cannot_be_replayed_breaks(function, backend):
    compiled = tg.compile(lambda x: function.apply(x * 2) + 1, backend=backend)
    expected = None
    for call in (lambda x: function.apply(x * 2) + 1, compiled, compiled):
        LOG.clear()
        x = make_input()
        result = call(x)
        result.sum().backward()
        found = (list(LOG), result.detach().tolist(), x.grad.tolist())
        expected = expected or found
        assert found == expected
    with pytest.raises(Exception, match="breaks"):
        tg.compile(lambda x: function.apply(x), fullgraph=True)(make_input())


class Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if x.shape[0] == 3:
            raise ValueError("three")
        return x


def test_exceptions_are_the_users():
    def f(x):
        try:
            return Raises.apply(x)
        except ValueError as error:
            return str(error)

    assert tg.compile(f, backend="eager")(make_input()) == "three"
    with pytest.raises(ValueError, match="three"):
        tg.compile(lambda x: Raises.apply(x), backend="eager")(make_input())


def test_double_backward_with_the_eager_backend():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, gradient):
            return 3 * gradient * ctx.saved_tensors[0] ** 2

    x = make_input()
    y = tg.compile(lambda x: Cube.apply(x).sum(), backend="eager", fullgraph=True)(x)
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, 6 * x)


class Picked(torch.autograd.Function):
    """PyTorch fills in what ``forward`` has defaults for before ``setup_context`` sees the inputs."""

    @staticmethod
    def forward(x, index=(2,)):
        return x[index]

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, index = inputs
        ctx.shape, ctx.index = x.shape, index

    @staticmethod
    def backward(ctx, gradient):
        result = gradient.new_zeros(ctx.shape)
        result[ctx.index] = gradient
        return result, None


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])
def test_defaults_of_forward_reach_setup_context(backend: str) -> None:
    def f(x):
        return Picked.apply(x) * 2 + Picked.apply(x, (1,))

    compiled = tg.compile(f, backend=backend, fullgraph=True)
    gradients = []
    for function in (f, compiled):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
        function(x).sum().backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)
