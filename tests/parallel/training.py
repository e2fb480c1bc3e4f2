"""Steps of training on one rank, of a model that is compiled and of one that is not, side by side."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torchglass as tg
from torchglass import entry_pipeline
from torchglass.compilation.side_pipeline import Backward
from torchglass.runtime import chained_backward

CAP = 0.005  # MB: a layer of 32 by 32 has 4 KB


def inside(model: nn.Module, how: dict[str, Any], **settings: Any) -> Any:
    """``tg.compile(model)`` in DDP."""
    return parallel(tg.compile(model, **how), **settings)


def around(model: nn.Module, how: dict[str, Any], **settings: Any) -> Any:
    """``tg.compile(ddp)``."""
    return tg.compile(parallel(model, **settings), **how)


WAYS = {"inside": inside, "around": around}


def parallel(model: nn.Module, **settings: Any) -> DistributedDataParallel:
    return DistributedDataParallel(model, **{"bucket_cap_mb": CAP, **settings})


def pair(
    make: Callable[[], nn.Module], way: str = "inside", how: dict[str, Any] | None = None, **settings: Any
) -> tuple[Any, DistributedDataParallel]:
    """A model compiled with the options ``how``, and the same under DDP alone."""
    tg.reset()
    torch.manual_seed(0)
    model = make()
    return WAYS[way](copy.deepcopy(model), how or {}, **settings), parallel(model, **settings)


def data(rank: int, step: int, *shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (8, 32)), generator=torch.Generator().manual_seed(100 * step + rank))


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name.removeprefix("_orig_mod."): p.grad for name, p in model.named_parameters()}


def same_gradients(ours: nn.Module, theirs: nn.Module, **tolerance: float) -> None:
    for (name, mine), expected in zip(gradients(ours).items(), gradients(theirs).values(), strict=True):
        torch.testing.assert_close(mine, expected, msg=lambda text, name=name: f"{name}: {text}", **tolerance)


def compare(
    ours: Any, theirs: Any, rank: int, steps: int = 4, loss: Callable[..., Any] | None = None, **tolerance: float
) -> None:
    """Train both alike, and compare each step's gradients."""
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (ours, theirs)]
    for step in range(steps):
        for model, optimizer in zip((ours, theirs), optimizers):
            optimizer.zero_grad()
            x = data(rank, step)
            (model(x).square().mean() if loss is None else loss(model, x)).backward()
        same_gradients(ours, theirs, **tolerance)
        for optimizer in optimizers:
            optimizer.step()


def chains() -> list[Any]:
    """The backwards that wait, or have not been let go."""
    gc.collect()
    return [one for one in gc.get_objects() if type(one) is chained_backward._Chain]


@contextmanager
def logged(ddp: DistributedDataParallel) -> Iterator[list[str]]:
    """What runs in backward, in order: "segment" and "sum 0"."""
    log: list[str] = []
    run = chained_backward.below_autograd

    def segment(graph, tensors):
        log.append("segment")
        return run(graph, tensors)

    def hook(state, bucket):
        log.append(f"sum {bucket.index()}")
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0] / 2)

    ddp.register_comm_hook(None, hook)
    chained_backward.below_autograd = segment
    try:
        yield log
    finally:
        chained_backward.below_autograd = run


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """How often something is captured, and how many backwards or segments are compiled."""
    counts = {"captures": 0, "backwards": 0}
    capture, start = entry_pipeline.capture_run, Backward.start

    def captured(*args):
        counts["captures"] += 1
        return capture(*args)

    def started(side):
        counts["backwards"] += 1
        return start(side)

    entry_pipeline.capture_run, Backward.start = captured, started
    try:
        yield counts
    finally:
        entry_pipeline.capture_run, Backward.start = capture, start
