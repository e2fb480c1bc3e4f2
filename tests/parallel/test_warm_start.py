"""A process that finds its entries kept cuts their backwards too."""

import os
import shutil

import pytest
import torch
from tests.parallel import models
from tests.parallel.training import counted, data, logged, pair, same_gradients


def trained(rank, folder, kind, steps):
    os.environ["TORCHGLASS_CACHE"] = f"{folder}/{rank}"
    try:
        ours, theirs = pair(kind)
        with counted() as counts, logged(ours) as log:
            for step in range(steps):
                log.clear()
                for model in (ours, theirs):
                    model.zero_grad()
                    model(data(rank, step)).sum().backward()
                same_gradients(ours, theirs)
        return counts["captures"], log
    finally:
        del os.environ["TORCHGLASS_CACHE"]


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("kind", [models.Layers, models.Checkpointed])
def test_kept_backwards_are_cut(ranks, tmp_path, kind, steps):
    for captures, _ in ranks(trained, str(tmp_path), kind, steps):
        assert captures == 1
    for captures, log in ranks(trained, str(tmp_path), kind, 4):
        assert captures == 0
        assert log[:4] == ["segment", "sum 0", "segment", "sum 1"]


def test_a_rank_that_finds_nothing(ranks, tmp_path):
    """unsloth-zoo#967: the rank with a file went past a collective at which the others waited."""
    ranks(trained, str(tmp_path), models.Layers, 4)
    shutil.rmtree(tmp_path / "1")
    found = ranks(trained, str(tmp_path), models.Layers, 4)
    assert [captures for captures, _ in found] == [0, 1]


def forward_alone(rank, folder):
    os.environ["TORCHGLASS_CACHE"] = f"{folder}/{rank}"
    try:
        ours, _ = pair(models.Layers)
        ours(data(rank, 0))
        torch.distributed.barrier()
    finally:
        del os.environ["TORCHGLASS_CACHE"]


def test_of_a_backward_that_no_process_has_compiled(ranks, tmp_path):
    ranks(forward_alone, str(tmp_path))
    for captures, log in ranks(trained, str(tmp_path), models.Layers, 4):
        assert captures == 0
        assert log[:4] == ["segment", "sum 0", "segment", "sum 1"]
