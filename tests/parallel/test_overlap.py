"""Sums of buckets begin while the backward goes on."""

import itertools

import pytest
import torch
from tests.parallel import models
from tests.parallel.training import WAYS, data, logged, pair, same_gradients

from torchglass.errors import GraphBreakError


def order(rank, way, settings):
    ours, theirs = pair(lambda: models.Layers(6), way, **settings)
    with logged(ours) as log:
        for step in range(4):
            log.clear()
            for model in (ours, theirs):
                model.zero_grad()
                model(data(rank, step)).sum().backward()
            same_gradients(ours, theirs)
    return log


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("settings", [{}, {"static_graph": True}, {"gradient_as_bucket_view": True}], ids=str)
def test_segments_and_sums_alternate(ranks, way, settings):
    for log in ranks(order, way, settings):
        assert log[:4] == ["segment", "sum 0", "segment", "sum 1"]
        assert log.count("segment") >= 3
        assert [event for event, _ in itertools.groupby(log)] == log


def order_with_first_buckets(rank, way):
    ours, theirs = pair(models.Layers, way, find_unused_parameters=True)
    with logged(ours) as log:
        for model in (ours, theirs):
            model(data(rank, 0)).sum().backward()
        same_gradients(ours, theirs)
    return log


def test_buckets_that_are_never_rebuilt(ranks):
    """With ``find_unused_parameters`` DDP's first buckets stay: the first backward is cut."""
    for log in ranks(order_with_first_buckets, "inside"):
        assert log[:4] == ["segment", "sum 0", "segment", "sum 1"]


def with_fullgraph(rank, way):
    ours, theirs = pair(models.Layers, way, {"fullgraph": True})
    for step in range(3):
        for model in (ours, theirs):
            model.zero_grad()
            model(data(rank, step)).sum().backward()
        same_gradients(ours, theirs)


def refused(rank):
    with pytest.raises(GraphBreakError, match="Logger"):
        with_fullgraph(rank, "around")
    torch.distributed.barrier()


def test_fullgraph(ranks):
    """DDP's own forward is no graph: it calls its reducer."""
    ranks(with_fullgraph, "inside")
    ranks(refused)
