"""Eager's meaning, seen from outside: each case through ``tg.compile``, with and without code generation."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from autodiff_helpers import fresh, plain, run, tensor
from torch.utils.checkpoint import checkpoint

import torchglass as tg

BACKENDS = ["aot_eager", "glass"]
CASES = {}


def case(*inputs, use=lambda outputs: outputs, leaf=False):
    """Enter a function with its inputs; ``use`` picks the outputs that the loss is made of."""

    def enter(function):
        CASES[function.__name__] = (function, inputs, use, leaf)
        return function

    return enter


@case(tensor(4), tensor(4, seed=1))
def views_and_writes_inside(x, y):
    z = x * y
    z[1:3].mul_(2)
    z[0] = y[3]
    z.relu_()
    return z.sin()


@case(tensor(4), plain(4))
def written_buffer(x, buffer):
    buffer.mul_(0.9).add_(0.1)
    y = x * buffer.clone()
    buffer.add_(1)
    return y


@case(tensor(4), plain(3), plain(3, seed=1))
def buffers_written_in_order(x, a, b):
    a.add_(b)
    b.copy_(a)
    a.mul_(2)
    return x.sin() * a[0] + b[1]


@case(tensor(3, 4))
def output_views_of_input(x):
    return x, x.t(), x[1], x.view(-1)[2:5], x.sin()


@case(tensor(3, 4))
def output_views_of_each_other(x):
    y = x.exp()
    return y, y.t(), y[0], y.view(2, 6)


@case(tensor(3, 4), plain(3, 4, seed=1))
def output_is_written_input(x, y):
    y.add_(1)
    return y, x * y, y[0]


@case(tensor(3, 4), tensor(3, 4, seed=1), use=lambda outputs: outputs[1:2])
def one_of_three_in_the_loss(x, y):
    return x.sin(), (x * y).exp(), y.cos()


@case(tensor(3, 4), tensor(3, 4, seed=1), use=lambda outputs: outputs[:1])
def input_without_gradient_is_none(x, y):
    return x.sin(), y.cos()


@case(tensor(3, 4), tensor(3, 4, seed=1))
def unused_input_is_none(x, y):
    return x.sin() + y.detach()


@case(tensor(3, 4), plain(3, 4, seed=1))
def buffer_that_a_write_makes_differentiable(x, y):
    before = y * 2
    y.addcmul_(x, x)
    return before, y.sin()


@case(tensor(3, 4), plain(3, 4, seed=1))
def writes_that_keep_the_layout(x, y):
    z = x.t().clone()
    z.masked_fill_(z > 0, 0.5)
    y.t().masked_fill_(y.t() < 0, 0.25)
    return z, z.t().view(-1), y.sin()


@case(tensor(3, 4))
def views_made_without_grad_mode(x):
    y = x.sin()
    with torch.no_grad():
        a, b, c = y[0], x.t(), y.cos().view(-1)
    return a * 2, b, c, y


@case(tensor(3, 4), use=lambda outputs: outputs[1:])
def view_made_without_grad_mode_alone(x):
    with torch.no_grad():
        a = x.sin().view(-1)
        b = (x * 2)[1]
    return a, x.cos() * b


@case(tensor(4, 4, dtype=torch.float64), tensor(4, 4, seed=1, dtype=torch.complex128))
def products_of_complex_matrices(x, y):
    values, vectors = torch.linalg.eig(x)
    return (y @ y.t()).abs(), values.abs().sort().values, vectors.abs().sum()


@case(tensor(2, 3, 4))
def layouts_that_meta_functions_do_not_know(x):
    y = x.transpose(0, 2)
    a = F.batch_norm(y, None, None, training=True)
    return a, a.view(-1), 2.0**y, F.logsigmoid(y).view(3, 8), y.detach().floor_divide(torch.tensor(2.0))


@case(tensor(3, 4))
def integer_and_boolean_outputs(x):
    return x.argmax(-1), x > 0, x.sum(), x.shape[0], None


@case(tensor(3, 4))
def detached_outputs(x):
    y = x.sin()
    return y.detach(), y, x.detach(), y.detach() * y


@case(tensor(3, 4))
def no_grad_region(x):
    with torch.no_grad():
        scale = x.abs().max()
        y = x * 2
    return x / scale, y


@case(tensor(3, 4))
def enable_grad_within_no_grad(x):
    with torch.no_grad():
        a = x.sin()
        with torch.enable_grad():
            b = x.cos()
        with torch.set_grad_enabled(False):
            c = b * 2
    return a, b, c


@case(tensor(8, 8), tensor(8, 8, seed=1))
def autocast_region(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = torch.relu(x @ w)
        with torch.autocast("cpu", enabled=False):
            z = y.float() @ w
    return y, z, (x @ w).sum()


@case(tensor(8, 8))
def dropout_and_other_random_numbers(x):
    noise = torch.rand_like(x) + torch.randn(8)
    return F.dropout(x.sin(), 0.3) * noise, torch.randperm(5), torch.bernoulli(torch.full((4,), 0.5))


@case(tensor(2, 8, 4, 4), plain(8, 6))
def random_numbers_in_other_layouts(x, y):
    x, y = x.to(memory_format=torch.channels_last), y.t()
    a = F.dropout(x, 0.5) + torch.rand_like(x)
    b = F.rrelu(y, training=True) + torch.normal(y, 1.0) + torch.poisson(y.abs())
    return a, b, F.dropout2d(x, 0.5), torch.empty_like(y).bernoulli_(0.3), torch.poisson(y.abs())


@case(tensor(8, 8))
def random_numbers_that_nobody_reads(x):
    noise = F.dropout(x.sin(), 0.2) * x
    torch.rand(3).normal_()
    return x.cos(), noise.shape


@case(tensor(16, 3, 4, 4), tensor(3), tensor(3, seed=1), torch.zeros(3), torch.ones(3))
def batch_norm_in_training(x, w, b, mean, variance):
    return F.batch_norm(x, mean, variance, w, b, True, 0.1).relu()


@case(tensor(4, 4), leaf=True)
def leaf_written_without_grad_mode(x):
    y = (x * 2).sum()
    with torch.no_grad():
        x.add_(1)
    return y


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 5 * x  # not the derivative: it must be this that runs


@case(tensor(4, 4))
def custom_autograd_function(x):
    return Cube.apply(x.sin()).sum()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CASES)
def test_as_eager(name, backend):
    function, inputs, use, leaf = CASES[name]
    compiled = tg.compile(function, backend=backend)
    expected = run(function, inputs, use, leaf)
    for _ in range(2):
        found = run(compiled, inputs, use, leaf)
        assert len(found) == len(expected)
        for want, got in zip(expected, found):
            if isinstance(want, torch.Tensor):
                torch.testing.assert_close(got, want, check_stride=False)
            else:
                assert got == want


# --- backward ---------------------------------------------------------------------------------------------------------
@pytest.fixture(params=BACKENDS)
def compiled(request):
    return tg.compile(lambda x: torch.tanh(x @ x).sum(), backend=request.param, fullgraph=True)


def test_backward_twice_says_what_eager_says(compiled):
    complaints = []
    for call in (lambda x: torch.tanh(x @ x).sum(), compiled):
        loss = call(tensor(4, 4))
        loss.backward()
        with pytest.raises(RuntimeError) as caught:
            loss.backward()
        complaints.append(str(caught.value))
    assert complaints[0] == complaints[1]


def test_retain_graph_allows_another_backward(compiled):
    x = tensor(4, 4)
    loss = compiled(x)
    loss.backward(retain_graph=True)
    once = x.grad.clone()
    loss.backward()
    torch.testing.assert_close(x.grad, once * 2)


def test_create_graph_names_the_way_out(compiled):
    x = tensor(4, 4)
    with pytest.raises(RuntimeError, match="backend='eager'"):
        torch.autograd.grad(compiled(x), x, create_graph=True)


def test_second_derivative_with_the_eager_backend():
    compiled = tg.compile(lambda x: (x**3).sum(), backend="eager", fullgraph=True)
    x = tensor(4)
    (first,) = torch.autograd.grad(compiled(x), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, 6 * x.detach())


def test_hooks_on_leaves_and_accumulation(compiled):
    x, y = tensor(4, 4), tensor(4, 4)
    seen = []
    x.register_hook(lambda grad: grad * 2)
    x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.clone()))
    for _ in range(2):
        compiled(x).backward()
        torch.tanh(y @ y).sum().backward()
    torch.testing.assert_close(x.grad, 2 * y.grad)
    assert len(seen) == 2


def test_gradients_of_one_loss_through_two_calls(compiled):
    x, y = tensor(4, 4), tensor(4, 4)
    (compiled(x) * compiled(x * 0.5)).backward()
    (torch.tanh(y @ y).sum() * torch.tanh((y * 0.5) @ (y * 0.5)).sum()).backward()
    torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize("reentrant", [False, True])
def test_compiled_function_inside_a_checkpoint(compiled, reentrant):
    x, y = tensor(4, 4), tensor(4, 4)
    for _ in range(2):
        checkpoint(compiled, x, use_reentrant=reentrant).backward()
        torch.tanh(y @ y).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_saved_tensors_moved_by_hooks(compiled):
    x, y = tensor(4, 4), tensor(4, 4)
    with torch.autograd.graph.save_on_cpu():
        loss = compiled(x)
    loss.backward()
    torch.tanh(y @ y).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


# --- inputs that share memory -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("backend", BACKENDS)
def test_written_inputs_that_overlap(backend):
    def function(w, a, b):
        a.add_(1)
        c = w * b.clone()
        b.mul_(2)
        return c + a.sum()

    results = []
    for call in (function, tg.compile(function, backend=backend)):
        w, memory = tensor(3), torch.arange(6.0)
        for shown in ((memory[:4], memory[2:5]), (memory, memory[:3]), (memory[:3], memory[3:])):
            out = call(w, *shown)
            out.sum().backward()
        results.append((memory, w.grad, out.detach()))
    for want, got in zip(*results):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("backend", BACKENDS)
def test_written_input_with_gaps(backend):
    def function(x, y, z):
        x.mul_(2)
        y.masked_fill_(y > 0, 1)
        z.fill_(7)
        return x + 1, y * 1

    results = []
    for call in (function, tg.compile(function, backend=backend, fullgraph=True)):
        x, y = plain(4, 8), plain(6, 3)
        part = torch.arange(6.0)
        out = call(x[:, ::2], y.t(), part[2:])
        results.append([x, y, part, *out])
        assert [o.stride() for o in out] == [(4, 1), (1, 3)]
    for want, got in zip(*results):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_same_tensor_for_two_parameters(backend):
    def function(a, b):
        a.add_(1)
        return a * b

    for make in (lambda: plain(4), lambda: tensor(4) * 1):
        results = []
        for call in (function, tg.compile(function, backend=backend)):
            x = make()
            results.append((call(x, x), x))
        for want, got in zip(*results):
            torch.testing.assert_close(got, want)


# --- random numbers ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("options", [None, {"fallback_random": True}])
def test_eagers_random_stream(backend, options):
    def function(x):
        return F.dropout(x, 0.5) + torch.randn_like(x) * F.dropout(x.sin(), 0.2)

    calls = function, tg.compile(function, backend=backend, options=options, fullgraph=True)
    results = []
    for call in calls:
        torch.manual_seed(11)
        x = fresh(tensor(32))
        for _ in range(3):
            call(x).sum().backward()
        results.append((x.grad, torch.rand(3)))
    for want, got in zip(*results):
        torch.testing.assert_close(got, want)


def test_backward_is_not_traced_without_gradients(tmp_path):
    with tg.prepare_debug(tmp_path):
        compiled = tg.compile(lambda x: torch.tanh(x @ x), fullgraph=True)
        with torch.no_grad():
            compiled(tensor(4, 4))
        assert not list(tmp_path.rglob("joint.py"))
        compiled(tensor(4, 4)).sum().backward()
    assert len(list(tmp_path.rglob("joint.py"))) == 1
