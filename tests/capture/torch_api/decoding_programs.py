"""Sampling and search: greedy, beams, nuclei, diffusion."""

from __future__ import annotations

import torch
from torch import nn

from ..shared import mlp
from ..tables import rand, table

PROGRAMS, program = table()


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
