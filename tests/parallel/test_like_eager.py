"""Gradients under DDP are eager's, step after step, for models of many kinds."""

import pytest
import torch
from tests.parallel import models
from tests.parallel.training import WAYS, compare, counted, data, logged, pair, same_gradients

KINDS = [
    models.Layers,
    models.Shared,
    models.Added,
    models.Breaking,
    models.Normed,
    models.Checkpointed,
]


def trains(rank, kind, settings):
    for way in WAYS:
        ours, theirs = pair(kind, way, **settings)
        compare(ours, theirs, rank, rtol=1e-5, atol=1e-6)
        for (name, mine), expected in zip(ours.named_buffers(), theirs.buffers(), strict=True):
            torch.testing.assert_close(mine, expected, msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_models(ranks, kind):
    ranks(trains, kind, {})


@pytest.mark.parametrize(
    "settings",
    [
        {"static_graph": True},
        {"find_unused_parameters": True},
        {"gradient_as_bucket_view": True},
        {"bucket_cap_mb": 25},
    ],
    ids=str,
)
def test_settings(ranks, settings):
    ranks(trains, models.Layers, settings)
    ranks(trains, models.Shared, settings)


def bitwise(rank, kind):
    ours, theirs = pair(kind, how={"backend": "aot_eager"})
    compare(ours, theirs, rank, rtol=0, atol=0)


@pytest.mark.parametrize("kind", [models.Layers, models.Shared, models.Added, models.Normed, models.Checkpointed])
def test_with_eagers_kernels_bitwise(ranks, kind):
    ranks(bitwise, kind)


def two_hundred_steps(rank):
    ours, theirs = pair(models.Layers)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9) for model in (ours, theirs)]
    losses = [[], []]
    for step in range(200):
        for model, optimizer, seen in zip((ours, theirs), optimizers, losses):
            optimizer.zero_grad()
            loss = (model(data(rank, step)) - 0.5).square().mean()
            loss.backward()
            optimizer.step()
            seen.append(loss.detach())
    return [torch.stack(seen) for seen in losses]


def test_200_steps(ranks):
    for ours, theirs in ranks(two_hundred_steps):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
        assert ours[-1] < ours[0] / 1.5


def counts_of(rank, way, kind):
    ours, _ = pair(kind, way)
    seen = []
    with counted() as counts:
        for step in range(7):
            ours(data(rank, step)).sum().backward()
            seen.append(dict(counts))
    return seen


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [models.Layers, models.Breaking])
def test_a_rebuild_compiles_backwards_alone_and_once(ranks, way, kind):
    for seen in ranks(counts_of, way, kind):
        captures = [counts["captures"] for counts in seen]
        assert captures == captures[:1] * 7
        backwards = [counts["backwards"] for counts in seen]
        assert backwards[0] == backwards[1] < backwards[2] == backwards[-1]


def with_unused(rank):
    ours, theirs = pair(models.Unused, find_unused_parameters=True)
    compare(ours, theirs, rank, steps=5, loss=lambda model, x: model(x, rank == 0).square().mean())


def test_parameters_that_one_rank_does_not_use(ranks):
    ranks(with_unused)


def of_lengths(rank):
    ours, theirs = pair(models.Layers)
    with counted() as counts:
        for step, rows in enumerate((8, 8, 12, 12, 9, 31, 64)):
            for model in (ours, theirs):
                model.zero_grad()
                model(data(rank, step, rows, 32)).square().mean().backward()
            same_gradients(ours, theirs)
    return counts["captures"]


def test_lengths_that_change(ranks):
    assert ranks(of_lengths) == [2, 2]


def under_autocast(rank):
    ours, theirs = pair(models.Layers)

    def loss(model, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x).float().square().mean()

    compare(ours, theirs, rank, loss=loss, rtol=0.05, atol=1e-3)


def test_autocast(ranks):
    ranks(under_autocast)


def two_results(rank):
    ours, theirs = pair(models.Pair)
    for pick in (slice(None), slice(1), slice(None), slice(1)):
        for model in (ours, theirs):
            model.zero_grad()
            sum(y.square().mean() for y in model(data(rank, 0))[pick]).backward()
        same_gradients(ours, theirs)


def test_results_that_the_loss_does_not_use(ranks):
    ranks(two_results)


def inputs_gradient(rank):
    ours, theirs = pair(models.Layers)
    for step in range(4):
        found = []
        for model in (ours, theirs):
            x = data(rank, step).requires_grad_()
            model(x).sum().backward()
            found.append(x.grad)
        torch.testing.assert_close(*found)
    return True


def test_the_inputs_gradient(ranks):
    ranks(inputs_gradient)


def overlap_of(rank, kind):
    ours, _ = pair(kind)
    with logged(ours) as log:
        for step in range(4):
            log.clear()
            ours(data(rank, step)).sum().backward()
    return log


@pytest.mark.parametrize("kind", [models.Breaking, models.Checkpointed, models.Normed])
def test_these_overlap_too(ranks, kind):
    for log in ranks(overlap_of, kind):
        first, last = log.index("sum 0"), len(log) - 1 - log[::-1].index("segment")
        assert first < last


def of_batches(rank):
    """Sizes open in two dimensions, which not every segment reads of what it is given."""
    ours, theirs = pair(lambda: models.Layers(6), how={"dynamic": True})
    with counted() as counts, logged(ours) as log:
        for step, shape in enumerate(((2, 8, 32), (3, 5, 32), (4, 7, 32), (2, 9, 32))):
            log.clear()
            for model in (ours, theirs):
                model.zero_grad()
                model(data(rank, step, *shape)).square().mean().backward()
            same_gradients(ours, theirs)
    return counts["captures"], log


def test_sizes_that_are_open_from_the_start(ranks):
    for captures, log in ranks(of_batches):
        assert captures == 1
        assert log[:4] == ["segment", "sum 0", "segment", "sum 1"]
