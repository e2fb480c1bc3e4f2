"""Results of one graph that are differentiated one after another: what one backward frees, and what is then refused."""

from __future__ import annotations

import pytest
import torch
from autodiff_helpers import tensor
from torch import nn

import torchglass as tg

BACKENDS = ["glass", "aot_eager"]
TWICE = "backward through the graph a second time"


def gan(z, w, v):
    fake = torch.tanh(z @ w)
    return fake, torch.tanh(fake.detach() @ v).sum()


def leaves():
    return tensor(4, 4), tensor(4, 4, seed=1), tensor(4, 4, seed=2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_results_apart_are_differentiated_one_after_another(backend, order):
    def gradients(function):
        given = leaves()
        results = function(*given)
        for index in order:
            results[index].sum().backward()
        for result in results:
            with pytest.raises(RuntimeError, match=TWICE):
                result.sum().backward()
        return [given.grad for given in given]

    for want, got in zip(gradients(gan), gradients(tg.compile(gan, backend=backend, fullgraph=True))):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_gan_trains(backend):
    def train(compiled):
        torch.manual_seed(0)
        g, d = (
            nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3)),
            nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)),
        )

        def function(z):
            fake = g(z)
            return fake, d(fake.detach()).mean()

        call = tg.compile(function, backend=backend, fullgraph=True) if compiled else function
        for step in range(3):
            fake, loss = call(tensor(5, 3, seed=step).detach())
            loss.backward()
            (-d(fake).mean()).backward()
            with torch.no_grad():
                for parameter in (*g.parameters(), *d.parameters()):
                    parameter -= 0.1 * parameter.grad
                    parameter.grad = None
        return [*g.parameters(), *d.parameters()]

    for want, got in zip(train(False), train(True)):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("backend", BACKENDS)
def test_results_that_share_a_node_are_spent_together(backend):
    def function(x, w, v):
        h = torch.tanh(x @ w)
        return h.sum(), (h * v).sum(), (x * v).sum()

    def outcome(call, second):
        results = call(*leaves())
        results[0].backward()
        try:
            results[second].backward()
        except RuntimeError as error:
            return TWICE in str(error)
        return None

    compiled = tg.compile(function, backend=backend, fullgraph=True)
    for second in range(3):
        assert outcome(compiled, second) == outcome(function, second) == (True if second < 2 else None)


def test_what_only_the_first_backward_reads_is_freed():
    """Though a result that was never differentiated is alive, as one that is printed."""
    call = tg.compile(lambda x, w, v: (torch.tanh(torch.tanh(x @ w) @ w).sum(), (v * v).sum()), fullgraph=True)
    loss, shown = call(*leaves())
    loss.backward()
    left = [value for value in shown.grad_fn.saved_tensors if value is not None]
    assert len(left) == 1 and left[0].is_leaf  # v
    shown.backward()
    assert all(value is None for value in loss.grad_fn.saved_tensors)


def test_one_backward_through_all_frees_all():
    fake, loss = tg.compile(gan, fullgraph=True)(*leaves())
    (fake.sum() + loss).backward()
    assert all(value is None for value in fake.grad_fn.saved_tensors)


def test_retaining_spends_nothing():
    given = leaves()
    fake, loss = tg.compile(gan, fullgraph=True)(*given)
    for _ in range(2):
        loss.backward(retain_graph=True)
        fake.sum().backward(retain_graph=True)
    loss.backward()
    fake.sum().backward()
    want = leaves()
    for result in gan(*want):
        result.sum().backward()
    for got, one in zip(given, want):
        assert (got.grad is None) == (one.grad is None)
        if one.grad is not None:
            torch.testing.assert_close(got.grad, 3 * one.grad)
