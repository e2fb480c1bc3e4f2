"""Normalizations move their running statistics on, also where nobody reads what they return."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchglass as tg

BACKENDS = ("eager", "aot_eager", "glass")


def batch_norm(x, mean, variance):
    F.batch_norm(x, mean, variance, training=True)
    return x + 1


def instance_norm(x, mean, variance):
    F.instance_norm(x[None], mean, variance)
    return x + mean.sum()


def in_evaluation(x, mean, variance):
    F.batch_norm(x, mean, variance)
    return x + mean.sum()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("function", "channels"), [(batch_norm, 3), (instance_norm, 4), (in_evaluation, 3)])
def test_results_that_nobody_reads(function, channels, backend):
    compiled = tg.compile(function, backend=backend, fullgraph=True)
    expected, found = ([torch.zeros(channels), torch.ones(channels)] for _ in range(2))
    for seed in range(2):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(compiled(x, *found), function(x, *expected))
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_pass_that_only_calibrates(backend):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))

        def forward(self, x):
            self.layers(x * 2)
            return self.layers(x)

    torch.manual_seed(0)
    module = Twice()
    other = copy.deepcopy(module)
    compiled = tg.compile(other, backend=backend, fullgraph=True)
    for _ in range(2):
        x = torch.randn(4, 3)
        torch.testing.assert_close(compiled(x), module(x))
        torch.testing.assert_close(dict(other.named_buffers()), dict(module.named_buffers()))
