"""What programs do with a backward beside running it once: not at all, twice, in part, in between others."""

import pytest
import torch
from tests.parallel import models
from tests.parallel.training import CAP, chains, data, logged, pair, same_gradients

from torchglass.runtime import chained_backward


def warmed(rank, kind=models.Layers, **settings):
    """A pair whose buckets are rebuilt, and with them the compiled one's segments."""
    ours, theirs = pair(kind, **settings)
    for model in (ours, theirs):
        for step in range(3):
            model(data(rank, step)).sum().backward()
        model.zero_grad()
    return ours, theirs


def two_forwards(rank):
    ours, theirs = warmed(rank)
    for model in (ours, theirs):
        first, second = model(data(rank, 5)), model(data(rank, 6))
        (first.sum() + second.square().sum()).backward()
    same_gradients(ours, theirs)


def test_two_forwards_before_a_backward(ranks):
    ranks(two_forwards)


def accumulating(rank):
    ours, theirs = warmed(rank)
    for model in (ours, theirs):
        with model.no_sync():
            model(data(rank, 5)).sum().backward()
        model(data(rank, 6)).sum().backward()
    same_gradients(ours, theirs)
    with logged(ours) as log, ours.no_sync():
        ours(data(rank, 7)).sum().backward()
    assert log == []  # one node, which is not among the chain's


def test_no_sync(ranks):
    ranks(accumulating)


def from_the_start(rank):
    ours, theirs = pair(models.Layers)
    for step in range(6):
        for model in (ours, theirs):
            with model.no_sync():
                model(data(rank, 2 * step)).sum().backward()
            model(data(rank, 2 * step + 1)).sum().backward()
        same_gradients(ours, theirs)


def test_no_sync_in_every_step(ranks):
    ranks(from_the_start)


def retained(rank):
    ours, theirs = warmed(rank)
    for model in (ours, theirs):
        loss = model(data(rank, 5)).square().sum()
        loss.backward(retain_graph=True)
        loss.backward()
    same_gradients(ours, theirs)


def test_retain_graph(ranks):
    ranks(retained)


def twice(rank):
    said = []
    for model in warmed(rank):
        loss = model(data(rank, 5)).square().sum()
        loss.backward()
        with pytest.raises(RuntimeError) as caught:
            loss.backward()
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_a_second_backward_fails_as_in_eager(ranks):
    ranks(twice)


def differentiable(rank):
    ours, _ = warmed(rank)
    with pytest.raises(RuntimeError, match="first derivative only"):
        ours(data(rank, 5)).square().sum().backward(create_graph=True)


def test_a_differentiable_backward_is_refused(ranks):
    ranks(differentiable)


def some_of_them(rank):
    ours, theirs = warmed(rank)
    found = []
    for model in (ours, theirs):
        parameters = dict(model.module.named_parameters())
        loss = model.module(data(rank, 5)).square().sum()
        wanted = [p for name, p in parameters.items() if "layers.3" in name or "layers.1.bias" in name]
        found.append(torch.autograd.grad(loss, wanted))
    torch.testing.assert_close(*found)


def test_gradients_of_some_parameters(ranks):
    ranks(some_of_them)


def never(rank):
    ours, _ = warmed(rank)
    results = [ours(data(rank, step)) for step in range(3)]
    assert len(chains()) == 3
    del results
    assert not chains()


def test_a_forward_without_a_backward_leaves_nothing(ranks):
    ranks(never)


def failing(rank):
    ours, _ = warmed(rank)
    parameter = dict(ours.named_parameters())["module.layers.1.bias"]

    def fail(gradient):
        raise ValueError("in the middle")

    handle = parameter.register_hook(fail)
    loss = ours(data(rank, 5)).sum()
    with pytest.raises(ValueError, match="in the middle"):
        loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    handle.remove()
    del loss
    assert not chains()  # nor what waited in it


def test_an_error_in_a_hook(ranks):
    ranks(failing)


def failing_segment(rank):
    ours, _ = warmed(rank)
    run, runs = chained_backward.below_autograd, []

    def second_fails(graph, tensors):
        runs.append(graph)
        if len(runs) == 2:
            raise ValueError("a segment")
        return run(graph, tensors)

    loss = ours(data(rank, 5)).sum()
    chained_backward.below_autograd = second_fails
    try:
        with pytest.raises(ValueError, match="a segment"):
            loss.backward()
    finally:
        chained_backward.below_autograd = run
    (chain,) = chains()
    assert not chain.values
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_an_error_in_a_segment_frees_what_waits(ranks):
    ranks(failing_segment)


def triple(p):
    p.grad.mul_(3)


def in_place(rank, kind):
    """Hooks that write to gradients while later segments are to run."""
    ours, theirs = pair(kind, bucket_cap_mb=CAP)
    for model in (ours, theirs):
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(triple)
    for step in range(4):
        for model in (ours, theirs):
            model.zero_grad()
            model(data(rank, step)).sum().backward()
        same_gradients(ours, theirs)


@pytest.mark.parametrize("kind", [models.Layers, models.Added, models.Shared])
def test_hooks_that_write_to_gradients(ranks, kind):
    ranks(in_place, kind)


def evaluating(rank):
    ours, theirs = warmed(rank)
    for model in (ours, theirs):
        model.eval()
    with torch.no_grad():
        torch.testing.assert_close(ours(data(rank, 5)), theirs(data(rank, 5)))
    with logged(ours) as log:
        with torch.no_grad():
            ours(data(rank, 5))
        model.module(data(rank, 5)).sum().backward()  # outside of DDP's forward
    assert log == []


def test_evaluation_and_the_module_alone(ranks):
    ranks(evaluating)
