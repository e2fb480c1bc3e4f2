"""Methods of training: learning to learn, sharpness, teachers, adapters, quantisation, experts."""

from __future__ import annotations

import collections
import functools
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from ..tables import rand, table
from .networks import grads, mlp

PROGRAMS, program = table()


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
