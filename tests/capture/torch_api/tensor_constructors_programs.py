"""Tensors made of numbers, lists, tensors and NumPy's scalars and arrays."""

# ruff: noqa: C416
from __future__ import annotations

import numpy as np
import torch

from ..tables import tables

WHOLE, BREAKING, whole, breaking = tables()
ONLY_TENSORS = True  # what they do with numbers says nothing


@whole
def nested_in(x):
    d = {"a": [x, {"b": (x + 1,)}]}
    return nest(d)


def nest(d):
    return d["a"][0] + d["a"][1]["b"][0]


@whole
def np_scalars(x):
    return (
        x * np.float32(2),
        x + np.int64(1),
        np.sqrt(4.0),
        float(np.float64(3)) + x,
        np.prod((2, 3)),
        np.arange(3).tolist(),
        int(np.ceil(2.1)),
        np.pi,
    )


NPF = np.float32(2.5)


@whole
def np_global(x):
    return x * NPF, x * float(NPF)


NPA = np.arange(4, dtype=np.float32)


@breaking
def np_array_const(x):
    return x + torch.from_numpy(NPA), torch.tensor(NPA), torch.as_tensor(NPA)


@whole
def np_linspace(x):
    return (
        x[0, :3] + torch.tensor(np.linspace(0, 1, 3)),
        torch.from_numpy(np.eye(2)),
        [float(v) for v in np.linspace(0, 1, 3)],
    )


@breaking
def tensor_ctor(x):
    return (
        torch.tensor([1.0, 2]),
        torch.tensor(3),
        torch.tensor([[1, x.shape[0]]]),
        torch.as_tensor([1]),
        torch.FloatTensor([1]),
        x.new_zeros(2),
        x.new_tensor([1.0]),
        torch.Tensor(2, 2).fill_(1),
        torch.Tensor([1, 2]),
        torch.full((2,), 3.0),
        torch.zeros_like(x),
        torch.arange(3, dtype=torch.float),
        x.new_full((2,), 1),
        x.new_ones(1),
        torch.empty(0),
        torch.scalar_tensor(2.0),
        torch.BoolTensor([True]),
    )


@whole
def tensor_of_tensors(x):
    return torch.tensor([x.sum() * 0 if False else 1.0]), torch.stack([x, x]), torch.cat((x, x), dim=-1)


@whole
def tensor_list_to_tensor(x):
    return torch.tensor([v for v in [1, 2]], device=x.device, dtype=x.dtype)
