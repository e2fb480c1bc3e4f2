"""Hooks, buffers and parametrizations of modules."""

# ruff: noqa: F841
from __future__ import annotations

import functools

import torch
from torch import nn

from ..shared import LING, mlp
from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
ONLY_TENSORS = True  # what they do with numbers says nothing
PROGRAMS, program = table()


@whole
def parametrize_(x):
    return PMOD(x)


PMOD = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
OMOD = nn.utils.parametrizations.orthogonal(nn.Linear(4, 4))
SNMOD = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)).eval()
OLDWN = nn.utils.weight_norm(nn.Linear(4, 4))
OLDSN = nn.utils.spectral_norm(nn.Linear(4, 4)).eval()


@whole
def orth(x):
    return OMOD(x)


@whole
def specn(x):
    return SNMOD(x)


@whole
def old_wn(x):
    return OLDWN(x)


@whole
def old_sn(x):
    return OLDSN(x)


@whole
def buffers(x):
    return BN(x)


BN = nn.BatchNorm1d(4).eval()


@whole
def buf_write(x):
    BW.n += 1
    BW.n -= 1
    return BW(x)


class BufMod(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(1))
        self.register_buffer("none", None)
        self.register_parameter("pn", None)

    def forward(self, x):
        return x + self.n, self.none is None, self.pn is None


BW = BufMod()


@whole
def hooks_mod(x):
    return HM(x)


HM = nn.Linear(4, 4)
HM.register_forward_hook(lambda m, i, o: o * 2)
HM.register_forward_pre_hook(lambda m, a: (a[0] + 1,))
HMK = nn.Linear(4, 4)
HMK.register_forward_hook(lambda m, a, k, o: o * 2, with_kwargs=True)


@whole
def hooks_kw(x):
    return HMK(x)


@breaking
def tensor_hook(x):
    y = LING(x)
    y.register_hook(lambda g: g * 2)
    return y


@breaking
def retain(x):
    y = LING(x)
    y.retain_grad()
    return y


@whole
def zero_grad(x):
    LING.zero_grad()
    return LING(x)


@whole
def optimizer_step(x):
    with torch.no_grad():
        for q in OPT.parameters():
            q.add_(0.0)
    return OPT(x)


OPT = nn.Linear(4, 4)


@breaking
def param_inside(x):
    w = nn.Parameter(torch.ones(4))
    return x * w


@whole
def inplace_param(x):
    with torch.no_grad():
        IPM.weight.copy_(IPM.weight)
        IPM.weight.data.clamp_(-9, 9)
    return IPM(x)


IPM = nn.Linear(4, 4)


@whole
def lazy_mod(x):
    return LZ(x)


LZ = nn.LazyLinear(4)
LZ(torch.zeros(1, 4))


@program
def forward_hooks():
    net = mlp(4, 4, 2)
    seen = []
    net[0].register_forward_pre_hook(lambda m, a: (a[0] * 2,))
    net[0].register_forward_hook(lambda m, a, o: o + 1)
    net[2].register_forward_hook(lambda m, a, kw, o: o * 2, with_kwargs=True)
    return lambda x: net(x), [(rand(2, 4),), (rand(2, 4, seed=1),)]


@program
def hook_that_collects():
    net = mlp(4, 4, 2)
    features = {}
    for name, mod in net.named_modules():
        if isinstance(mod, nn.Linear):
            mod.register_forward_hook(functools.partial(lambda n, m, a, o: features.__setitem__(n, o.detach()), name))

    def f(x):
        y = net(x)
        return y, dict(features)

    return f, [(rand(2, 4),), (rand(2, 4, seed=1),)]


@program
def full_backward_hook():
    net = mlp(4, 4, 2)
    grads = []
    net[0].register_full_backward_hook(lambda m, gi, go: grads.append(go[0].clone()))

    def f(x):
        return net(x)

    def run(x):
        y = f(x)
        y.sum().backward()
        out, grads[:] = list(grads), []
        return y.detach(), out

    return run, [(rand(2, 4),), (rand(2, 4, seed=1),)]


@program
def tensor_hooks():
    def run(x):
        w = torch.ones(3, requires_grad=True)
        y = w * x
        y.register_hook(lambda g: g * 2)
        y.sum().backward()
        return w.grad

    return run, [(rand(3),), (rand(3, seed=1),)]


@program
def hook_removed():
    net = nn.Linear(3, 3)

    def f(x):
        handle = net.register_forward_hook(lambda m, a, o: o * 10)
        y = net(x)
        handle.remove()
        return y, net(x)

    return f, [(rand(2, 3),), (rand(2, 3, seed=1),)]
