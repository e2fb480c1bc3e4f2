"""torch.func inside compiled code: transforms are nodes, functional_call shows a module other tensors."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap

import torchglass as tg

from .gradients import assert_as_eager, backends, make_input


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


def cube(a):
    return (a**3).sum()


def pulled(out, pull, aux):
    return out, aux, *pull(out), *pull(aux)


made_outside = vmap(lambda a: a.sin().sum(), out_dims=0)
grad_outside = grad(cube)

FUNCTIONS = {
    "grad": lambda x: grad(cube)(x) * 2,
    "grad by the second argument": lambda x: grad(lambda a, b: (a * b.exp()).sum(), argnums=1)(x, x.detach()),
    "grad and value": lambda x: grad_and_value(cube)(x),
    "grad with auxiliary": lambda x: grad(lambda a: (cube(a), a * 2), has_aux=True)(x),
    "vmap": lambda x: vmap(lambda a: a.sum() * a)(x),
    "vmap by dimension": lambda x: vmap(torch.mul, in_dims=(0, None), out_dims=1)(x, x[0]),
    "vmap over a closure": lambda x: vmap(lambda a: a * x.sum())(x.cos()),
    "vmap of grad": lambda x: vmap(grad(cube))(x),
    "per sample": lambda x: vmap(grad(lambda w, a: (w * a).sum().sin()), (None, 0))(x[0], x),
    "jacobians": lambda x: (jacrev(lambda a: a.sum(0).sin())(x), jacfwd(lambda a: a.sum(0).sin())(x.detach())),
    "hessian": lambda x: hessian(cube)(x[0].detach()),
    "jvp": lambda x: jvp(torch.sin, (x.detach(),), (torch.ones(3, 4),)),
    "vjp": lambda x: (lambda out, pull: (out, *pull(out.cos())))(*vjp(torch.sin, x)),
    "vjp of two": lambda x: vjp(lambda a, b: (a * b.exp(), a.sum()), x, x.cos())[1]((x, x.mean())),
    "vjp with auxiliary": lambda x: pulled(*vjp(lambda a: (a**3, a * 2), x, has_aux=True)),
    "vjp over a closure": lambda x: vjp(lambda a: a * x.sum(), x.cos())[1](x)[0],
    "vjp of dictionaries": lambda x: vjp(lambda d: {"r": d["a"] * d["b"][0]}, {"a": x, "b": [x]})[1]({"r": x})[0]["a"],
    "vjp of vjp": lambda x: vjp(lambda a: vjp(torch.sin, a)[1](a)[0], x)[1](x)[0],
    "vjp of rows": lambda x: vmap(vjp(lambda a: a.sin().sum(0), x)[1])(torch.eye(4))[0],
    "made before the call": lambda x: made_outside(x) + grad_outside(x).sum(1),
    "nested containers": lambda x: grad(lambda d: (d["a"] * d["b"][0]).sum())({"a": x, "b": [x + 1]})["a"],
    "branch inside": lambda x: vmap(lambda a: a if a.dim() == 1 else -a)(x) + 1,
}


@backends
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_eager(name, backend):
    assert_as_eager(FUNCTIONS[name], backend)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x, factor=1.0):
        return self.second(self.first(x)) * self.scale * factor


@backends
def test_functional_call(backend):
    module = Tied()

    def f(m, x):
        tensors = {"first.weight": m.first.weight * 2, "scale": x[0]}
        return functional_call(m, tensors, (x,), {"factor": 3.0}) + m(x)

    assert_as_eager(f, backend, module)


@backends
def test_gradients_of_a_module_by_its_parameters(backend):
    module = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))

    def f(m, x):
        parameters = {name: p.detach() for name, p in m.named_parameters()}
        found = grad(lambda p: functional_call(m, p, (x,)).pow(2).mean())(parameters)
        return tuple(found.values())

    assert_as_eager(f, backend, module, requires_grad=False)


LOG = []


def test_effects_inside_a_transform_break():
    def f(x):
        def inner(a):
            LOG.append(1)
            return a.sum()

        return vmap(inner)(x)

    compiled = tg.compile(f, backend="eager")
    for _ in range(2):
        LOG.clear()
        torch.testing.assert_close(compiled(make_input()), make_input().sum(1))
        assert LOG == [1]


def test_a_tensor_that_leaves_its_transform_breaks():
    def f(x):
        kept = []
        y = vmap(lambda a: (kept.append(a.shape), a.sum())[1])(x)
        return y, kept

    found = tg.compile(f, backend="eager")(make_input())
    assert found[1] == [torch.Size([4])]


def test_errors_are_pytorchs():
    def f(x):
        return vmap(lambda a: torch.rand(2))(x)

    with pytest.raises(RuntimeError) as expected:
        f(make_input())
    with pytest.raises(RuntimeError) as found:
        tg.compile(f, backend="eager")(make_input())
    assert str(found.value) == str(expected.value)


@backends
@pytest.mark.parametrize("grad_mode", [True, False])
def test_vjp_in_both_modes(backend, grad_mode):
    def f(x):
        with torch.set_grad_enabled(grad_mode):
            out, pull = vjp(lambda a: (a**3).sum(0), x)
            return out, pull(torch.ones(4))[0], torch.is_grad_enabled()

    compiled = tg.compile(f, backend=backend, fullgraph=True)
    for x in (make_input(), make_input(False)):
        for mine, theirs in zip(compiled(x), f(x)):
            assert mine is theirs if isinstance(mine, bool) else mine.requires_grad == theirs.requires_grad
            torch.testing.assert_close(mine, theirs)


def drawn(x):
    out, pull = vjp(lambda a: nn.functional.dropout(a) * a, x)
    return out, pull(x)[0], torch.rand(2)


def written_between(x):
    y = x * 2
    out, pull = vjp(torch.sin, y)
    y.add_(1)
    return out, pull(x)[0]


def kept(x):
    out, pull = vjp(torch.sin, x)
    return out, pull


def across_a_branch(x):
    pull = vjp(torch.sin, x)[1]
    return pull(x)[0] if x.sum() > 0 else pull(-x)[0]


@backends
@pytest.mark.parametrize("function", [drawn, written_between, across_a_branch])
def test_vjp_breaks(function, backend):
    compiled = tg.compile(function, backend=backend)
    for _ in range(2):
        torch.manual_seed(0)
        expected = function(make_input(False))
        torch.manual_seed(0)
        torch.testing.assert_close(compiled(make_input(False)), expected)
    with pytest.raises(tg.GraphBreakError):
        tg.compile(function, backend=backend, fullgraph=True)(make_input(False))


def test_a_pull_that_leaves():
    out, pull = tg.compile(kept)(make_input(False))
    torch.testing.assert_close(pull(out)[0], kept(make_input(False))[1](out)[0])


@pytest.mark.parametrize("transform", [vmap, grad, grad_and_value, jacrev, jacfwd, hessian])
def test_compiled_themselves(transform):
    function = transform(cube)
    x = torch.linspace(-1, 1, 6).view(3, 2)
    torch.testing.assert_close(tg.compile(function, fullgraph=True)(x), function(x))


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("transform", [jacfwd, hessian, lambda f: lambda x: jvp(f, (x,), (x,))[1]])
def test_state_of_thread_kept_where_nothing_is_differentiated(transform, dynamic):
    """PyTorch fails in the midst of these; the C++ guards in the exception's frames restore when it is freed."""

    def function(x):
        return transform(cube)(x)

    compiled = tg.compile(function, dynamic=dynamic)
    for sizes in (3, 0), (2, 0), (0, 3):
        x = torch.ones(sizes)
        try:
            expected = function(x)
        except Exception as error:
            with pytest.raises(type(error)):
                compiled(x)
        else:
            torch.testing.assert_close(compiled(x), expected)
        w = torch.ones(3, requires_grad=True)
        assert (w * 2).requires_grad and not torch.is_inference_mode_enabled()


def test_frames_of_what_the_program_handles_are_its_own():
    compiled = tg.compile(lambda x: jvp(cube, (x,), (x,))[1], dynamic=True)

    def raises(kept):
        raise ValueError

    try:
        raises(5)
    except ValueError as error:
        compiled(torch.ones(3, 0))
        assert error.__traceback__.tb_next.tb_frame.f_locals == {"kept": 5}
