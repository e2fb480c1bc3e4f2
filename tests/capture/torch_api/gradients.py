"""Runs a function eagerly and compiled, with gradients, and compares everything."""

from __future__ import annotations

import copy

import pytest
import torch

import torchglass as tg

BACKENDS = ("eager", "aot_eager", "glass")
backends = pytest.mark.parametrize("backend", BACKENDS)


def make_input(requires_grad=True):
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).requires_grad_(requires_grad)


def run(function, module=None, requires_grad=True):
    """Results, the gradients of the input and of the module's parameters."""
    torch.manual_seed(1)
    x = make_input(requires_grad)
    results = function(x) if module is None else function(module, x)
    flat = results if isinstance(results, tuple) else (results,)
    loss = sum((r * torch.arange(1.0, r.numel() + 1).view(r.shape)).sum() for r in flat if r.requires_grad)
    if isinstance(loss, torch.Tensor):
        loss.backward()
    facts = [(r.requires_grad, r.dtype, r.shape) for r in flat]
    parameters = [p.grad for p in module.parameters()] if module is not None else []
    return [r.detach() for r in flat], [x.grad, *parameters], facts


def assert_as_eager(function, backend, module=None, requires_grad=True, whole=True):
    """``function(x)``, or ``function(module, x)``: results, gradients and requires_grad as in eager, twice."""
    expected = run(function, copy.deepcopy(module), requires_grad)
    compiled = tg.compile(function, backend=backend, fullgraph=whole)
    kept = copy.deepcopy(module)
    for _ in range(2):
        if kept is not None:
            kept.zero_grad()
        found = run(compiled, kept, requires_grad)
        assert found[2] == expected[2]
        for a, b in zip([*found[0], *found[1]], [*expected[0], *expected[1]]):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b)
    if whole:
        assert len(tg.explain(compiled).entries) == 1
    return compiled
