"""Convolutional nets with batch norm under DDP: gradients and buffers are eager's, and sums overlap the backward."""

import functools
import itertools

import pytest
import torch
from tests.parallel import models
from tests.parallel.sync_batch_norm import SyncBatchNorm
from tests.parallel.training import WAYS, counted, data, logged, pair, same_gradients

KEPT_APART = {"broadcast_buffers": False}
CASES = [
    ("inside", torch.nn.BatchNorm2d, {}),
    ("inside", torch.nn.BatchNorm2d, KEPT_APART),
    ("inside", SyncBatchNorm, {}),
    ("around", torch.nn.BatchNorm2d, {}),
    ("around", torch.nn.BatchNorm2d, KEPT_APART),
    ("around", SyncBatchNorm, {"static_graph": True}),
]


def trained(rank, way, norm, settings):
    """What ran in the last backward, and the captures after each step."""
    ours, theirs = pair(functools.partial(models.Residual, norm), way, **settings)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (ours, theirs)]
    captures = []
    with counted() as counts, logged(ours) as log:
        for step in range(5):
            log.clear()
            for model, optimizer in zip((ours, theirs), optimizers):
                optimizer.zero_grad()
                model(data(rank, step, 4, 3, 12, 12)).square().mean().backward()
            same_gradients(ours, theirs, rtol=1e-4, atol=1e-5)
            for (name, mine), expected in zip(ours.named_buffers(), theirs.buffers(), strict=True):
                torch.testing.assert_close(mine, expected, msg=name)
            for optimizer in optimizers:
                optimizer.step()
            captures.append(counts["captures"])
    return log, captures


@pytest.mark.parametrize(("way", "norm", "settings"), CASES, ids=str)
def test_like_eager_and_cut(ranks, way, norm, settings):
    for log, captures in ranks(trained, way, norm, settings):
        sums = [event for event in log if event != "segment"]
        assert sums == [f"sum {bucket}" for bucket in range(len(sums))] and len(sums) > 2
        for before, after in itertools.pairwise(sums):
            assert "segment" in log[log.index(before) : log.index(after)]
        assert captures == captures[:1] * 5


def evaluated(rank, way):
    ours, theirs = pair(models.Residual, way)
    for mode in (True, True, True, False, True):
        results = []
        for model in (ours, theirs):
            model.train(mode)
            with torch.set_grad_enabled(mode):
                results.append(model(data(rank, 0, 4, 3, 12, 12)))
            if mode:
                results[-1].sum().backward()
        torch.testing.assert_close(*results)


@pytest.mark.parametrize("way", WAYS)
def test_evaluation_between_steps(ranks, way):
    ranks(evaluated, way)
