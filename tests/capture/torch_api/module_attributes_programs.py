"""Modules: parameters, buffers, containers, what programs ask them and change in them."""

# ruff: noqa: E741
from __future__ import annotations

import collections
import collections.abc
import functools
import types

import torch
import torch.nn.functional as F
from torch import nn

from ..shared import mlp
from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.table = nn.ModuleDict({"relu": nn.ReLU(), "gelu": nn.GELU()})
        self.tail = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(width))])
        self.register_buffer("offset", torch.ones(width))
        self.calls = 0

    def forward(self, x, kind="gelu"):
        x = self.norm(x)
        for layer in self.layers:
            x = x + self.table[kind](layer(x))
        x = self.tail(x) * self.weights[0] + self.offset
        return x, len(self.layers), [name for name, _ in self.named_children()]


torch.manual_seed(0)
BLOCK = Block(4)


@whole
def modules(x):
    return BLOCK(x), BLOCK(x, kind="relu")[0]


@whole
def module_introspection(x):
    return (
        [n for n, p in BLOCK.named_parameters()][:2],
        sum(p.numel() for p in BLOCK.parameters()),
        BLOCK.training,
        isinstance(BLOCK.norm, nn.LayerNorm),
        BLOCK.layers[1](x),
        x + 1,
    )


class Mod(nn.Module):
    def __init__(self):
        super().__init__()
        self.cfg = types.SimpleNamespace(a=1, b=[2])
        self.lin = nn.Linear(4, 4)
        self.table = {"k": nn.ReLU()}
        self.fn = torch.tanh
        self.lst = nn.ModuleList([nn.Linear(4, 4)])
        self.call = functools.partial(torch.mul, other=2) if False else None
        self.counter = collections.Counter()

    def forward(self, x):
        return self.table["k"](self.fn(self.lin(x))) + self.cfg.a + self.cfg.b[0] + sum(m(x) for m in self.lst)


MOD = Mod()


@whole
def module_attrs(x):
    return MOD(x)


@breaking
def module_methods(x):
    return (
        len(list(MOD.parameters())),
        [n for n, _ in MOD.named_modules()],
        MOD.training,
        sum(q.numel() for q in MOD.parameters()),
        next(MOD.parameters()).dtype,
        [n for n, _ in MOD.named_children()],
        MOD.get_submodule("lst.0")(x),
        MOD.lin.extra_repr(),
        isinstance(MOD.lst[0], nn.Linear),
        [type(m).__name__ for m in MOD.modules()],
        list(MOD.state_dict()),
    )


@breaking
def module_made_inside(x):
    l = nn.LayerNorm(4)
    return l(x)


@whole
def moduledict(x):
    return (
        MD["a"](x),
        "a" in MD,
        list(MD.keys()),
        [m(x) for m in MD.values()],
        len(MD),
        PL[0] + x,
        [q.shape for q in PL],
        PD["w"] * x,
    )


MD = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
PL = nn.ParameterList([nn.Parameter(torch.ones(4))])
PD = nn.ParameterDict({"w": nn.Parameter(torch.ones(4))})


class WithBuffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("scratch", None, persistent=False)
        self.momentum = 0.1

    def forward(self, x):
        if self.training:
            self.mean = (1 - self.momentum) * self.mean + self.momentum * x.mean(0).detach()
            self.count += 1
        self.scratch = x - self.mean
        return self.scratch, self.count.clone()


@program
def buffers_replaced():
    return WithBuffers(), [(rand(3, 4, seed=n),) for n in range(3)]


@program
def batch_norm_training():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten())

    def f(x):
        return net(x), net[1].running_mean.clone(), net[1].num_batches_tracked.clone()

    return f, [(rand(2, 1, 5, 5, seed=n),) for n in range(3)]


@program
def parametrizations():
    net = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    sn = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))
    return lambda x: sn(net(x)), [(rand(2, 4),), (rand(2, 4, seed=1),)]


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).transpose(-1, -2)


@program
def own_parametrization():
    lin = nn.Linear(3, 3)
    nn.utils.parametrize.register_parametrization(lin, "weight", Symmetric())

    def f(x):
        with nn.utils.parametrize.cached():
            return lin(x) + lin(x)

    return f, [(rand(2, 3),), (rand(2, 3, seed=1),)]


class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 4)
        self.cache = {}

    def forward(self, x, key=None):
        if key in self.cache:
            return self.cache[key]
        y = self.proj(x)
        if key is not None:
            self.cache[key] = y
        return y


@program
def module_with_cache():
    m = Cached()
    return lambda x, k: (m(x, k), sorted(map(str, m.cache))), [
        (rand(2, 4), "a"),
        (rand(2, 4, seed=1), "a"),
        (rand(2, 4), None),
        (rand(2, 4), "b"),
    ]


class KVCache:
    def __init__(self):
        self.k = self.v = None

    def update(self, k, v):
        self.k = k if self.k is None else torch.cat([self.k, k], dim=1)
        self.v = v if self.v is None else torch.cat([self.v, v], dim=1)
        return self.k, self.v


@program
def kv_cache():
    def f(x, steps):
        cache = KVCache()
        out = []
        for t in range(steps):
            k, v = cache.update(x[:, t : t + 1], x[:, t : t + 1] * 2)
            out.append(F.scaled_dot_product_attention(x[:, t : t + 1], k, v))
        return torch.cat(out, 1), cache.k.shape

    return f, [(rand(2, 3, 4), 3), (rand(2, 3, 4, seed=1), 2)]


@program
def parameter_containers():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.d = nn.ParameterDict({"a": nn.Parameter(torch.ones(2)), "b": nn.Parameter(torch.zeros(2))})
            self.l = nn.ParameterList([nn.Parameter(torch.full((2,), float(i))) for i in range(3)])

        def forward(self, x, which):
            y = x * self.d[which]
            for i, p in enumerate(self.l):
                y = y + p * i
            return y + self.l[-1], sorted(self.d.keys()), len(self.l), "a" in self.d

    return Net(), [(rand(2), "a"), (rand(2), "b")]


@program
def lazy_modules():
    net = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(2))

    def f(x):
        y = net(x)
        return y.shape, type(net[0]).__name__, y

    return f, [(rand(2, 5),), (rand(2, 5, seed=1),)]


@program
def initialisers():
    def f(n):
        w = torch.empty(n, 3)
        nn.init.xavier_uniform_(w)
        b = nn.init.zeros_(torch.empty(n))
        k = nn.init.kaiming_normal_(torch.empty(n, 3), nonlinearity="relu")
        o = nn.init.orthogonal_(torch.empty(n, n))
        return w, b, k, nn.init.calculate_gain("tanh"), o.shape

    return f, [(3,), (3,), (4,)]


@program
def module_train_and_eval_inside():
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.BatchNorm1d(3))

    def f(x):
        net.eval()
        a = net(x)
        net.train()
        b = net(x)
        return a, b, net.training, net[2].num_batches_tracked.clone()

    return f, [(rand(4, 3),)] * 3


@program
def module_surgery():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(2, 2)
            self.b = nn.Linear(2, 2)
            self.order = ["a", "b"]

        def forward(self, x):
            for n in self.order:
                x = self.get_submodule(n)(x)
            self.order = self.order[::-1]
            return x, self.order

    return Net(), [(rand(2, 2),)] * 3


@program
def named_everything():
    net = mlp(3, 4, 2)

    def f(x):
        norms = {n: p.norm() for n, p in net.named_parameters() if p.requires_grad and p.dim() > 1}
        n = sum(p.numel() for p in net.parameters())
        kinds = [type(m).__name__ for m in net.modules()]
        return norms, n, kinds, list(net.state_dict()), net(x), dict(net.named_children()).keys() == {"0", "1", "2"}

    return f, [(rand(2, 3),)] * 2


@program
def pruning_and_masks():
    lin = nn.Linear(3, 2)
    mask = (rand(2, 3) > 0).float()

    def f(x):
        with torch.no_grad():
            lin.weight.mul_(mask)
            lin.bias.data.fill_(1.0)
        return lin(x), lin.weight.detach().clone()

    return f, [(rand(2, 3),)] * 2


@program
def in_place_relu_and_residuals():
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))

    def f(x):
        y = net(x)
        y += x
        y[:, 0].zero_()
        return y, x

    return f, [(rand(2, 3),), (rand(2, 3, seed=1),)]


@program
def embedding_bag_and_padding():
    emb = nn.EmbeddingBag(6, 3, mode="mean")
    e2 = nn.Embedding(6, 3, padding_idx=0, max_norm=None)
    return lambda i, o: (emb(i, o), e2(i).sum(0)), [(torch.tensor([1, 2, 0, 4]), torch.tensor([0, 2]))] * 2
