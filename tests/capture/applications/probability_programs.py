"""Flows, policies, densities, chains, filters."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import distributions as D
from torch import nn

from ..tables import rand, table
from .networks import grads, mlp

PROGRAMS, program = table()


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
