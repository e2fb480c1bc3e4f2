"""What programs of several files use."""

# ruff: noqa: RUF007
from __future__ import annotations

import functools

from torch import nn


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def says(function, *args):
    """What calling the function gives, or the words of what it raises."""
    try:
        return function(*args)
    except Exception as error:
        return type(error).__name__, str(error)


class Thing:
    def __init__(self, v=1):
        self.v = v


THING = Thing(3)


def deco(f):
    @functools.wraps(f)
    def g(*a, **k):
        return f(*a, **k) + 1

    return g


LIN = nn.Linear(4, 4)
LIN.requires_grad_(False)
LING = nn.Linear(4, 4)
