"""FSDP2: blocks compiled before ``fully_shard`` and a whole model that holds sharded blocks, beside eager's."""

import copy

import pytest
import torch
import torch.distributed.checkpoint as checkpoints
from tests.parallel import models
from tests.parallel.training import counted, data
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import torchglass as tg


def sharded(model, **settings):
    mesh = init_device_mesh("cpu", (2,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, **settings)
    return fully_shard(model, mesh=mesh, **settings)


def by_block(model, **settings):
    for layer in model.layers:
        layer.forward = tg.compile(layer.forward)
    return sharded(model, **settings)


def by_module(model, **settings):
    model.layers = torch.nn.ModuleList(tg.compile(layer) for layer in model.layers)
    return sharded(model, **settings)


def whole(model, **settings):
    return tg.compile(sharded(model, **settings))


WAYS = {"by block": by_block, "by module": by_module, "whole": whole}
MIXED = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
SETTINGS = [{}, {"reshard_after_forward": False}, {"mp_policy": MIXED}]


def pair(way, settings):
    """A model sharded and compiled, one only sharded, and an optimizer of each."""
    tg.reset()
    torch.manual_seed(0)
    model = models.FeedForward()
    found = WAYS[way](copy.deepcopy(model), **settings), sharded(model, **settings)
    return found, [torch.optim.AdamW(m.parameters(), lr=1e-3) for m in found]


def step_of(model, optimizer, rank, step):
    """The loss of a step, and the rank's shards of the gradients."""
    optimizer.zero_grad()
    loss = model(data(rank, step)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach(), [p.grad.to_local().clone() for p in model.parameters()]


def trains(rank, way, settings):
    pairs, captures = pair(way, settings), []
    close = {"rtol": 0.02, "atol": 1e-3} if "mp_policy" in settings else {"rtol": 1e-4, "atol": 1e-6}
    with counted() as counts:
        for step in range(5):
            ours, theirs = (step_of(model, optimizer, rank, step) for model, optimizer in zip(*pairs))
            torch.testing.assert_close(ours, theirs, **close)
            captures.append(counts["captures"])
    return captures


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: ", ".join(settings))
@pytest.mark.parametrize("way", WAYS)
def test_like_eager_without_a_recompile_per_step(ranks, way, settings):
    for captures in ranks(trains, way, settings):
        assert captures[0] > 0
        assert captures == captures[:1] * 5


def kept(rank, way, folder):
    """Trains, saves, trains on; then loads into what it has and into another model, and trains on from there."""
    (ours, theirs), optimizers = pair(way, {})
    for step in range(2):
        step_of(ours, optimizers[0], rank, step)
    model, optimizer = get_state_dict(ours, optimizers[0])
    checkpoints.save({"model": model, "optimizer": optimizer}, checkpoint_id=folder)
    expected = [step_of(ours, optimizers[0], rank, step) for step in (2, 3)]
    with counted() as counts:
        for other, its_optimizer in zip((ours, theirs), optimizers):
            model, optimizer = get_state_dict(other, its_optimizer)
            checkpoints.load({"model": model, "optimizer": optimizer}, checkpoint_id=folder)
            set_state_dict(other, its_optimizer, model_state_dict=model, optim_state_dict=optimizer)
            found = [step_of(other, its_optimizer, rank, step) for step in (2, 3)]
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    return counts["captures"]


@pytest.mark.parametrize("way", WAYS)
def test_checkpoints_are_eagers(ranks, way, tmp_path):
    assert ranks(kept, way, str(tmp_path)) == [0, 0]


def names(rank, way):
    (ours, theirs), _ = pair(way, {})
    values = [m.state_dict() for m in (ours, theirs)]
    full = [{name: value.full_tensor() for name, value in one.items()} for one in values]
    torch.testing.assert_close(*full)
    return list(full[0])


@pytest.mark.parametrize("way", WAYS)
def test_the_state_dict_has_eagers_names(ranks, way):
    for found in ranks(names, way):
        assert found == list(models.FeedForward().state_dict())


def hooked(rank):
    """A hook that is added when all is compiled."""
    pairs, seen = pair("by block", {}), []
    for step in range(3):
        if step == 2:
            for model in pairs[0]:
                model.layers[1].register_forward_hook(lambda module, inputs, result: seen.append(1) or result * 2)
        ours, theirs = (step_of(model, optimizer, rank, step) for model, optimizer in zip(*pairs))
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    return len(seen)


def test_hooks_that_are_added_later(ranks):
    assert ranks(hooked) == [2, 2]
