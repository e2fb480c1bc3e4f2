"""``torch.func``, ``torch.autograd.grad`` and ``functional_call``."""

# ruff: noqa: I001
from __future__ import annotations

import copy

import torch
import torch.nn.functional as F

from ..shared import LIN, LING, mlp
from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
ONLY_TENSORS = True  # what they do with numbers says nothing
PROGRAMS, program = table()


@whole
def func_grad(x):
    return torch.func.grad(lambda a: (a**2).sum())(x)


@whole
def func_vmap(x):
    return torch.vmap(lambda a: a.sum() * 2)(x)


@whole
def func_vmap2(x):
    return torch.func.vmap(torch.dot)(x, x), torch.func.vmap(lambda a, b: a + b, in_dims=(0, None))(x, x[0])


@whole
def func_jvp(x):
    return torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))


@whole
def func_vjp(x):
    o, f = torch.func.vjp(torch.sin, x)
    return o, f(torch.ones_like(x))


@whole
def func_jac(x):
    return torch.func.jacrev(lambda a: a.sum(0))(x), torch.func.jacfwd(lambda a: a.sum(0))(x)


@whole
def func_hess(x):
    return torch.func.hessian(lambda a: (a**3).sum())(x[0])


@whole
def func_call(x):
    return torch.func.functional_call(LIN, {"weight": torch.ones(4, 4), "bias": x[0]}, (x,))


@whole
def func_grad_vmap(x):
    return torch.func.vmap(torch.func.grad(lambda w, a: (w * a).sum()), (None, 0))(x[0], x)


@whole
def func_grad_value(x):
    return torch.func.grad_and_value(lambda a: a.sin().sum())(x)


@whole
def ag_grad(x):
    y = LING(x).sum()
    return torch.autograd.grad(y, [LING.weight])[0]


@breaking
def ag_grad_input(x):
    with torch.enable_grad():
        a = x.detach().requires_grad_()
        e = (a**2).sum()
        (g,) = torch.autograd.grad(e, a, create_graph=False)
    return g


@breaking
def stack_state(x):
    from torch.func import stack_module_state, functional_call

    params, bufs = stack_module_state([LIN, LIN])
    return torch.vmap(lambda p_, b_, a: functional_call(LIN, (p_, b_), (a,)), in_dims=(0, 0, None))(params, bufs, x)


@program
def functional_call_stateful():
    net = mlp(3, 2)

    def f(x, scale):
        params = {k: v * scale for k, v in net.named_parameters()}
        return torch.func.functional_call(net, params, (x,))

    return f, [(rand(2, 3), 1.0), (rand(2, 3), 2.0), (rand(2, 3), 0.5)]


@program
def ensemble_by_vmap():
    nets = [mlp(3, 2) for _ in range(3)]
    params, buffers = torch.func.stack_module_state(nets)
    base = copy.deepcopy(nets[0]).to("meta")

    def call(p, b, x):
        return torch.func.functional_call(base, (p, b), (x,))

    return lambda x: torch.func.vmap(call, in_dims=(0, 0, None))(params, buffers, x), [
        (rand(2, 3),),
        (rand(2, 3, seed=1),),
    ]


@program
def per_sample_gradients():
    net = mlp(3, 2)
    params = {k: v.detach() for k, v in net.named_parameters()}

    def loss(p, x, y):
        out = torch.func.functional_call(net, p, (x.unsqueeze(0),))
        return F.mse_loss(out, y.unsqueeze(0))

    per = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    return lambda x, y: per(params, x, y), [(rand(4, 3), rand(4, 2, seed=1))] * 2


@program
def func_vjp_and_jvp():
    def f(x):
        fn = lambda t: (t.sin() * t).sum()
        out, pull = torch.func.vjp(fn, x)
        (g,) = pull(torch.ones_like(out))
        o2, jv = torch.func.jvp(fn, (x,), (torch.ones_like(x),))
        return out, g, o2, jv

    return f, [(rand(3),), (rand(3, seed=1),)]


@program
def func_jacobians():
    def f(x):
        fn = lambda t: t.sin() * t.sum()
        return torch.func.jacrev(fn)(x), torch.func.jacfwd(fn)(x), torch.func.hessian(lambda t: (t**3).sum())(x)

    return f, [(rand(3),), (rand(3, seed=1),)]


@program
def autograd_functional():
    def f(x):
        return torch.autograd.functional.jacobian(lambda t: t**2, x), torch.autograd.functional.hvp(
            lambda t: (t**3).sum(), x, torch.ones_like(x)
        )

    return f, [(rand(3),)] * 2


@program
def gradient_penalty():
    net = mlp(3, 4, 1)

    def f(x):
        x = x.requires_grad_(True)
        out = net(x)
        (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return ((g.norm(dim=1) - 1) ** 2).mean().detach(), g.detach()

    return f, [(rand(2, 3),), (rand(2, 3, seed=1),)]
