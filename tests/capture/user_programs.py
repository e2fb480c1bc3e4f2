"""Programs as people write them around models: training loops, sampling, search, data, hooks, schedules, ...

Each entry of ``PROGRAMS`` makes (function, list of argument tuples); what the function returns, prints and leaves behind
is compared with eager.
"""

# ruff: noqa
from __future__ import annotations

import collections, contextlib, copy, dataclasses, enum, functools, io, itertools, json, logging, math, operator
import pathlib, random, re, string, time, types, typing, warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from .tables import rand, table

PROGRAMS, program = table()


Pair = collections.namedtuple("Pair", "a b")


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


# --- training ---------------------------------------------------------------------------------------------------------
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


# --- sampling, search, reinforcement ----------------------------------------------------------------------------------
@program
def greedy_decoding():
    emb, head = nn.Embedding(7, 4), nn.Linear(4, 7)

    def decode(tokens, steps):
        for _ in range(steps):
            h = emb(tokens).mean(1)
            nxt = head(h).argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, nxt], dim=1)
        return tokens

    return decode, [(torch.tensor([[1, 2]]), 3), (torch.tensor([[3, 0]]), 4)]


@program
def decoding_until_end():
    emb, head = nn.Embedding(7, 4), nn.Linear(4, 7)

    def decode(tokens, most):
        count = 0
        while count < most:
            nxt = head(emb(tokens).mean(1)).argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, nxt], dim=1)
            count += 1
            if (nxt == 3).all():
                break
        else:
            count = -count
        return tokens, count

    return decode, [(torch.tensor([[1, 2]]), 3), (torch.tensor([[3, 0]]), 4)]


@program
def beam_search():
    table = rand(5, 5).log_softmax(-1)

    def search(start, width, steps):
        beams = [([start], 0.0)]
        for _ in range(steps):
            candidates = []
            for seq, score in beams:
                scores, ids = table[seq[-1]].topk(width)
                for s, i in zip(scores.tolist(), ids.tolist()):
                    candidates.append((seq + [i], score + s))
            beams = sorted(candidates, key=lambda c: c[1], reverse=True)[:width]
        return [b[0] for b in beams], [round(b[1], 4) for b in beams]

    return search, [(0, 2, 3), (1, 2, 3)]


@program
def top_k_top_p_sampling():
    def sample(logits, k, p, temperature):
        logits = logits / temperature
        kth = logits.topk(k).values[..., -1:]
        logits = logits.masked_fill(logits < kth, float("-inf"))
        s, i = logits.sort(descending=True)
        cum = s.softmax(-1).cumsum(-1)
        drop = cum - s.softmax(-1) > p
        logits = logits.masked_fill(drop.scatter(-1, i, drop), float("-inf"))
        return torch.multinomial(logits.softmax(-1), 1)

    return sample, [(rand(3, 9, seed=n), 4, 0.9, 0.5 + n) for n in range(3)]


@program
def diffusion_sampler():
    model = mlp(5, 8, 4)
    betas = torch.linspace(1e-3, 0.2, 4)
    alphas = torch.cumprod(1 - betas, 0)

    @torch.no_grad()
    def sample(x):
        for t in reversed(range(len(betas))):
            eps = model(torch.cat([x, torch.full((x.shape[0], 1), t / 4)], dim=1))
            x = (x - betas[t] / (1 - alphas[t]).sqrt() * eps) / (1 - betas[t]).sqrt()
            if t > 0:
                x = x + betas[t].sqrt() * torch.randn_like(x)
        return x

    return sample, [(rand(2, 4),), (rand(2, 4, seed=1),)]


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
def vae():
    enc, dec = nn.Linear(4, 4), nn.Linear(2, 4)

    def f(x):
        mu, logvar = enc(x).chunk(2, dim=-1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        recon = dec(z)
        kld = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum()
        return F.mse_loss(recon, x) + kld

    return f, [(rand(3, 4),), (rand(3, 4, seed=1),)]


# --- architectures ----------------------------------------------------------------------------------------------------
class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 3)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        weights, ids = self.gate(x).softmax(-1).topk(2, dim=-1)
        out = torch.zeros_like(x)
        for n, expert in enumerate(self.experts):
            chosen = (ids == n).any(-1)
            w = (weights * (ids == n)).sum(-1, keepdim=True)
            out = out + torch.where(chosen[:, None], expert(x) * w, torch.zeros_like(x))
        return out


@program
def mixture_of_experts():
    return Router(), [(rand(5, 4),), (rand(5, 4, seed=1),)]


class SparseRouter(Router):
    def forward(self, x):
        weights, ids = self.gate(x).softmax(-1).max(-1)
        out = torch.zeros_like(x)
        for n, expert in enumerate(self.experts):
            rows = torch.where(ids == n)[0]
            if rows.numel() == 0:
                continue
            out.index_add_(0, rows, expert(x[rows]) * weights[rows, None])
        return out


@program
def mixture_of_experts_by_rows():
    return SparseRouter(), [(rand(5, 4),), (rand(5, 4, seed=1),)]


@program
def siamese():
    net = mlp(4, 8, 3)

    def f(a, b, same):
        d = F.pairwise_distance(net(a), net(b))
        return (same * d.pow(2) + (1 - same) * F.relu(1.0 - d).pow(2)).mean()

    return f, [(rand(3, 4), rand(3, 4, seed=1), torch.tensor([1.0, 0, 1]))] * 2


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


@program
def transformer_entire():
    net = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)

    def f(src, tgt):
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
        return net(src, tgt, tgt_mask=mask)

    return f, [(rand(2, 3, 8), rand(2, 4, 8, seed=1))] * 2


@program
def attention_in_eval():
    mha = nn.MultiheadAttention(8, 2, batch_first=True).eval()

    def f(x):
        with torch.no_grad():
            return mha(x, x, x)[0], mha(x, x, x, need_weights=False)[0]

    return f, [(rand(2, 3, 8),), (rand(2, 3, 8, seed=1),)]


@program
def encoder_in_eval():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()

    def f(x):
        with torch.no_grad():
            return enc(x)

    return f, [(rand(2, 3, 8),), (rand(2, 3, 8, seed=1),)]


@program
def lstm_packed():
    lstm = nn.LSTM(3, 4, batch_first=True)

    def f(x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, (h, c) = lstm(packed)
        return nn.utils.rnn.pad_packed_sequence(out, batch_first=True)[0], h

    return f, [(rand(2, 4, 3), torch.tensor([4, 2])), (rand(2, 4, 3, seed=1), torch.tensor([3, 4]))]


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
def rotary_embedding():
    @functools.lru_cache(maxsize=None)
    def freqs(dim, n):
        inv = 1.0 / (10000 ** (torch.arange(0, dim, 2).float() / dim))
        t = torch.outer(torch.arange(n).float(), inv)
        return t.cos(), t.sin()

    def f(x):
        cos, sin = freqs(x.shape[-1], x.shape[-2])
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)

    return f, [(rand(2, 3, 4),), (rand(2, 3, 4, seed=1),)]


class Config(typing.NamedTuple):
    hidden: int = 4
    act: str = "gelu"
    layers: tuple = (8, 4)


@dataclasses.dataclass
class ModelConfig:
    hidden: int = 4
    dropout: float = 0.0
    acts: dict = dataclasses.field(default_factory=lambda: {"relu": F.relu, "gelu": F.gelu})

    @property
    def inner(self):
        return self.hidden * 2

    @classmethod
    def from_dict(cls, d):
        known = {f.name for f in dataclasses.fields(cls)}
        return cls(**{k: v for k, v in d.items() if k in known})


@program
def dataclass_config():
    w = rand(4, 8)

    def f(x, d):
        cfg = ModelConfig.from_dict(d)
        y = cfg.acts[d.get("act", "relu")](x @ w[:, : cfg.inner])
        return F.dropout(y, cfg.dropout, training=False), dataclasses.asdict(dataclasses.replace(cfg, acts={}))

    return f, [(rand(2, 4), {"hidden": 4}), (rand(2, 4), {"hidden": 2, "act": "gelu", "zzz": 1})]


# --- hooks ------------------------------------------------------------------------------------------------------------
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


# --- Python around it -------------------------------------------------------------------------------------------------
@program
def progress_wrapper():
    class Progress:
        def __init__(self, it, total=None):
            self.it, self.n, self.total = it, 0, total or len(it)

        def __iter__(self):
            for item in self.it:
                self.n += 1
                yield item

        def __len__(self):
            return self.total

        def set_postfix(self, **kw):
            self.post = {k: round(v, 3) for k, v in kw.items()}

    def f(xs):
        bar = Progress(xs)
        total = 0
        for i, x in enumerate(bar):
            total = total + x
            bar.set_postfix(i=i * 1.0)
        return total, bar.n, len(bar), bar.post

    return f, [([rand(2), rand(2, seed=1)],)] * 2


@program
def logging_and_printing():
    log = logging.getLogger("user")

    def f(x, verbose):
        log.info("shape %s", x.shape)
        y = x * 2
        if verbose:
            print("mean is", round(y.mean().item(), 3), f"{y.shape=}", sep=" | ")
        print("done", end="!\n")
        return y

    return f, [(rand(3), True), (rand(3, seed=1), False), (rand(3, seed=1), True)]


@program
def exit_stack():
    trace = []

    @contextlib.contextmanager
    def tag(name):
        trace.append(f"+{name}")
        try:
            yield name
        finally:
            trace.append(f"-{name}")

    def f(x, names):
        trace.clear()
        with contextlib.ExitStack() as stack:
            for n in names:
                x = x * len(stack.enter_context(tag(n)))
            stack.callback(trace.append, "callback")
            x = x + 1
        return x, list(trace)

    return f, [(rand(3), ["a", "bb"]), (rand(3), ["ccc"])]


@program
def cached_properties():
    class Grid:
        def __init__(self, n):
            self.n = n
            self.made = 0

        @functools.cached_property
        def points(self):
            self.made += 1
            return torch.linspace(0, 1, self.n)

    grid = Grid(4)
    return lambda x: (x * grid.points + grid.points.sum(), grid.made), [(rand(4),), (rand(4, seed=1),), (rand(4),)]


class Mode(enum.Flag):
    NONE = 0
    SCALE = 1
    SHIFT = 2
    BOTH = SCALE | SHIFT


@program
def enum_flags():
    def f(x, mode):
        if Mode.SCALE in mode:
            x = x * 2
        if mode & Mode.SHIFT:
            x = x + 1
        return x, mode == Mode.BOTH, str(mode), bool(mode)

    return f, [(rand(2), m) for m in (Mode.NONE, Mode.SCALE, Mode.BOTH, Mode.SCALE | Mode.SHIFT)]


@program
def regular_expressions():
    pattern = re.compile(r"layer\.(\d+)\.(weight|bias)")

    def f(params, pick):
        out = {}
        for name, p in params.items():
            m = pattern.fullmatch(name)
            if m and int(m.group(1)) in pick:
                out[re.sub(r"\.", "_", name)] = p * int(m[1])
        return out

    params = {f"layer.{i}.{n}": rand(2, seed=i) for i in range(3) for n in ("weight", "bias")}
    return f, [(params, (1, 2)), (params, (0,))]


@program
def json_and_paths():
    def f(x, text):
        cfg = json.loads(text)
        path = pathlib.PurePosixPath("/a") / cfg["name"]
        return x * cfg["scale"], path.suffix, str(path.with_suffix(".pt")), json.dumps(cfg, sort_keys=True)

    return f, [(rand(2), '{"scale": 2, "name": "m.bin"}'), (rand(2), '{"scale": 0.5, "name": "n.bin"}')]


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
def itertools_zoo():
    def f(xs):
        pairs = list(itertools.combinations(xs, 2))
        acc = list(itertools.accumulate(xs, lambda a, b: a * b))
        groups = {k: len(list(g)) for k, g in itertools.groupby([1, 1, 2, 3, 3])}
        z = [a + b for a, b in itertools.zip_longest(xs, xs[:2], fillvalue=torch.zeros(2))]
        c = list(itertools.islice(itertools.cycle(range(3)), 5))
        return [a - b for a, b in pairs], acc, groups, z, c, list(itertools.chain.from_iterable([[1], [2, 3]]))

    return f, [([rand(2, seed=n) for n in range(3)],)] * 2


@program
def deepcopy_module():
    net = mlp(3, 2)

    def f(x):
        twin = copy.deepcopy(net)
        with torch.no_grad():
            for p in twin.parameters():
                p.zero_()
        return net(x), twin(x)

    return f, [(rand(2, 3),), (rand(2, 3, seed=1),)]


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
def complex_numbers():
    def f(x):
        z = torch.complex(x, x * 2)
        w = torch.fft.fft(z) * (1 + 2j)
        return w.real, w.imag, w.abs(), w.conj().angle(), torch.view_as_real(w), torch.fft.ifft(w)

    return f, [(rand(4),), (rand(4, seed=1),)]


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
def einops_like():
    @functools.lru_cache
    def parse(pattern):
        left, right = (side.split() for side in pattern.split("->"))
        return [left.index(r) for r in right]

    def rearrange(x, pattern):
        return x.permute(parse(pattern)).contiguous()

    return lambda x: (rearrange(x, "b c h -> h b c"), rearrange(x, "b c h -> b h c")), [(rand(2, 3, 4),)] * 2


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
def recursive_tree():
    Node = collections.namedtuple("Node", "value left right", defaults=(None, None))
    tree = Node(1, Node(2, Node(3)), Node(4))

    def total(node, x):
        return 0 if node is None else x * node.value + total(node.left, x) + total(node.right, x)

    return lambda x: total(tree, x), [(rand(2),), (rand(2, seed=1),)]


@program
def nested_structures():
    def apply(fn, s):
        if isinstance(s, torch.Tensor):
            return fn(s)
        if isinstance(s, dict):
            return {k: apply(fn, v) for k, v in s.items()}
        if isinstance(s, tuple) and hasattr(s, "_fields"):
            return type(s)(*(apply(fn, v) for v in s))
        if isinstance(s, (list, tuple)):
            return type(s)(apply(fn, v) for v in s)
        return s

    data = {"x": [rand(2), (rand(2, seed=1), 3)], "p": Pair(rand(2, seed=2), None), "s": "text"}
    return lambda s: apply(lambda t: t * 2, s), [(data,), (data,)]


@program
def pytree():
    def f(x):
        tree = {"a": [x, x + 1], "b": (x * 2, {"c": x - 1})}
        leaves, spec = torch.utils._pytree.tree_flatten(tree)
        doubled = torch.utils._pytree.tree_map(lambda t: t * 2, tree)
        return leaves, torch.utils._pytree.tree_unflatten([l + 1 for l in leaves], spec), doubled

    return f, [(rand(2),), (rand(2, seed=1),)]


@program
def exception_flow():
    class Early(Exception):
        def __init__(self, value):
            self.value = value

    def inner(x, n):
        if n > 1:
            raise Early(x * n)
        return x + n

    def f(x, n):
        log = []
        try:
            y = inner(x, n)
        except Early as e:
            y = e.value
            log.append("early")
        else:
            log.append("else")
        finally:
            log.append("finally")
        if n == 3:
            raise ValueError(f"n is {n}") from KeyError("k")
        return y, log

    return f, [(rand(2), n) for n in (0, 2, 3, 0)]


@program
def aliasing_of_results():
    def f(x, box):
        y = x * 2
        box.append(y)
        d = {"y": y, "box": box, "again": [y, y]}
        d["again"][0].add_(1)
        return d, y is d["again"][1], d["box"] is box, box[-1] is y

    return f, [(rand(2), []), (rand(2, seed=1), [1])]


@program
def one_tuple_in_two_places():
    def f(x):
        pair, box = (x * 2, [1]), []
        box.append(pair)
        return pair, {"pair": pair}, (pair, 1), box

    def with_a_break(x):
        results = f(x)
        print("made")
        first, second, third, box = results
        return results, first is second["pair"], first is third[0], first is box[-1]

    return with_a_break, [(rand(2),), (rand(2, seed=1),)]


@program
def in_place_on_views():
    def f(x):
        y = x.clone()
        v = y.view(-1)[::2]
        v.mul_(10)
        y[0] += 1
        y[:, 1] = -1
        w = y.t()
        w[0, 0] = 5
        return y, v, w

    return f, [(rand(3, 2),), (rand(3, 2, seed=1),)]


@program
def inputs_written():
    def f(x, table):
        x.add_(1)
        table["n"] = table.get("n", 0) + 1
        table.setdefault("seen", []).append(x.sum())
        x[0] = 0
        return x, table["n"]

    return f, [(rand(3), {}), (rand(3, seed=1), {"n": 5})]
