"""FSDP2: blocks compiled before ``fully_shard`` and a whole model that holds sharded blocks, beside eager's."""

import copy

import pytest
import torch
from tests.parallel import models
from tests.parallel.training import counted, data
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import torchglass as tg


def sharded(model):
    mesh = init_device_mesh("cpu", (2,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def by_block(model):
    for layer in model.layers:
        layer.forward = tg.compile(layer.forward)
    return sharded(model)


def by_module(model):
    model.layers = torch.nn.ModuleList(tg.compile(layer) for layer in model.layers)
    return sharded(model)


def whole(model):
    return tg.compile(sharded(model))


WAYS = {"by block": by_block, "by module": by_module, "whole": whole}


def trains(rank, way):
    tg.reset()
    torch.manual_seed(0)
    model = models.Layers()
    ours, theirs = WAYS[way](copy.deepcopy(model)), sharded(model)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (ours, theirs)]
    captures = []
    with counted() as counts:
        for step in range(6):
            for m, optimizer in zip((ours, theirs), optimizers):
                optimizer.zero_grad()
                m(data(rank, step)).square().mean().backward()
            for mine, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
                torch.testing.assert_close(mine.grad.to_local(), expected.grad.to_local(), rtol=1e-5, atol=1e-6)
            for optimizer in optimizers:
                optimizer.step()
            captures.append(counts["captures"])
    return captures


@pytest.mark.parametrize("way", WAYS)
def test_like_eager_without_a_recompile_per_step(ranks, way):
    for captures in ranks(trains, way):
        assert captures[0] > 0
        assert captures[1:] == captures[1:2] * 5
