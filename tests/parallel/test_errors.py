"""What goes wrong between ranks or amid a chain goes wrong as in eager, and within the group's time-out."""

import os
import re
import signal
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from tests.parallel import models
from tests.parallel.ranks import DIED, Ranks
from tests.parallel.training import around, chains, data, inside, pair, parallel, same_gradients

from torchglass.runtime import chained_backward

TIMEOUT = 2.0


def warmed_in(rank, group, **settings):
    ours, theirs = pair(models.Layers, process_group=group, **settings)
    for step in range(3):
        for model in (ours, theirs):
            model(data(rank, step)).sum().backward()
    return ours, theirs


def short_group():
    return dist.new_group(timeout=timedelta(seconds=TIMEOUT))


# --- ranks that are not alike -----------------------------------------------------------------------------------------
def plain(model, how, **settings):
    return parallel(model, **settings)


DIFFERENT = {
    "one is not compiled": ((inside, models.Layers), (plain, models.Layers)),
    "inside and around": ((inside, models.Layers), (around, models.Layers)),
    "one breaks its graph": ((inside, models.Layers), (inside, models.Breaking)),
}


def unlike(rank, name):
    make, kind = DIFFERENT[name][rank]
    _, theirs = pair(models.Layers)
    torch.manual_seed(0)
    ours = make(kind(), {})
    for step in range(4):
        for model in (ours, theirs):
            model.zero_grad()
            model(data(rank, step)).square().mean().backward()
        same_gradients(ours, theirs)


@pytest.mark.parametrize("name", DIFFERENT)
def test_ranks_compile_each_for_itself(ranks, name):
    ranks(unlike, name)


def one_that_cannot_cut(rank):
    ours, theirs = pair(models.Layers)
    wanted = chained_backward.MOST_CUTS
    chained_backward.MOST_CUTS = wanted if rank == 0 else 0
    try:
        for step in range(4):
            for model in (ours, theirs):
                model.zero_grad()
                model(data(rank, step)).square().mean().backward()
            same_gradients(ours, theirs)
    finally:
        chained_backward.MOST_CUTS = wanted


def test_one_rank_has_one_node(ranks):
    ranks(one_that_cannot_cut)


# --- ranks that do not come -------------------------------------------------------------------------------------------
def skipped(rank):
    """What the first rank is told where the second leaves a backward out, ours and eager's, and after how long."""
    told = []
    for model in warmed_in(rank, short_group()):
        loss = model(data(rank, 5)).sum()
        if rank == 0:
            begin = time.perf_counter()
            with pytest.raises(RuntimeError) as caught:
                loss.backward()
            told.append((str(caught.value), time.perf_counter() - begin))
        del loss
        dist.barrier()
    assert not chains()
    return told


def test_a_rank_that_skips_a_backward(ranks):
    (ours, theirs), _ = ranks(skipped)
    assert all(re.search("time.?out|timed out", text, re.IGNORECASE) for text, _ in (ours, theirs))
    assert max(ours[1], theirs[1]) < 3 * TIMEOUT


def killed(rank, which):
    model = warmed_in(rank, None)[which]

    def hook(state, bucket):
        if rank == 1 and bucket.index() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0])

    model.register_comm_hook(None, hook)
    begin = time.perf_counter()
    with pytest.raises(RuntimeError) as caught:
        model(data(rank, 5)).sum().backward()
    return str(caught.value), time.perf_counter() - begin


def test_a_rank_that_dies_in_its_backward():
    for which in (0, 1):
        ranks = Ranks(timeout=20, may_die=True)
        try:
            (text, seconds), died = ranks(killed, which)
        finally:
            ranks.stop()
        assert died is DIED
        assert "Connection" in text and seconds < 20


# --- hooks that fail --------------------------------------------------------------------------------------------------
def raises(bucket):
    raise ValueError("a hook")


def future_with_an_error(bucket):
    future = torch.futures.Future()
    threading.Timer(0.05, lambda: future.set_exception(ValueError("a sum"))).start()
    return future


FAILING = {"the hook": raises, "its Future": future_with_an_error}


def failing(rank, name):
    told = []
    for model in warmed_in(rank, None):

        def hook(state, bucket):
            if bucket.index() == 1:
                return FAILING[name](bucket)
            return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0] / 2)

        model.register_comm_hook(None, hook)
        with pytest.raises(Exception) as caught:
            model(data(rank, 5)).sum().backward()
        with pytest.raises(RuntimeError) as after:
            model(data(rank, 6)).sum().backward()
        told.append((type(caught.value).__name__, str(caught.value).splitlines()[0], str(after.value)[:60]))
    del model
    assert not chains()
    return told


@pytest.mark.parametrize("name", FAILING)
def test_a_communication_hook_that_fails(ranks, name):
    for ours, theirs in ranks(failing, name):
        assert ours == theirs
