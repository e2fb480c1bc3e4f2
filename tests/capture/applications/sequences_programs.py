"""Sequences: decoders, scans, halting, trees, memories."""

from __future__ import annotations

import math
import random

import torch
import torch.nn.functional as F
from torch import nn

from ..tables import rand, table

PROGRAMS, program = table()


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
