"""Small networks for the programs of this room, and their gradients."""

# ruff: noqa: RUF007
from __future__ import annotations

from torch import nn


def mlp(*sizes, act=nn.Tanh):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


def grads(model):
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]
