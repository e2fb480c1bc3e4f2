"""The fused patterns of ``benchmarks.kernels``: what models spend their time on between matrix products.

    >>> pattern = PATTERNS["softmax"]
    >>> inputs = pattern.inputs(64, 256)          # rows and columns
    >>> pattern.fn(*inputs).shape
    torch.Size([64, 256])

An input is described by a letter: ``x`` rows x columns, ``w`` a row of columns, ``p`` positive rows x columns, ``t``
the transpose of a columns x rows matrix, ``m`` a mask, ``i`` class numbers (one a row), ``v`` positions in a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

SIZES = {"small": (64, 256), "medium": (512, 1024), "large": (4096, 2048)}
TABLE = 1000

Tensor = torch.Tensor
Maker = Callable[[int, int], Tensor]

MAKERS: dict[str, Maker] = {
    "x": lambda r, c: torch.randn(r, c),
    "w": lambda r, c: torch.randn(c) * 0.1 + 1,
    "p": lambda r, c: torch.rand(r, c) + 0.1,
    "t": lambda r, c: torch.randn(c, r).t(),
    "m": lambda r, c: torch.rand(r, c) > 0.3,
    "i": lambda r, c: torch.randint(0, c, (r,)),
    "v": lambda r, c: torch.randint(0, TABLE, (r,)),
    "e": lambda r, c: torch.randn(TABLE, c),
    "h": lambda r, c: torch.randn(r // 16, 8, 16, c // 8),  # batch, heads, tokens, width
    "s": lambda r, c: torch.randn(r // 16, 8, 16, c // 8).transpose(1, 2).contiguous().transpose(1, 2),
    "a": lambda r, c: torch.randn(16, c // 8),  # angles: tokens, width
    "n": lambda r, c: torch.randn(max(r // 64, 1), 16, 2, 2 * c),  # images of 16 channels
    "k": lambda r, c: torch.rand(16) + 0.5,
    "l": lambda r, c: torch.randn(max(r // 64, 1), 16, 2, 2 * c).to(memory_format=torch.channels_last),
    "o": lambda r, c: torch.randint(0, c, (r, c)),
}


@dataclass(frozen=True)
class Pattern:
    """A function and the letters of its inputs. ``trains``: it has a backward worth timing."""

    name: str
    fn: Callable[..., Any]
    letters: str
    trains: bool = True

    def inputs(self, rows: int, columns: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
        torch.manual_seed(0)
        made = [MAKERS[letter](rows, columns) for letter in self.letters]
        return [x.to(dtype) if x.is_floating_point() else x for x in made]


PATTERNS: dict[str, Pattern] = {}


def pattern(letters: str, trains: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function under its own name."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        name = fn.__name__
        if name in PATTERNS or not set(letters) <= set(MAKERS):
            raise KeyError(name)
        PATTERNS[name] = Pattern(name, fn, letters, trains)
        return fn

    return register


# -- rows ------------------------------------------------------------------------------------------------------------
@pattern("x")
def softmax(x: Tensor) -> Tensor:
    return x.softmax(-1)


@pattern("xx")
def masked_softmax(x: Tensor, mask: Tensor) -> Tensor:
    return (x * 0.125 + mask).softmax(-1)


@pattern("x")
def causal_softmax(x: Tensor) -> Tensor:
    mask = torch.ones(x.shape, dtype=torch.bool).tril()
    return x.masked_fill(~mask, -1e9).softmax(-1)


@pattern("x")
def log_softmax(x: Tensor) -> Tensor:
    return F.log_softmax(x, -1)


@pattern("xi")
def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x, target)


@pattern("xi")
def cross_entropy_smooth(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x, target, label_smoothing=0.1)


@pattern("x")
def logsumexp(x: Tensor) -> Tensor:
    return x.logsumexp(-1)


@pattern("xww")
def layernorm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), w, b)


@pattern("xww")
def layernorm_gelu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.gelu(F.layer_norm(x, (x.shape[-1],), w, b))


@pattern("xxww")
def add_layernorm(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x + y, (x.shape[-1],), w, b)


@pattern("xwxww")
def bias_add_layernorm(x: Tensor, bias: Tensor, residual: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x + bias + residual, (x.shape[-1],), w, b)


@pattern("xxw")
def rmsnorm_residual(x: Tensor, residual: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    h = x + residual
    y = h.float() * torch.rsqrt(h.float().pow(2).mean(-1, keepdim=True) + 1e-6)
    return y.to(x.dtype) * w, h


@pattern("xxmww")
def dropout_add_norm(x: Tensor, residual: Tensor, keep: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x * keep * (1 / 0.7) + residual, (x.shape[-1],), w, b)


@pattern("x")
def l2_normalize(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1)


@pattern("xx")
def cosine_similarity(x: Tensor, y: Tensor) -> Tensor:
    return F.cosine_similarity(x, y, dim=-1)


@pattern("xww")
def group_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.group_norm(x, 8, w, b)


@pattern("x")
def variance(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.var_mean(x, dim=-1)


# -- one element at a time -------------------------------------------------------------------------------------------
@pattern("xw")
def bias_gelu(x: Tensor, b: Tensor) -> Tensor:
    return F.gelu(x + b)


@pattern("xw")
def bias_gelu_tanh(x: Tensor, b: Tensor) -> Tensor:
    return F.gelu(x + b, approximate="tanh")


@pattern("xx")
def swiglu(x: Tensor, y: Tensor) -> Tensor:
    return F.silu(x) * y


@pattern("x")
def swiglu_halves(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


@pattern("xx")
def geglu(x: Tensor, y: Tensor) -> Tensor:
    return F.gelu(x) * y


@pattern("xw")
def bias_relu(x: Tensor, b: Tensor) -> Tensor:
    return F.relu(x + b)


@pattern("xxx")
def gated_residual(x: Tensor, y: Tensor, g: Tensor) -> Tensor:
    s = torch.sigmoid(g)
    return s * x + (1 - s) * y


@pattern("x")
def mish(x: Tensor) -> Tensor:
    return F.mish(x)


@pattern("xx")
def transcendental_chain(a: Tensor, b: Tensor) -> Tensor:
    x = torch.sin(a) * torch.exp(-b * b) + torch.tanh(a * 0.5)
    return torch.where(x > 0, x.abs().sqrt(), x * 0.1) + torch.log1p(b.abs())


@pattern("xx")
def sin_cos(a: Tensor, b: Tensor) -> Tensor:
    return torch.sin(a) * torch.cos(b)


@pattern("xx")
def mse_loss(x: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(x, y)


@pattern("xx")
def smooth_l1(x: Tensor, y: Tensor) -> Tensor:
    return F.smooth_l1_loss(x, y)


@pattern("xp")
def bce_with_logits(x: Tensor, y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(x, y.clamp(max=1))


@pattern("xx")
def kl_div(x: Tensor, y: Tensor) -> Tensor:
    return F.kl_div(F.log_softmax(x, -1), y.softmax(-1), reduction="batchmean")


# -- layouts ---------------------------------------------------------------------------------------------------------
@pattern("xt")
def transposed_add(x: Tensor, t: Tensor) -> Tensor:
    return x + t


@pattern("xt")
def transposed_gelu_copy(x: Tensor, t: Tensor) -> Tensor:
    return F.gelu(t).contiguous() * x


@pattern("ha")
def rotary(x: Tensor, angle: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * angle.cos() + turned * angle.sin()


@pattern("ssaa")
def rotary_heads(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    def turn(x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        return torch.cat((-x[..., half:], x[..., :half]), dim=-1)

    return q * cos + turn(q) * sin, k * cos + turn(k) * sin


@pattern("s")
def merge_heads(x: Tensor) -> Tensor:
    b, h, n, d = x.shape
    return (x * (1 / math.sqrt(d))).transpose(1, 2).reshape(b, n, h * d)


@pattern("xx")
def cat_activation(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat((F.relu(x), F.silu(y)), dim=-1)


@pattern("x")
def pad_shift(x: Tensor) -> Tensor:
    return F.pad(x, (1, 0))[:, :-1] * 0.5 + x


# -- down columns ----------------------------------------------------------------------------------------------------
@pattern("xx")
def bias_gradient(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    g = x * y
    return g, g.sum(0)


@pattern("x")
def softmax_columns(x: Tensor) -> Tensor:
    return x.softmax(0)


@pattern("x")
def standardize_columns(x: Tensor) -> Tensor:
    return (x - x.mean(0)) / (x.std(0) + 1e-5)


@pattern("nkkkk", trains=False)  # running statistics have no gradient
def batchnorm_relu(x: Tensor, mean: Tensor, var: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.relu(F.batch_norm(x, mean, var, w, b, training=False))


@pattern("nkk")
def batchnorm_train_relu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.relu(F.batch_norm(x, None, None, w, b, training=True))


@pattern("lkk")
def batchnorm_channels_last(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.relu(F.batch_norm(x, None, None, w, b, training=True))


@pattern("n")
def max_pool_relu(x: Tensor) -> Tensor:
    return F.max_pool2d(F.relu(x), 2)


@pattern("n")
def avg_pool(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, 2) * 2


@pattern("n")
def upsample_nearest_add(x: Tensor) -> Tensor:
    return F.interpolate(F.relu(x), scale_factor=2.0, mode="nearest")


# -- indices ---------------------------------------------------------------------------------------------------------
@pattern("evw")
def embedding_norm(table: Tensor, ids: Tensor, w: Tensor) -> Tensor:
    return F.layer_norm(F.embedding(ids, table), (table.shape[-1],), w)


@pattern("evx")
def embedding_add(table: Tensor, ids: Tensor, position: Tensor) -> Tensor:
    return F.embedding(ids, table) + position


@pattern("ev")
def embedding_bag(table: Tensor, ids: Tensor) -> Tensor:
    return F.embedding(ids.view(-1, 4), table).sum(1)


@pattern("xo")
def gather_scale(x: Tensor, index: Tensor) -> Tensor:
    return x.gather(1, index) * 2


@pattern("xi")
def one_hot_pick(x: Tensor, target: Tensor) -> Tensor:
    return (x * F.one_hot(target, x.shape[-1])).sum(-1)


@pattern("x")
def cumulative(x: Tensor) -> Tensor:
    return torch.cumsum(x, -1) * 0.5


@pattern("x", trains=False)
def argmax_rows(x: Tensor) -> Tensor:
    return (x * 2).argmax(-1)


# -- optimizers and updates ------------------------------------------------------------------------------------------
@pattern("xxxp", trains=False)
def adam_step(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    m = m * 0.9 + g * 0.1
    v = v * 0.999 + g * g * 0.001
    return p - 1e-3 * (m / 0.5) / ((v / 0.3).sqrt() + 1e-8), m, v


@pattern("xxx", trains=False)
def sgd_momentum(p: Tensor, g: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    g = g + 0.01 * p
    m = 0.9 * m + g
    return p - 0.1 * m, m


@pattern("xx", trains=False)
def ema_and_norm(p: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
    return torch.lerp(e, p, 0.01), (p * p).sum().sqrt()
