"""Training: steps, schedules, clipping, averages, optimizers by hand and of PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from ..shared import mlp
from ..tables import rand, table

PROGRAMS, program = table()


@program
def training_step():
    model = mlp(4, 8, 2)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x, y):
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        return loss.detach(), [p.detach().clone() for p in model.parameters()]

    return step, [(rand(3, 4, seed=n), rand(3, 2, seed=9)) for n in range(4)]


@program
def training_loop_with_scheduler_and_clipping():
    model = mlp(4, 8, 2)
    opt = torch.optim.AdamW(model.parameters(), lr=0.01)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=5)

    def epoch(xs):
        losses = []
        for x in xs:
            opt.zero_grad(set_to_none=True)
            loss = model(x).pow(2).mean()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            losses.append((loss.item(), norm.item()))
        return losses, opt.param_groups[0]["lr"], [p.detach().clone() for p in model.parameters()]

    return epoch, [([rand(3, 4, seed=n), rand(3, 4, seed=n + 1)],) for n in range(3)]


@program
def ema_update():
    model, ema = mlp(4, 3), mlp(4, 3)

    @torch.no_grad()
    def update(decay):
        for p, e in zip(model.parameters(), ema.parameters()):
            e.mul_(decay).add_(p, alpha=1 - decay)
        return [e.clone() for e in ema.parameters()]

    return update, [(0.9,), (0.99,), (0.999,)]


@program
def hand_written_sgd():
    w, b = rand(4, 2, grad=True), rand(2, seed=1, grad=True)

    def step(x, lr):
        loss = ((x @ w + b) ** 2).mean()
        gw, gb = torch.autograd.grad(loss, (w, b))
        with torch.no_grad():
            w.sub_(lr * gw)
            b.sub_(lr * gb)
        return loss.detach(), w.detach().clone()

    return step, [(rand(3, 4, seed=n), 0.1 / (n + 1)) for n in range(4)]


@program
def adam_by_hand():
    state = {"step": 0, "m": torch.zeros(4), "v": torch.zeros(4)}
    p = rand(4, seed=2)

    def step(grad):
        state["step"] += 1
        b1, b2, t = 0.9, 0.999, state["step"]
        state["m"] = b1 * state["m"] + (1 - b1) * grad
        state["v"] = b2 * state["v"] + (1 - b2) * grad * grad
        mhat = state["m"] / (1 - b1**t)
        vhat = state["v"] / (1 - b2**t)
        p.sub_(0.1 * mhat / (vhat.sqrt() + 1e-8))
        return p.clone(), t

    return step, [(rand(4, seed=n),) for n in range(6)]


@program
def gan_step():
    gen, disc = mlp(2, 8, 4), mlp(4, 8, 1)

    def losses(z, real):
        fake = gen(z)
        d_loss = F.softplus(disc(fake.detach())).mean() + F.softplus(-disc(real)).mean()
        g_loss = F.softplus(-disc(fake)).mean()
        return d_loss, g_loss

    return losses, [(rand(3, 2, seed=n), rand(3, 4, seed=n + 5)) for n in range(2)]


@program
def accumulate_gradients():
    model = mlp(4, 2)

    def run(batches, every):
        total = 0.0
        for i, x in enumerate(batches):
            loss = model(x).sum() / every
            loss.backward()
            if (i + 1) % every == 0:
                total += float(sum(p.grad.norm() for p in model.parameters()))
                for p in model.parameters():
                    p.grad = None
        return total

    return run, [([rand(2, 4, seed=n) for n in range(4)], 2)] * 2


@program
def lbfgs():
    def run(x0):
        x = x0.clone().requires_grad_()
        opt = torch.optim.LBFGS([x], max_iter=4)

        def closure():
            opt.zero_grad()
            loss = ((x - 3) ** 2).sum()
            loss.backward()
            return loss

        opt.step(closure)
        return x.detach()

    return run, [(rand(3),), (rand(3, seed=1),)]


@program
def swa_model():
    model = mlp(3, 2)
    swa = torch.optim.swa_utils.AveragedModel(model)

    def run(x):
        with torch.no_grad():
            for p in model.parameters():
                p.add_(0.1)
        swa.update_parameters(model)
        return swa(x), swa.n_averaged.clone()

    return run, [(rand(2, 3),)] * 3


@program
def mixed_precision():
    model = mlp(4, 8, 2)

    def run(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = model(x)
            z = y.float().softmax(-1)
        return y.dtype, y.float(), z

    return run, [(rand(3, 4),), (rand(3, 4, seed=1),)]


@program
def discounted_returns():
    def returns(rewards, gamma):
        out, total = [], torch.zeros(())
        for r in reversed(rewards.unbind()):
            total = r + gamma * total
            out.insert(0, total)
        return torch.stack(out)

    return returns, [(rand(5, seed=n), g) for n, g in enumerate((0.9, 0.99, 0.5))]


@program
def policy_gradient():
    policy = mlp(3, 6, 2)

    def loss(states, actions, returns):
        dist = torch.distributions.Categorical(logits=policy(states))
        logp = dist.log_prob(actions)
        return -(logp * returns).mean() - 0.01 * dist.entropy().mean()

    return loss, [(rand(4, 3, seed=n), torch.tensor([0, 1, 1, 0]), rand(4, seed=n)) for n in range(2)]


@program
def vae():
    enc, dec = nn.Linear(4, 4), nn.Linear(2, 4)

    def f(x):
        mu, logvar = enc(x).chunk(2, dim=-1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        recon = dec(z)
        kld = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum()
        return F.mse_loss(recon, x) + kld

    return f, [(rand(3, 4),), (rand(3, 4, seed=1),)]


@program
def optimizer_step_compiled():
    ps = [rand(3, seed=n, grad=True) for n in range(3)]
    opt = torch.optim.AdamW(ps, lr=0.1)

    def f(scale):
        for p in ps:
            p.grad = p.detach() * scale
        opt.step()
        return [p.detach().clone() for p in ps]

    return f, [(1.0,), (2.0,), (3.0,)]


@program
def clip_grad_value_and_norm():
    net = mlp(3, 2)

    def f(x):
        net(x).sum().backward()
        total = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        torch.nn.utils.clip_grad_value_(net.parameters(), 0.01)
        g = [p.grad.clone() for p in net.parameters()]
        net.zero_grad()
        return total, g, torch.nn.utils.parameters_to_vector(net.parameters()).shape

    return f, [(rand(2, 3),), (rand(2, 3, seed=1),)]


@program
def scheduled_temperature():
    class Sched:
        def __init__(self):
            self.t = 0

        def __call__(self):
            self.t += 1
            return max(0.1, 1.0 * 0.5**self.t)

    s = Sched()
    return lambda x: (x / s()).softmax(-1), [(rand(3),)] * 6
