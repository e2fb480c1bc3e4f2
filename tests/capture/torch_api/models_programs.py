"""Models as people write them: experts, caches, Transformers, packed sequences."""

# ruff: noqa: RUF059, UP033
from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import nn

from ..shared import mlp
from ..tables import rand, table

PROGRAMS, program = table()


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
