"""Eager's meaning inside a compiled function: writes, views, draws, modes, functions of one's own and transforms that
autograd sees. Each with and without code generation.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from autodiff_helpers import fresh, plain, tensor
from calls_compared import BACKENDS, same
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

import torchglass as tg

CASES = {}


def program(function, *inputs):
    """Enter ``function`` with a program that calls it twice, differentiates and returns outputs, gradients, inputs."""

    def run(call, *given):
        results = []
        for _ in range(2):
            outputs = call(*given)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            ends = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
            if ends:
                sum((o.abs() * torch.arange(1, o.numel() + 1).view(o.shape)).sum() for o in ends).backward()
            results += [*outputs, *(g.grad.clone() if g.grad is not None else None for g in given)]
        return results, given

    run.function = function
    CASES[function.__name__] = (run, inputs)
    return function


def compared(name, backend):
    run, inputs = CASES[name]
    function = run.function
    results = []
    for call in (function, tg.compile(function, backend=backend)):
        torch.manual_seed(5)
        results.append(run(call, *map(fresh, inputs)))
    same(*results, name)


def inside(*inputs):
    """Enter a function that is compared call by call, twice, with gradients."""
    return lambda function: program(function, *inputs)


# --- writes -----------------------------------------------------------------------------------------------------------
@inside(tensor(4), plain(6))
def write_to_views_of_an_input(x, memory):
    first, rest = memory[:3], memory[2:]
    first.mul_(2)
    rest.add_(first.sum())
    return x * memory[:4].clone()


@inside(tensor(4), plain(2, 3))
def write_to_a_transposed_input(x, memory):
    memory.t()[1].copy_(memory.t()[0])
    memory.view(-1)[2::2] += 1
    return x.sum() * memory.clone(), memory.t()


@inside(tensor(4, 4))
def write_to_views_with_gradients(x):
    y = x * 2
    y[0] = x[1]
    y[:, 1:3].mul_(x[:, :2])
    z = y.t()
    z.diagonal().add_(1)
    return y, z


@inside(tensor(4, 4), plain(4, 4))
def data_attribute(x, memory):
    memory.data.mul_(2)
    y = x.data * x
    return y + memory.clone()


@inside(plain(4, 4), plain(4, 4, seed=1))
def unsafe_and_integer_writes(a, b):
    index = a.argsort(-1)
    index[0] = 0
    b.scatter_(1, index, 0.5, reduce="add")
    b[b > 0.4] = 0.25
    return index, b.gather(1, index)


@inside(tensor(4, 4), torch.arange(4))
def counter_and_flags(x, steps):
    steps += 1
    seen = steps > 2
    return torch.where(seen, x, x * 2), seen, steps


# --- outputs ----------------------------------------------------------------------------------------------------------
@inside(tensor(4, 4))
def outputs_twice_and_nested_views(x):
    y = x.exp()
    return y, y, y[1:][0], y.view(2, 2, 4).transpose(0, 2), x, x.unsqueeze(0), y.detach()[0]


@inside(tensor(4, 4))
def views_of_a_written_value(x):
    y = x.clone()
    v = y[1]
    y.mul_(3)
    return v, y


@inside(tensor(4, 4))
def split_and_chunk_outputs(x):
    a, b = (x * 2).chunk(2)
    return a, b, *x.split(1)


@inside(tensor(3, 4, dtype=torch.complex64))
def complex_numbers(x):
    y = x.conj() * torch.view_as_complex(torch.view_as_real(x) * 2)
    return y.real, y.imag, y.abs(), torch.fft.ifft(torch.fft.fft(y)).angle()


@inside(tensor(4, 4), tensor(4, 4, seed=1, dtype=torch.float64))
def mixed_precision(x, y):
    return x * y, x.double() @ y, (x * y).to(torch.bfloat16).float()


@inside(tensor(4, 4))
def names_of_modules(x):
    aten = x.exp()
    inf = aten.sin()
    device = inf.cumsum(0)
    operator = device * aten
    empty = operator.t().contiguous()
    return empty.tanh()


# --- random numbers ---------------------------------------------------------------------------------------------------
@inside(tensor(6, 6))
def draws_of_all_kinds(x):
    weights = x.detach().softmax(-1)
    picked = torch.multinomial(weights, 2, replacement=True)
    noise = torch.normal(0.0, 1.0, (6, 6)) + torch.empty(6, 6).uniform_(-1, 1) + torch.rand(6)
    kept = torch.bernoulli(weights)
    return (x * noise * kept).gather(1, picked), torch.randint(0, 9, (3,)), F.rrelu(x, training=True)


@inside(tensor(6, 6))
def dropouts(x):
    x = F.dropout(x.sin(), 0.4)
    x = F.alpha_dropout(x, 0.3, training=True)
    x = F.feature_dropout(x.view(1, 6, 6), 0.2, training=True) if hasattr(F, "feature_dropout") else x
    return F.dropout1d(x.view(1, 6, 6), 0.5).exp()


# --- modes inside -----------------------------------------------------------------------------------------------------
@inside(tensor(4, 4), tensor(4, 4, seed=1))
def grad_modes_nested(x, w):
    with torch.no_grad():
        a = x @ w
        with torch.enable_grad():
            b = (x * w).sum()
        torch.set_grad_enabled(True)
        c = x.cos()
        torch.set_grad_enabled(False)
        d = w.sin()
    return a, b, c, d, x.detach() * w


@torch.no_grad()
def frozen(x):
    return x * 3


@inside(tensor(4, 4))
def decorated_without_grad(x):
    return frozen(x) * x


@inside(tensor(8, 8), tensor(8, 8, seed=1))
def autocast_with_a_weight_twice(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = F.linear(x, w)
        b = F.linear(a, w)
        with torch.no_grad():
            c = F.linear(x, w)
        s = torch.softmax(b, -1)
    return a, b, c, s, F.layer_norm(x, (8,))


@inside(tensor(8, 8), tensor(8, 8, seed=1))
def autocast_in_half_precision(x, w):
    with torch.autocast("cpu", dtype=torch.float16):
        return (x @ w).float().sum(), torch.cat([x, (x @ w)])


@inside(tensor(4, 4), tensor(4, 4, seed=1))
def checkpointed(x, w):
    def block(x, w):
        return F.dropout(torch.tanh(x @ w), 0.5)

    y = checkpoint(block, x, w, use_reentrant=False)
    return checkpoint(block, y, w, use_reentrant=True)


# --- functions of one's own -------------------------------------------------------------------------------------------
class Scaled(Function):
    @staticmethod
    def forward(ctx, x, factor, y):
        ctx.factor = factor
        ctx.save_for_backward(x, y)
        return x * factor + y, (x > 0)

    @staticmethod
    def backward(ctx, grad, _):
        x, y = ctx.saved_tensors
        return grad * ctx.factor * (x > 0) if ctx.needs_input_grad[0] else None, None, grad * y


class Marked(Function):
    @staticmethod
    def forward(ctx, x):
        index = x.argmax(-1)
        top = x.amax(-1)
        ctx.mark_non_differentiable(top)
        ctx.save_for_backward(x)
        return x * 2, top, index

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad, *_):
        return grad * 7


class Apart(Function):
    @staticmethod
    def forward(x, power):
        return x**power

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.power = inputs
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx, grad):
        x, output = ctx.saved_tensors
        return grad * ctx.power * output / x * 2, None


class Writes(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx, grad):
        return grad * 11


class Two(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        return x.sin(), y.cos()

    @staticmethod
    def backward(ctx, a, b):
        return (None if a is None else a * 2), (None if b is None else b * 5)


@inside(tensor(4, 4), tensor(4, 4, seed=1))
def function_with_context(x, y):
    out, positive = Scaled.apply(x, 3.0, y)
    return out, positive, Scaled.apply(x.detach(), 2.0, y)[0]


@inside(tensor(4, 4))
def function_with_marks(x):
    return Marked.apply(x.exp())


@inside(tensor(4, 4))
def function_with_setup_context(x):
    return Apart.apply(x.exp(), 3)


@inside(tensor(4, 4))
def function_that_writes(x):
    y = x * 1
    Writes.apply(y)
    return y


@inside(tensor(4, 4), tensor(4, 4, seed=1))
def function_with_several_outputs(x, y):
    a, b = Two.apply(x, y)
    c, _ = Two.apply(y, x)
    return a + c, b.detach()


# --- function transforms ----------------------------------------------------------------------------------------------
@inside(tensor(4))
def grad_of_a_function(x):
    return torch.func.grad(lambda v: (v.sin() * v).sum())(x), torch.func.vmap(lambda v: v * v.cos())(x)


@inside(tensor(4))
def jacobians(x):
    def f(v):
        return v.exp() * v.sum()

    tangent = torch.func.jvp(f, (x,), (torch.ones(4),))[1]
    return torch.func.jacrev(f)(x), tangent, torch.func.jacfwd(f)(x)


@inside(tensor(3, 4), tensor(4, 4, seed=1))
def gradients_of_each_sample(x, w):
    def loss(w, row):
        return (torch.tanh(row @ w)).sum()

    return torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(w, x)


@inside(tensor(4))
def gradient_penalty(x):
    y = (x.sin() * x).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    return (g**2).sum(), g


@inside(plain(4))
def made_to_require_grad_inside(x):
    w = torch.ones(4).requires_grad_()
    y = (x * w).exp().sum()
    (g,) = torch.autograd.grad(y, w)
    return g


@inside(tensor(4, 4))
def hook_on_an_inner_tensor(x):
    y = x.sin()
    y.register_hook(lambda grad: grad * 10)
    return y * 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", list(CASES))
def test_inside(name, backend):
    compared(name, backend)
