"""Random numbers, generators and distributions."""

from __future__ import annotations

import random

import numpy as np
import torch
import torch.nn.functional as F

from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
ONLY_TENSORS = True  # what they do with numbers says nothing
PROGRAMS, program = table()
GEN = torch.Generator().manual_seed(3)


@breaking
def gen_obj(x):
    g = torch.Generator().manual_seed(5)
    return torch.randn(3, generator=g), torch.rand(2, generator=g) + x[0, 0]


@breaking
def gen_global(x):
    GEN.manual_seed(3)
    return torch.randn(3, generator=GEN)


@breaking
def manual_seed(x):
    torch.manual_seed(3)
    return x + torch.rand(3, 4)


@whole
def rng_many(x):
    return (
        F.dropout(x, 0.5),
        torch.rand(2),
        torch.randn_like(x),
        torch.randint(0, 5, (3,)),
        torch.randperm(4),
        torch.bernoulli(torch.full((3,), 0.5)),
        x.clone().uniform_(),
        x.clone().normal_(),
        torch.multinomial(torch.ones(4), 2),
        torch.normal(0.0, 1.0, (2,)),
        x.clone().exponential_(),
    )


@breaking
def fork_rng(x):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        y = torch.rand(2)
    return y, torch.rand(2)


@breaking
def rng_state(x):
    s = torch.get_rng_state()
    a = torch.rand(2)
    torch.set_rng_state(s)
    return a, torch.rand(2)


@breaking
def dist(x):
    d = torch.distributions.Normal(x, torch.ones_like(x))
    return d.log_prob(x), d.rsample().shape, torch.distributions.kl_divergence(d, torch.distributions.Normal(0.0, 1.0))


@breaking
def dist_cat(x):
    d = torch.distributions.Categorical(logits=x)
    return d.sample().shape, d.entropy(), d.log_prob(torch.tensor([0, 1, 2]))


@breaking
def dataloader_like(x):
    return [b * 2 for b in torch.utils.data.default_collate([x, x])]


@program
def distributions_normal():
    def f(x):
        d = torch.distributions.Normal(x, x.abs() + 1)
        q = torch.distributions.Normal(torch.zeros_like(x), torch.ones_like(x))
        return d.log_prob(x + 1), torch.distributions.kl_divergence(d, q), d.rsample(), d.cdf(x)

    return f, [(rand(4),), (rand(4, seed=1),)]


@program
def distributions_many():
    def f(x):
        p = x.sigmoid()
        b = torch.distributions.Bernoulli(p)
        u = torch.distributions.Uniform(x - 1, x + 1)
        i = torch.distributions.Independent(torch.distributions.Normal(x, 1.0), 1)
        return b.log_prob((p > 0.5).float()), b.entropy(), u.log_prob(x), i.log_prob(x), u.mean

    return f, [(rand(4),), (rand(4, seed=1),)]


@program
def python_random():
    def f(x):
        random.seed(3)
        if random.random() < 2:
            x = x * random.uniform(1, 2)
        k = random.randint(1, 3)
        order = list(range(3))
        random.shuffle(order)
        return x, k, order, random.choice("abc")

    return f, [(rand(2),), (rand(2, seed=1),)]


@program
def numpy_random_mask():
    def f(x):
        rng = np.random.RandomState(0)
        mask = torch.from_numpy(rng.rand(*x.shape) > 0.5)
        spans = [int(rng.randint(0, 3)) for _ in range(2)]
        return x * mask, x[spans]

    return f, [(rand(3, 2),), (rand(3, 2, seed=1),)]


@program
def data_augmentation():
    def f(img, gen):
        if torch.rand(1, generator=gen).item() < 0.5:
            img = img.flip(-1)
        i, j = torch.randint(0, 2, (2,), generator=gen).tolist()
        img = F.pad(img, (1, 1, 1, 1), mode="reflect")[..., i : i + 4, j : j + 4]
        return (img - img.mean()) / (img.std() + 1e-6)

    return f, [(rand(1, 1, 4, 4, seed=n), torch.Generator().manual_seed(n)) for n in range(4)]


@program
def seeds_and_generators():
    def f(x):
        torch.manual_seed(5)
        a = torch.rand(2)
        g = torch.Generator().manual_seed(3)
        b = torch.randn(2, generator=g)
        return a, b, torch.randperm(4), F.dropout(x, 0.5)

    return f, [(rand(6),)] * 2


@program
def rng_streams():
    def f(x, train):
        y = F.dropout(x, 0.5, training=train)
        z = torch.rand_like(y)
        if y.sum() > 0:
            z = z + torch.randn(2)
        return y, z, torch.rand(1)

    return f, [(rand(2), True), (rand(2), False), (rand(2) + 5, True)]


@program
def whole_numbers_from_some_to_others():
    def f(x):
        return x.clone().random_(-3, 4), x.long().random_(2, 9), torch.randint(-4, -1, (3,))

    return f, [(rand(2),)] * 2
