"""Programs of many fields, as papers' code is written: flows, solvers, control, graphs, sequences, search, optimizers.

Each entry of ``PROGRAMS`` makes (function, list of argument tuples), as in ``user_programs``.
"""

# ruff: noqa
from __future__ import annotations

import collections, contextlib, dataclasses, enum, functools, math, random, typing

import numpy as np
import torch
import torch.nn.functional as F
from torch import distributions as D
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from .tables import rand, table

PROGRAMS, program = table()


def mlp(*sizes, act=nn.Tanh):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


def grads(model):
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


# --- probability ------------------------------------------------------------------------------------------------------
@program
def coupling_flow():
    class Coupling(nn.Module):
        def __init__(self, flip):
            super().__init__()
            self.flip, self.net = flip, mlp(2, 8, 4)

        def forward(self, x):
            a, b = x.chunk(2, -1)
            if self.flip:
                a, b = b, a
            s, t = self.net(a).chunk(2, -1)
            b = b * torch.exp(s.tanh()) + t
            return torch.cat((b, a) if self.flip else (a, b), -1), s.tanh().sum(-1)

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Coupling(n % 2 == 1) for n in range(3))
            self.register_buffer("loc", torch.zeros(4))
            self.register_buffer("cov", torch.eye(4))

        @property
        def prior(self):
            return D.MultivariateNormal(self.loc, self.cov)

        def log_prob(self, x):
            total = x.new_zeros(x.shape[0])
            for layer in self.layers:
                x, logdet = layer(x)
                total = total + logdet
            return self.prior.log_prob(x) + total

    flow = Flow()

    def step(x):
        flow.zero_grad()
        loss = -flow.log_prob(x).mean()
        loss.backward()
        return loss.detach(), grads(flow)

    return step, [(rand(5, 4, seed=n),) for n in range(2)]


@program
def squashed_policy():
    actor, critic = mlp(3, 8, 4), mlp(5, 8, 1)
    log_alpha = torch.zeros((), requires_grad=True)

    def act(obs):
        mean, log_std = actor(obs).chunk(2, -1)
        base = D.Normal(mean, log_std.clamp(-5, 2).exp())
        dist = D.TransformedDistribution(D.Independent(base, 1), [D.transforms.TanhTransform(cache_size=1)])
        action = dist.rsample()
        return action, dist.log_prob(action)

    def step(obs):
        action, logp = act(obs)
        q = critic(torch.cat([obs, action], -1)).squeeze(-1)
        loss = (log_alpha.exp().detach() * logp - q).mean()
        loss.backward()
        alpha_loss = -(log_alpha * (logp + 2).detach()).mean()
        alpha_loss.backward()
        out = loss.detach(), log_alpha.grad.clone(), [p.grad.clone() for p in actor.parameters()]
        log_alpha.grad = None
        for p in [*actor.parameters(), *critic.parameters()]:
            p.grad = None
        return out

    return step, [(rand(6, 3, seed=n),) for n in range(3)]


@program
def mixture_density():
    net = mlp(1, 8, 9)

    def f(x, y):
        logits, mean, scale = net(x).chunk(3, -1)
        mixture = D.MixtureSameFamily(D.Categorical(logits=logits), D.Normal(mean, F.softplus(scale) + 1e-3))
        return -mixture.log_prob(y.squeeze(-1)).mean(), mixture.mean, mixture.sample((2,)).shape

    return f, [(rand(5, 1), rand(5, 1, seed=1))] * 2


@program
def proximal_policy():
    policy, value = mlp(4, 8, 3), mlp(4, 8, 1)
    opt = torch.optim.Adam([*policy.parameters(), *value.parameters()], lr=1e-2)

    def advantages(rewards, values, dones, gamma=0.99, lam=0.95):
        result, running = torch.zeros_like(rewards), 0.0
        for t in reversed(range(len(rewards))):
            following = values[t + 1] if t + 1 < len(rewards) else torch.zeros(())
            delta = rewards[t] + gamma * following * (1 - dones[t]) - values[t]
            running = delta + gamma * lam * (1 - dones[t]) * running
            result[t] = running
        return result

    def update(obs, actions, rewards, dones):
        with torch.no_grad():
            old = D.Categorical(logits=policy(obs)).log_prob(actions)
            adv = advantages(rewards, value(obs).squeeze(-1), dones)
        losses = []
        for _ in range(2):
            dist = D.Categorical(logits=policy(obs))
            ratio = (dist.log_prob(actions) - old).exp()
            clipped = torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
            loss = -clipped + 0.5 * F.mse_loss(value(obs).squeeze(-1), adv) - 0.01 * dist.entropy().mean()
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            opt.step()
            losses.append(loss.item())
        return losses

    args = rand(6, 4), torch.tensor([0, 1, 2, 0, 1, 2]), rand(6, seed=2), torch.tensor([0.0, 0, 1, 0, 0, 1])
    return update, [args] * 3


@program
def divergences():
    def f(loc, scale, probs):
        a, b = D.Normal(loc, scale), D.Normal(0.0, 1.0)
        c, d = D.Categorical(probs), D.Categorical(torch.ones_like(probs))
        e = D.Dirichlet(probs + 1), D.Dirichlet(torch.ones_like(probs))
        return D.kl_divergence(a, b), D.kl_divergence(c, d), D.kl_divergence(*e), a.cdf(loc + 1), a.icdf(probs.mean())

    return f, [(rand(3), torch.rand(3) + 0.1, torch.softmax(rand(3), 0))] * 2


@program
def restricted_boltzmann():
    w, b, c = rand(6, 4), rand(6, seed=1), rand(4, seed=2)

    def f(v):
        h = torch.bernoulli(torch.sigmoid(v @ w + c))
        v2 = D.Bernoulli(logits=h @ w.t() + b).sample()
        h2 = torch.sigmoid(v2 @ w + c)
        return v.t() @ h - v2.t() @ h2

    return f, [((rand(3, 6) > 0).float(),)] * 2


@program
def langevin():
    energy = mlp(2, 8, 1)

    def sample(x, steps=3, eps=0.1):
        x = x.clone()
        for _ in range(steps):
            x.requires_grad_(True)
            g = torch.autograd.grad(energy(x).sum(), x)[0]
            x = (x - eps * g + math.sqrt(2 * eps) * torch.randn_like(x)).detach()
        return x

    return sample, [(rand(4, 2),)] * 2


@program
def hidden_markov():
    start, move, emit = rand(3).log_softmax(0), rand(3, 3, seed=1).log_softmax(1), rand(3, 5, seed=2).log_softmax(1)

    def f(seq):
        alpha = start + emit[:, seq[0]]
        best, back = alpha, []
        for o in seq[1:]:
            alpha = torch.logsumexp(alpha.unsqueeze(1) + move, 0) + emit[:, o]
            score, index = (best.unsqueeze(1) + move).max(0)
            best = score + emit[:, o]
            back.append(index)
        path = [best.argmax()]
        for index in reversed(back):
            path.append(index[path[-1]])
        return torch.logsumexp(alpha, 0), torch.stack(path[::-1])

    return f, [(torch.tensor([0, 3, 2, 4]),), (torch.tensor([1, 1, 2, 0]),)]


@program
def gaussian_process():
    log_scale = torch.zeros((), requires_grad=True)

    def kernel(a, b):
        return torch.exp(-(torch.cdist(a, b) ** 2) / (2 * log_scale.exp() ** 2))

    def f(x, y, new):
        k = kernel(x, x) + 0.1 * torch.eye(len(x))
        factor = torch.linalg.cholesky(k)
        weights = torch.cholesky_solve(y.unsqueeze(-1), factor)
        likelihood = -0.5 * (y @ weights).squeeze() - factor.diagonal().log().sum()
        log_scale.grad = None
        likelihood.backward()
        return kernel(new, x).detach() @ weights.detach(), likelihood.detach(), log_scale.grad.clone()

    return f, [(rand(4, 2), rand(4, seed=1), rand(3, 2, seed=2))] * 2


@program
def kalman():
    a, h, q, r = torch.eye(2) * 0.9, torch.tensor([[1.0, 0.0]]), torch.eye(2) * 0.1, torch.eye(1)

    def f(observations):
        x, p, out = torch.zeros(2), torch.eye(2), []
        for z in observations.unbind():
            x, p = a @ x, a @ p @ a.T + q
            gain = torch.linalg.solve(h @ p @ h.T + r, h @ p).T
            x = x + gain @ (z - h @ x)
            p = (torch.eye(2) - gain @ h) @ p
            out.append(x)
        return torch.stack(out), p

    return f, [(rand(4, 1),)] * 2


# --- solvers, implicit layers, physics --------------------------------------------------------------------------------
@program
def neural_ode():
    field = mlp(3, 8, 3)

    def rk4(f, y, t, dt):
        k1 = f(t, y)
        k2 = f(t + dt / 2, y + dt / 2 * k1)
        k3 = f(t + dt / 2, y + dt / 2 * k2)
        k4 = f(t + dt, y + dt * k3)
        return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    def solve(y, times):
        out = [y]
        for t0, t1 in zip(times[:-1], times[1:]):
            y = rk4(lambda t, y: field(y) * torch.cos(t), y, t0, t1 - t0)
            out.append(y)
        loss = torch.stack(out).square().mean()
        field.zero_grad()
        loss.backward()
        return loss.detach(), grads(field)

    return solve, [(rand(2, 3), torch.linspace(0, 1, 4))] * 2


@program
def adaptive_steps():
    def f(y, tolerance=1e-2):
        t, dt, steps = 0.0, 0.5, 0
        while t < 1.0 and steps < 20:
            slope = -y * (1 + t)
            coarse = y + dt * slope
            half = y + dt / 2 * slope
            fine = half + dt / 2 * (-half * (1 + t + dt / 2))
            error = (coarse - fine).abs().max().item()
            if error < tolerance:
                y, t = fine, t + dt
            dt = min(1.0 - t, dt * (1.5 if error < tolerance else 0.5)) or dt
            steps += 1
        return y, steps

    return f, [(rand(3),), (rand(3, seed=1),)]


@program
def fixed_point_layer():
    cell = nn.Linear(4, 4)

    class Implicit(torch.autograd.Function):
        @staticmethod
        def forward(ctx, z, x):
            ctx.save_for_backward(z)
            return z.clone()

        @staticmethod
        def backward(ctx, g):
            (z,) = ctx.saved_tensors
            return None, g * (1 + z)

    def f(x):
        z = torch.zeros_like(x)
        with torch.no_grad():
            for n in range(30):
                new = torch.tanh(cell(z) * 0.3 + x)
                if (new - z).norm() < 1e-2:
                    break
                z = new
        out = Implicit.apply(z, x)
        return out.detach(), torch.autograd.grad(out.sum(), x)[0], n

    return f, [(rand(2, 4, grad=True),)] * 2


@program
def physics_informed():
    net = mlp(2, 8, 1)

    def loss(x, t):
        u = net(torch.stack([x, t], -1)).squeeze(-1)
        u_x, u_t = torch.autograd.grad(u.sum(), (x, t), create_graph=True)
        u_xx = torch.autograd.grad(u_x.sum(), x, create_graph=True)[0]
        total = (u_t + u * u_x - 0.01 * u_xx).square().mean()
        net.zero_grad()
        total.backward()
        return total.detach(), grads(net)

    return loss, [(rand(5, grad=True), rand(5, seed=1, grad=True))] * 2


@program
def hamiltonian():
    energy = mlp(2, 8, 1)

    def step(state):
        with torch.enable_grad():
            state = state.detach().requires_grad_()
            q, p = torch.autograd.grad(energy(state).sum(), state)[0].unbind(-1)
        return state.detach() + 0.1 * torch.stack([p, -q], -1)

    def roll(state):
        path = [state]
        for _ in range(3):
            path.append(step(path[-1]))
        return torch.stack(path)

    return roll, [(rand(4, 2),)] * 2


@program
def spectral_convolution():
    weight = torch.view_as_complex(rand(2, 3, 4, 2)).requires_grad_()

    def f(x):
        freq = torch.fft.rfft(x, norm="ortho")
        out = torch.zeros(x.shape[0], 3, freq.shape[-1], dtype=freq.dtype)
        out[..., :4] = torch.einsum("bif,iof->bof", freq[..., :4], weight)
        y = torch.fft.irfft(out, n=x.shape[-1], norm="ortho")
        return y.detach(), torch.autograd.grad(y.square().sum(), weight)[0]

    return f, [(rand(2, 2, 16),)] * 2


@program
def volume_rendering():
    net = mlp(9, 8, 4)

    def encode(x, levels=1):
        return torch.cat([x, *(fn(2.0**n * x) for n in range(levels) for fn in (torch.sin, torch.cos))], -1)

    def f(origin, direction):
        t = torch.linspace(0, 1, 5)
        points = origin[:, None] + direction[:, None] * t[:, None]
        rgb, sigma = net(encode(points)).split([3, 1], -1)
        alpha = 1 - torch.exp(-F.relu(sigma.squeeze(-1)) * 0.25)
        trans = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
        weights = alpha * trans
        return (weights[..., None] * rgb.sigmoid()).sum(1), (weights * t).sum(-1)

    return f, [(rand(4, 3), rand(4, 3, seed=1))] * 2


# --- sequences --------------------------------------------------------------------------------------------------------
@program
def decoder_with_teacher_forcing():
    embed, cell, out = nn.Embedding(7, 4), nn.GRUCell(4, 5), nn.Linear(5, 7)

    def f(h, target, ratio):
        token, logits = torch.zeros(2, dtype=torch.long), []
        for t in range(target.shape[1]):
            h = cell(embed(token), h)
            logits.append(out(h))
            token = target[:, t] if random.random() < ratio else logits[-1].argmax(-1)
        return F.cross_entropy(torch.stack(logits, 1).flatten(0, 1), target.flatten())

    return f, [(rand(2, 5), torch.tensor([[1, 2, 3], [4, 5, 6]]), r) for r in (0.5, 1.0)]


@program
def state_space_scan():
    def f(u, delta, a, b, c):
        da = torch.exp(delta.unsqueeze(-1) * a)
        dbu = delta.unsqueeze(-1) * b.unsqueeze(2) * u.unsqueeze(-1)
        state, out = torch.zeros(u.shape[0], u.shape[2], a.shape[1]), []
        for t in range(u.shape[1]):
            state = da[:, t] * state + dbu[:, t]
            out.append(torch.einsum("bdn,bn->bd", state, c[:, t]))
        return torch.stack(out, 1)

    return f, [(rand(2, 4, 3), rand(2, 4, 3, seed=1).abs(), -rand(3, 2).abs(), rand(2, 4, 2), rand(2, 4, 2, seed=3))]


@program
def halting_loop():
    cell, halt = nn.RNNCell(3, 3), nn.Linear(3, 1)

    def f(x):
        h, left, total, n = torch.zeros_like(x), torch.ones(x.shape[0]), torch.zeros_like(x), 0
        while (left > 0.1).any() and n < 5:
            h = cell(x, h)
            p = torch.sigmoid(halt(h)).squeeze(-1)
            p = torch.minimum(p, left)
            total, left, n = total + p[:, None] * h, left - p, n + 1
        return total, left, n

    return f, [(rand(3, 3),), (rand(3, 3, seed=4),)]


@program
def tree_recursion():
    leaf, join = nn.Linear(2, 3), nn.Linear(6, 3)

    def encode(tree):
        if isinstance(tree, torch.Tensor):
            return leaf(tree).tanh()
        left, right = tree
        return join(torch.cat([encode(left), encode(right)], -1)).tanh()

    a, b, c = rand(2), rand(2, seed=1), rand(2, seed=2)
    return encode, [(((a, b), c),), (((a, b), c),), ((a, (b, (c, a))),)]


@program
def conditional_random_field():
    move = rand(3, 3, grad=True)

    def f(emissions, tags, mask):
        score = emissions[:, 0].gather(1, tags[:, :1]).squeeze(1)
        alpha = emissions[:, 0]
        for t in range(1, emissions.shape[1]):
            on = mask[:, t]
            here = emissions[:, t].gather(1, tags[:, t : t + 1]).squeeze(1) + move[tags[:, t - 1], tags[:, t]]
            score = score + here * on
            new = torch.logsumexp(alpha[:, :, None] + move + emissions[:, t, None], 1)
            alpha = torch.where(on[:, None], new, alpha)
        loss = (alpha.logsumexp(1) - score).mean()
        return loss.detach(), torch.autograd.grad(loss, move)[0]

    tags = torch.tensor([[0, 1, 2], [2, 1, 0]])
    return f, [(rand(2, 3, 3), tags, torch.tensor([[True, True, True], [True, True, False]]))] * 2


@program
def dynamic_time_warping():
    def f(a, b):
        cost = torch.cdist(a[:, None], b[:, None])
        rows = [[torch.tensor(math.inf)] * (len(b) + 1) for _ in range(len(a) + 1)]
        rows[0][0] = torch.tensor(0.0)
        for i in range(1, len(a) + 1):
            for j in range(1, len(b) + 1):
                before = torch.stack([rows[i - 1][j], rows[i][j - 1], rows[i - 1][j - 1]])
                rows[i][j] = cost[i - 1, j - 1] - torch.logsumexp(-before, 0)
        return rows[-1][-1]

    return f, [(rand(3, grad=True), rand(4, seed=1))] * 2


@program
def memory_machine():
    def f(memory, key, strength, gate, shift, erase, add):
        content = torch.softmax(strength * F.cosine_similarity(memory + 1e-8, key[None], dim=-1), -1)
        w = gate * content + (1 - gate) * torch.full_like(content, 1 / len(content))
        w = sum(s * torch.roll(w, n - 1) for n, s in enumerate(shift.softmax(-1)))
        memory = memory * (1 - w[:, None] * erase.sigmoid()) + w[:, None] * add
        return memory, w @ memory

    return f, [(rand(4, 3), rand(3), torch.tensor(2.0), torch.tensor(0.5), rand(3), rand(3), rand(3, seed=2))] * 2


# --- graphs and sets --------------------------------------------------------------------------------------------------
@program
def message_passing():
    class Conv(nn.Module):
        def __init__(self, a, b, aggr="mean"):
            super().__init__()
            self.lin, self.att, self.aggr = nn.Linear(a, b), nn.Parameter(rand(2 * b)), aggr

        def forward(self, x, edges):
            source, target = edges
            x = self.lin(x)
            score = F.leaky_relu((torch.cat([x[source], x[target]], -1) * self.att).sum(-1), 0.2)
            top = torch.full((len(x),), -1e9).scatter_reduce(0, target, score, "amax")
            weight = (score - top[target]).exp()
            norm = torch.zeros(len(x)).index_add_(0, target, weight)
            return torch.zeros_like(x).index_add(0, target, x[source] * (weight / (norm[target] + 1e-9))[:, None])

    layers = nn.ModuleList([Conv(3, 4), Conv(4, 2)])

    def f(x, edges):
        for n, layer in enumerate(layers):
            x = layer(x, edges) if n else F.elu(layer(x, edges))
        layers.zero_grad()
        x.square().sum().backward()
        return x.detach(), grads(layers)

    return f, [(rand(4, 3), torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]]))] * 2


@program
def capsules():
    w = rand(4, 2, 3, 3, grad=True)

    def squash(s):
        n = s.norm(dim=-1, keepdim=True)
        return n**2 / (1 + n**2) * s / (n + 1e-8)

    def f(u, rounds=3):
        votes = torch.einsum("iocd,bic->biod", w, u)
        b = torch.zeros(votes.shape[:3])
        for r in range(rounds):
            c = b.softmax(-1)
            v = squash((c[..., None] * votes).sum(1))
            if r < rounds - 1:
                b = b + (votes * v[:, None]).sum(-1).detach()
        return v.detach(), torch.autograd.grad(v.norm(dim=-1).sum(), w)[0]

    return f, [(rand(2, 4, 3),)] * 2


@program
def optimal_transport():
    def f(x, y, eps=0.1):
        cost = torch.cdist(x, y) ** 2
        a, b = torch.full((len(x),), 1 / len(x)).log(), torch.full((len(y),), 1 / len(y)).log()
        u, v = torch.zeros_like(a), torch.zeros_like(b)
        for _ in range(4):
            u = eps * (a - torch.logsumexp((v - cost) / eps, 1))
            v = eps * (b - torch.logsumexp((u[:, None] - cost) / eps, 0))
        plan = torch.exp((u[:, None] + v - cost) / eps)
        return (plan * cost).sum(), plan.sum(0)

    return f, [(rand(3, 2, grad=True), rand(4, 2, seed=1))] * 2


@program
def suppression_of_boxes():
    def area(b):
        return (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])

    def f(boxes, scores, threshold):
        order, keep = scores.argsort(descending=True), []
        while order.numel():
            i = order[0]
            keep.append(i.item())
            rest = order[1:]
            low = torch.maximum(boxes[i, :2], boxes[rest, :2])
            high = torch.minimum(boxes[i, 2:], boxes[rest, 2:])
            inter = (high - low).clamp(min=0).prod(-1)
            iou = inter / (area(boxes)[i] + area(boxes)[rest] - inter)
            order = rest[iou <= threshold]
        return keep

    corner = rand(5, 2).abs()
    return f, [(torch.cat([corner, corner + 1], -1), rand(5, seed=3), 0.3)] * 2


@program
def sparse_products():
    def f(x):
        adj = torch.sparse_coo_tensor(torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.ones(3), (3, 3))
        return torch.sparse.mm(adj, x), adj.to_dense() @ x

    return f, [(rand(3, 2),)] * 2


# --- training methods -------------------------------------------------------------------------------------------------
@program
def model_agnostic_meta_learning():
    model = mlp(2, 8, 1)
    params = {k: v.detach().clone() for k, v in model.named_parameters()}

    def loss_of(p, x, y):
        return F.mse_loss(torch.func.functional_call(model, p, (x,)), y)

    def task_loss(p, x, y, x2, y2):
        g = torch.func.grad(loss_of)(p, x, y)
        adapted = {k: v - 0.1 * g[k] for k, v in p.items()}
        return loss_of(adapted, x2, y2)

    def meta(x, y, x2, y2):
        def total(p):
            return torch.func.vmap(functools.partial(task_loss, p))(x, y, x2, y2).mean()

        g, value = torch.func.grad_and_value(total)(params)
        return value, {k: v - 0.01 * g[k] for k, v in params.items()}

    return meta, [tuple(rand(3, 4, d, seed=n) for n, d in enumerate((2, 1, 2, 1)))] * 2


@program
def sharpness_aware():
    class Sharp(torch.optim.Optimizer):
        def __init__(self, params, base, rho=0.05, **kwargs):
            super().__init__(params, dict(rho=rho, **kwargs))
            self.base = base(self.param_groups, **kwargs)

        @torch.no_grad()
        def first(self):
            norm = torch.stack([p.grad.norm() for g in self.param_groups for p in g["params"]]).norm()
            for group in self.param_groups:
                for p in group["params"]:
                    e = p.grad * (group["rho"] / (norm + 1e-12))
                    self.state[p]["e"] = e
                    p.add_(e)

        @torch.no_grad()
        def second(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(self.state[p]["e"])
            self.base.step()

    model = mlp(3, 4, 1)
    opt = Sharp(model.parameters(), torch.optim.SGD, lr=0.1)

    def step(x, y):
        F.mse_loss(model(x), y).backward()
        opt.first()
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.second()
        opt.zero_grad()
        return loss.detach(), [p.detach().clone() for p in model.parameters()]

    return step, [(rand(4, 3, seed=n), rand(4, 1, seed=7)) for n in range(3)]


@program
def lookahead_and_schedule():
    model = mlp(2, 3, 1)
    slow = [p.detach().clone() for p in model.parameters()]
    opt = torch.optim.RMSprop(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=10)
    count = {"steps": 0}

    def step(x, y):
        opt.zero_grad()
        loss = F.smooth_l1_loss(model(x), y)
        loss.backward()
        opt.step()
        schedule.step()
        count["steps"] += 1
        if count["steps"] % 2 == 0:
            with torch.no_grad():
                for s, p in zip(slow, model.parameters()):
                    s.lerp_(p, 0.5)
                    p.copy_(s)
        return loss.detach(), schedule.get_last_lr(), [s.clone() for s in slow]

    return step, [(rand(4, 2, seed=n), rand(4, 1, seed=7)) for n in range(4)]


@program
def learned_optimizer():
    rule = nn.LSTMCell(1, 4)
    head = nn.Linear(4, 1)

    def f(w):
        h = c = torch.zeros(w.numel(), 4)
        total = 0
        for _ in range(3):
            loss = (w**2).sum()
            total = total + loss
            g = torch.autograd.grad(loss, w, create_graph=True)[0]
            h, c = rule(g.reshape(-1, 1).detach(), (h, c))
            w = w + 0.1 * head(h).view_as(w)
        return total.detach(), torch.autograd.grad(total, [*rule.parameters()])

    return f, [(rand(3, grad=True),)] * 2


@program
def bootstrap_your_own():
    online, target, predictor = mlp(4, 4), mlp(4, 4), mlp(4, 4)
    target.load_state_dict(online.state_dict())
    target.requires_grad_(False)

    def step(a, b):
        loss = 0
        for x, y in ((a, b), (b, a)):
            p = F.normalize(predictor(online(x)), dim=-1)
            with torch.no_grad():
                z = F.normalize(target(y), dim=-1)
            loss = loss + (2 - 2 * (p * z).sum(-1)).mean()
        online.zero_grad()
        loss.backward()
        with torch.no_grad():
            for o, t in zip(online.parameters(), target.parameters()):
                t.data.mul_(0.9).add_(o.data, alpha=0.1)
        return loss.detach(), grads(online), [t.clone() for t in target.parameters()]

    return step, [(rand(3, 4, seed=n), rand(3, 4, seed=n + 5)) for n in range(3)]


@program
def contrastive_with_queue():
    encoder = mlp(4, 4)

    class Queue(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("keys", F.normalize(rand(6, 4), dim=1))
            self.register_buffer("ptr", torch.zeros(1, dtype=torch.long))

        @torch.no_grad()
        def push(self, keys):
            ptr = int(self.ptr)
            self.keys[ptr : ptr + len(keys)] = keys
            self.ptr[0] = (ptr + len(keys)) % len(self.keys)

    queue = Queue()

    def step(x, y):
        q, k = F.normalize(encoder(x), dim=1), F.normalize(encoder(y), dim=1).detach()
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.keys.clone().detach().T], 1) / 0.07
        loss = F.cross_entropy(logits, torch.zeros(len(x), dtype=torch.long))
        queue.push(k)
        return loss, queue.ptr.clone(), queue.keys.clone()

    return step, [(rand(2, 4, seed=n), rand(2, 4, seed=n + 3)) for n in range(4)]


@program
def vector_quantised():
    class Quantise(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("codes", rand(5, 3))
            self.register_buffer("size", torch.zeros(5))
            self.register_buffer("mean", self.codes.clone())

        def forward(self, x):
            index = torch.cdist(x, self.codes).argmin(-1)
            hot = F.one_hot(index, 5).type_as(x)
            q = hot @ self.codes
            if self.training:
                self.size.mul_(0.9).add_(hot.sum(0), alpha=0.1)
                self.mean.mul_(0.9).add_(hot.T @ x.detach(), alpha=0.1)
                n = self.size.sum()
                size = (self.size + 1e-5) / (n + 5e-5) * n
                self.codes.data.copy_(self.mean / size.unsqueeze(1))
            probs = hot.mean(0)
            return x + (q - x).detach(), F.mse_loss(q.detach(), x), torch.exp(-(probs * (probs + 1e-10).log()).sum())

    layer = Quantise()

    def f(x):
        q, commit, perplexity = layer(x)
        return q, commit, perplexity, layer.codes.clone(), torch.autograd.grad(commit + q.sum(), x)[0]

    return f, [(rand(6, 3, seed=n, grad=True),) for n in range(3)]


@program
def low_rank_adapters():
    class Adapter(nn.Module):
        def __init__(self, base, rank=2):
            super().__init__()
            self.base = base.requires_grad_(False)
            self.a, self.b = (
                nn.Parameter(rand(rank, base.in_features)),
                nn.Parameter(torch.zeros(base.out_features, rank)),
            )
            self.merged = False

        def merge(self):
            self.base.weight.data += self.b @ self.a
            self.merged = True

        def forward(self, x):
            y = self.base(x)
            return y if self.merged else y + x @ self.a.T @ self.b.T

    model = mlp(3, 4, 2)
    for name, child in [*model.named_children()]:
        if isinstance(child, nn.Linear):
            setattr(model, name, Adapter(child))

    def step(x, merge):
        if merge:
            for module in model.modules():
                if isinstance(module, Adapter) and not module.merged:
                    module.merge()
            return model(x)
        model.zero_grad()
        model(x).sum().backward()
        return {n: p.grad for n, p in model.named_parameters() if p.requires_grad}

    return step, [(rand(2, 3), False), (rand(2, 3), False), (rand(2, 3), True), (rand(2, 3), True)]


@program
def quantisation_aware():
    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale, bits):
            top = 2 ** (bits - 1) - 1
            ctx.save_for_backward(x, scale)
            ctx.top = top
            return torch.clamp(torch.round(x / scale), -top - 1, top) * scale

        @staticmethod
        def backward(ctx, g):
            x, scale = ctx.saved_tensors
            inside = (x / scale).abs() <= ctx.top
            return g * inside, (g * ~inside).sum().reshape(scale.shape), None

    class Fake(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer, self.scale = layer, nn.Parameter(torch.tensor(0.1))
            self.observer = torch.ao.quantization.MovingAverageMinMaxObserver() if False else None
            self.register_buffer("seen", torch.tensor(0.0))

        def forward(self, x):
            self.seen = torch.maximum(self.seen, x.detach().abs().max())
            return F.linear(x, Round.apply(self.layer.weight, self.scale, 4), self.layer.bias)

    model = nn.Sequential(Fake(nn.Linear(3, 4)), nn.ReLU(), Fake(nn.Linear(4, 2)))

    def step(x):
        model.zero_grad()
        out = model(x)
        out.square().sum().backward()
        return out.detach(), grads(model), [b.clone() for b in model.buffers()]

    return step, [(rand(2, 3, seed=n),) for n in range(3)]


@program
def normalised_weights():
    model = nn.Sequential(
        parametrizations.spectral_norm(nn.Linear(4, 4)),
        parametrizations.weight_norm(nn.Linear(4, 3)),
        parametrizations.orthogonal(nn.Linear(3, 3)),
    )

    def step(x):
        model.zero_grad()
        with parametrize.cached():
            loss = (model(x) + model(x * 2)).square().mean()
        loss.backward()
        return loss.detach(), grads(model), [b.clone() for b in model.buffers()]

    return step, [(rand(3, 4, seed=n),) for n in range(3)]


@program
def critic_with_penalty():
    critic = mlp(3, 8, 1)

    def penalty(real, fake):
        mix = torch.rand(len(real), 1)
        x = (mix * real + (1 - mix) * fake).requires_grad_(True)
        out = critic(x)
        g = torch.autograd.grad(out, x, torch.ones_like(out), create_graph=True, retain_graph=True, only_inputs=True)[0]
        return ((g.norm(2, dim=1) - 1) ** 2).mean()

    def step(real, fake):
        critic.zero_grad()
        loss = critic(fake).mean() - critic(real).mean() + 10 * penalty(real, fake)
        loss.backward()
        return loss.detach(), grads(critic)

    return step, [(rand(4, 3, seed=n), rand(4, 3, seed=n + 9)) for n in range(2)]


@program
def reversal_of_gradients():
    class Reverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, amount):
            ctx.amount = amount
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return -ctx.amount * g, None

    features, label, domain = mlp(3, 4), mlp(4, 2), mlp(4, 2)

    def step(x, y, d, progress):
        h = features(x)
        amount = 2 / (1 + math.exp(-10 * progress)) - 1
        loss = F.cross_entropy(label(h), y) + F.cross_entropy(domain(Reverse.apply(h, amount)), d)
        features.zero_grad()
        loss.backward()
        return loss.detach(), grads(features)

    y, d = torch.tensor([0, 1]), torch.tensor([1, 0])
    return step, [(rand(2, 3), y, d, p / 4) for p in range(5)]


@program
def mixed_inputs():
    rng = np.random.RandomState(0)

    def f(x, y):
        lam = float(rng.beta(0.4, 0.4))
        order = torch.as_tensor(rng.permutation(len(x)))
        x = lam * x + (1 - lam) * x[order]
        if lam < 0.5:
            h, w = x.shape[-2:]
            r, c = int(rng.randint(h)), int(rng.randint(w))
            x[..., max(r - 1, 0) : r + 1, max(c - 1, 0) : c + 1] = 0
        return x, lam * F.one_hot(y, 3) + (1 - lam) * F.one_hot(y[order], 3)

    return f, [(rand(2, 1, 4, 4, seed=n), torch.tensor([0, 2])) for n in range(4)]


@program
def early_exit():
    blocks, heads = nn.ModuleList(nn.Linear(3, 3) for _ in range(3)), nn.ModuleList(nn.Linear(3, 2) for _ in range(3))

    def f(x, confident):
        for n, (block, head) in enumerate(zip(blocks, heads)):
            x = torch.relu(block(x)) + x
            p = head(x).softmax(-1)
            if p.max() > confident:
                return p, n
        return p, -1

    return f, [(rand(1, 3, seed=n), c) for n in range(3) for c in (0.6, 0.99)]


@program
def evolution_strategy():
    def f(mean, score):
        noise = torch.randn(6, *mean.shape)
        values = torch.stack([score(mean + 0.1 * n) for n in noise])
        ranks = values.argsort().argsort().float() / (len(values) - 1) - 0.5
        return mean + 0.1 * torch.einsum("n,ni->i", ranks, noise), values.max()

    return f, [(rand(3), lambda w: -(w - 1).square().sum())] * 2


@program
def scaled_and_accumulated():
    model = mlp(3, 4, 2)
    opt = torch.optim.AdamW(
        [{"params": [p for n, p in model.named_parameters() if n.endswith("bias")], "weight_decay": 0.0},
         {"params": [p for n, p in model.named_parameters() if not n.endswith("bias")]}],
        lr=1e-2, weight_decay=0.1,
    )  # fmt: skip
    scaler = torch.amp.GradScaler("cpu", enabled=False)

    def epoch(batches, every=2):
        history = collections.defaultdict(list)
        for n, (x, y) in enumerate(batches, 1):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x), y) / every
            scaler.scale(loss).backward()
            history["loss"].append(loss.item())
            if n % every == 0:
                scaler.unscale_(opt)
                history["norm"].append(float(nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
                scaler.step(opt)
                scaler.update()
                opt.zero_grad(set_to_none=True)
        return dict(history), [p.detach().clone() for p in model.parameters()]

    batches = [(rand(4, 3, seed=n), torch.tensor([0, 1, 0, 1])) for n in range(4)]
    return epoch, [(batches,)] * 2


@program
def gated_experts():
    class Experts(nn.Module):
        def __init__(self, n=4, k=2, capacity=3):
            super().__init__()
            self.gate, self.k, self.capacity = nn.Linear(3, n, bias=False), k, capacity
            self.w1, self.w2 = nn.Parameter(rand(n, 3, 4)), nn.Parameter(rand(n, 4, 3, seed=1))

        def forward(self, x):
            n = self.w1.shape[0]
            probs = self.gate(x).softmax(-1)
            weight, index = probs.topk(self.k, -1)
            hot = F.one_hot(index, n)
            place = (hot.flatten(0, 1).cumsum(0) - 1).view_as(hot) * hot
            keep = (place.sum(-1) < self.capacity).float()
            slot = F.one_hot(place.sum(-1).clamp(max=self.capacity - 1), self.capacity)
            dispatch = torch.einsum("tke,tkc,tk->tec", hot.float(), slot.float(), keep)
            combine = torch.einsum("tke,tkc,tk->tec", hot.float(), slot.float(), keep * weight)
            h = torch.einsum("tec,td->ecd", dispatch, x)
            h = torch.bmm(F.gelu(torch.bmm(h, self.w1)), self.w2)
            balance = n * (probs.mean(0) * hot.float().mean((0, 1))).sum()
            return torch.einsum("tec,ecd->td", combine, h), balance

    layer = Experts()

    def step(x):
        y, aux = layer(x)
        layer.zero_grad()
        (y.square().sum() + aux).backward()
        return y.detach(), aux.detach(), grads(layer)

    return step, [(rand(5, 3, seed=n),) for n in range(2)]


@program
def teacher_and_student():
    teacher, student = mlp(3, 8, 4).eval(), mlp(3, 4, 4)
    kept = {}
    teacher[0].register_forward_hook(lambda mod, args, out: kept.__setitem__("teacher", out))
    student[0].register_forward_hook(lambda mod, args, out: kept.__setitem__("student", out))
    project = nn.Linear(4, 8)

    def step(x, temperature):
        with torch.no_grad():
            t = teacher(x)
        s = student(x)
        soft = F.kl_div(F.log_softmax(s / temperature, -1), F.softmax(t / temperature, -1), reduction="batchmean")
        loss = soft * temperature**2 + F.mse_loss(project(kept["student"]), kept["teacher"])
        student.zero_grad()
        loss.backward()
        return loss.detach(), grads(student), sorted(kept)

    return step, [(rand(3, 3), 2.0)] * 2


# --- how programs are put together ------------------------------------------------------------------------------------
class Batch(typing.TypedDict, total=False):
    image: torch.Tensor
    label: torch.Tensor
    weight: float


class Reduction(enum.Enum):
    MEAN = "mean"
    SUM = "sum"

    def __call__(self, x):
        return getattr(x, self.value)()

    @classmethod
    def of(cls, name):
        return next((member for member in cls if member.value == name), cls.MEAN)


@program
def typed_batches_and_enums():
    def f(batch: Batch, reduction):
        kind = Reduction.of(reduction) if isinstance(reduction, str) else reduction
        loss = kind((batch["image"] - batch.get("label", torch.zeros(3))) ** 2) * batch.get("weight", 1.0)
        out: Batch = Batch(image=batch["image"] + 1, weight=2.0)
        return loss, out, kind.name, kind is Reduction.SUM

    x = rand(3)
    return f, [(Batch(image=x), "sum"), (Batch(image=x, label=x + 1, weight=0.5), Reduction.MEAN), ({"image": x}, "?")]


@program
def registries_and_plugins():
    REGISTRY = {}

    def register(name=None, **defaults):
        def wrap(target):
            REGISTRY[name or target.__name__.lower()] = functools.partial(target, **defaults)
            return target

        return wrap

    @register(slope=0.2)
    def leaky(x, slope):
        return torch.where(x > 0, x, slope * x)

    @register("square")
    class Square:
        def __init__(self, power=2):
            self.power = power

        def __call__(self, x):
            return x**self.power

    def build(spec):
        name, options = (
            (spec, {}) if isinstance(spec, str) else (spec["name"], {k: v for k, v in spec.items() if k != "name"})
        )
        if name not in REGISTRY:
            raise KeyError(f"unknown {name!r}; have {', '.join(sorted(REGISTRY))}")
        return REGISTRY[name], options

    def f(x, *specs):
        for spec in specs:
            made, options = build(spec)
            x = made(**options)(x) if isinstance(made.func, type) else made(x, **options)
        return x

    x = rand(3)
    return f, [
        (x, "leaky", "square"),
        (x, {"name": "leaky", "slope": 0.5}, {"name": "square", "power": 3}),
        (x, "none"),
    ]


@program
def decorators_with_state():
    class Counted:
        def __init__(self, function):
            functools.update_wrapper(self, function)
            self.function, self.calls = function, 0

        def __call__(self, *args, **kwargs):
            self.calls += 1
            return self.function(*args, **kwargs)

        def __get__(self, owner, cls=None):
            return self if owner is None else functools.partial(self, owner)

    def retried(times):
        def wrap(function):
            @functools.wraps(function)
            def inner(*args, **kwargs):
                for attempt in range(times):
                    try:
                        return function(*args, attempt=attempt, **kwargs)
                    except ValueError as error:
                        last = error
                raise RuntimeError("gave up") from last

            return inner

        return wrap

    class Model:
        @Counted
        def scale(self, x):
            return x * 2

        @retried(3)
        def fragile(self, x, needed, attempt):
            if attempt < needed:
                raise ValueError(attempt)
            return x + attempt

    model = Model()

    def f(x, needed):
        return model.scale(x) + model.fragile(x, needed), Model.scale.calls, Model.fragile.__name__

    return f, [(rand(2), n) for n in (0, 1, 5, 1)]


@program
def dispatch_on_types():
    @functools.singledispatch
    def to_tensor(value, scale=1):
        raise TypeError(type(value).__name__)

    @to_tensor.register
    def _(value: torch.Tensor, scale=1):
        return value * scale

    @to_tensor.register(list)
    @to_tensor.register(tuple)
    def _(value, scale=1):
        return torch.stack([to_tensor(v, scale) for v in value])

    @to_tensor.register
    def _(value: float, scale=1):
        return torch.full((2,), value * scale)

    class Visitor:
        @functools.singledispatchmethod
        def visit(self, node):
            return ("?", node)

        @visit.register
        def _(self, node: int):
            return ("int", node + 1)

        @visit.register
        def _(self, node: dict):
            return {k: self.visit(v) for k, v in node.items()}

    visitor = Visitor()

    def f(value):
        return to_tensor(value, scale=2), visitor.visit({"a": 1, "b": {"c": "s"}})

    return f, [(rand(2),), ([rand(2), 1.5],), ((rand(2), [rand(2), 0.5][0]),), ("no",)]


@program
def stacks_of_contexts():
    log = []

    @contextlib.contextmanager
    def scope(name, swallow=False):
        log.append(f"+{name}")
        try:
            yield name
        except ZeroDivisionError:
            log.append(f"!{name}")
            if not swallow:
                raise
        finally:
            log.append(f"-{name}")

    def f(x, names, fail):
        log.clear()
        with contextlib.ExitStack() as stack:
            for name in names:
                stack.enter_context(scope(name, swallow=name == "b"))
            stack.callback(log.append, "callback")
            stack.enter_context(torch.no_grad())
            x = x * 2
            if fail:
                1 // 0
            return x, x.requires_grad, list(log)
        return x, list(log)

    return f, [(rand(2, grad=True), ("a", "b"), fail) for fail in (False, True)]


@program
def frozen_records():
    @dataclasses.dataclass(frozen=True)
    class State:
        h: torch.Tensor
        step: int = 0
        tags: tuple = ()

        def next(self, **changes):
            return dataclasses.replace(self, step=self.step + 1, **changes)

        def __post_init__(self):
            object.__setattr__(self, "norm", self.h.norm())

    @dataclasses.dataclass(order=True, slots=True)
    class Item:
        cost: float
        name: str = dataclasses.field(compare=False, default="")

    def f(h):
        state = State(h)
        for n in range(3):
            state = state.next(h=state.h * 0.5 + n, tags=(*state.tags, n))
        best = min(Item(2.0, "b"), Item(1.0, "a"))
        return state.h, state.step, state.tags, state.norm, best.name, dataclasses.asdict(best), Item(1.0) < Item(2.0)

    return f, [(rand(2),)] * 2


@program
def running_metrics():
    class Meter:
        def __init__(self):
            self.reset()

        def reset(self):
            self.sum, self.count, self.history = 0.0, 0, collections.deque(maxlen=2)

        def update(self, value, n=1):
            self.sum += value * n
            self.count += n
            self.history.append(value)

        @property
        def avg(self):
            return self.sum / max(self.count, 1)

        def __format__(self, spec):
            return format(self.avg, spec or ".2f")

    meters = collections.defaultdict(Meter)

    def f(logits, y):
        for k in (1, 2):
            correct = (logits.topk(k, -1).indices == y[:, None]).any(-1).float().mean()
            meters[f"top{k}"].update(correct.item(), len(y))
        confusion = torch.zeros(3, 3, dtype=torch.long)
        confusion.view(-1).scatter_add_(0, y * 3 + logits.argmax(-1), torch.ones_like(y))
        return {k: m.avg for k, m in meters.items()}, [f"{k} {m:.3f}" for k, m in sorted(meters.items())], confusion

    return f, [(rand(4, 3, seed=n), torch.tensor([0, 1, 2, n % 3])) for n in range(4)]


@program
def fluent_pipeline():
    class Pipe:
        def __init__(self, *stages):
            self.stages = stages

        def __or__(self, other):
            return Pipe(*self.stages, *(other.stages if isinstance(other, Pipe) else (other,)))

        def __ror__(self, value):
            for stage in self.stages:
                value = stage(value)
            return value

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return lambda *args, **kwargs: self | (lambda x: getattr(x, name)(*args, **kwargs))

    def f(x):
        return x | (Pipe() | torch.relu).mul(2).sum(-1, keepdim=True) | Pipe(torch.neg)

    return f, [(rand(2, 3),)] * 2


@program
def lazy_and_cached():
    class Table:
        def __init__(self):
            self.made = 0

        @functools.cached_property
        def angles(self):
            self.made += 1
            return torch.outer(torch.arange(4.0), 1.0 / 10 ** torch.arange(2.0))

        @functools.lru_cache(maxsize=None)
        def mask(self, n):
            self.made += 1
            return torch.ones(n, n).tril().bool()

    table = Table()

    def f(x):
        angles = table.angles[: len(x)]
        return x * angles.cos(), x.masked_fill(~table.mask(2)[: len(x)], 0.0), table.made

    return f, [(rand(2, 2),)] * 3
