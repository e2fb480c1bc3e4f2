"""Graphs and sets: messages, capsules, transport, boxes, sparse products."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from ..tables import rand, table
from .networks import grads

PROGRAMS, program = table()


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
