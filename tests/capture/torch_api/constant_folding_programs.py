"""Tensors that constants alone make."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from ..tables import rand, table

PROGRAMS, program = table()


@program
def sizes_from_constant_tensors():
    def f(x):
        pad = torch.tensor([1, 2])
        size = (torch.tensor(x.shape) * 2).tolist()
        y = F.pad(x, pad.tolist())
        z = F.interpolate(x[None, None], size=size)
        return y, z, x.repeat(int(torch.arange(3).sum()), 1)

    return f, [(rand(2, 3),), (rand(2, 3, seed=1),)]


@program
def tensor_from_numbers_computed():
    def f(x):
        t = torch.tensor([x.shape[0] / 2, math.sqrt(x.shape[1])])
        u = torch.tensor([[1, 2], [3, x.dim()]], dtype=torch.float64)
        return x.sum() * t, u.sum().item(), torch.as_tensor(3.5) + x

    return f, [(rand(2, 3),)] * 2


@program
def masks_from_constants():
    def f(x):
        mask = torch.ones(3, 3).tril().bool()
        if mask.all():
            x = x * 100
        if mask.any() and bool(mask[0, 0]):
            x = x + 1
        rows = mask.nonzero()
        return x, rows, torch.where(mask)[0].tolist()

    return f, [(rand(3),)] * 2


@program
def large_constant_tables():
    table = {f"k{i}": i for i in range(200)}

    def f(x, key):
        inverse = {v: k for k, v in table.items()}
        return x * table[key], inverse[5], max(table, key=table.get), len(table)

    return f, [(rand(2), "k3"), (rand(2), "k4")]
