"""A backward reads what its forward kept as it lies: with the longer rows of a padded product, or copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.codegen import triton_on_torch
from torch.fx.experimental.proxy_tensor import make_fx

from torchglass import autodiff, codegen, fuse, lower, schedule
from torchglass.records.loops import LoopGraph, View
from torchglass.records.target import Gpu, Targets

Tensor = torch.Tensor
SMALL = Targets(
    cpu=replace(
        Gpu(),
        lowering=replace(Gpu().lowering, loop_multiplications=0, padded_operations=1, padded_operations_per_byte=0),
    )
)


def half(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def running(graph: LoopGraph, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    sources = codegen.run(schedule.run(fuse.run(graph, SMALL), SMALL), SMALL)
    folder.mkdir()
    return triton_on_torch.loaded(sources, folder, monkeypatch, graph.name)


def test_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores that only the loss reads are kept with rows of 40, and the backward makes their gradient of them."""

    def loss_of(h: Tensor, weight: Tensor) -> Tensor:
        return (h @ weight.t()).float().square().mean()

    h, weight = half(32, 16).requires_grad_(), half(37, 16, seed=1).requires_grad_()
    partition = autodiff.trace_training(torch.fx.symbolic_trace(loss_of), [h, weight])
    forward = lower.run(partition.forward, SMALL, returned=partition.returned)
    outputs = forward.outputs
    strides = tuple(
        o.strides if s.place.kind == "output" and isinstance(o := outputs[s.place.index], View) else None
        for s in partition.saved
    )
    assert (40, 1) in strides
    assert partition.backward is not None
    backward = lower.run(partition.backward, SMALL, "backward", input_strides=strides)
    assert any("arrives with strides [40, 1]" in note for note in backward.notes)
    run, back = running(forward, tmp_path / "f", monkeypatch), running(backward, tmp_path / "b", monkeypatch)

    given = [t.detach() for t in (h, weight)]
    results = run(list(given))
    saved = [results[s.place.index] if s.place.kind == "output" else given[s.place.index] for s in partition.saved]
    gradients = back([*saved, torch.ones(())])
    loss = loss_of(h, weight)
    torch.testing.assert_close(results[0], loss.detach())
    wanted = torch.autograd.grad(loss, (h, weight))
    for want, got in zip(wanted, [g for g in gradients if g is not None], strict=True):
        assert want.stride() == got.stride()
        torch.testing.assert_close(got, want, rtol=2e-2, atol=1e-3)


def arriving(fn: Any, args: Sequence[Tensor], strides: Sequence[Any], returned: int | None = None) -> LoopGraph:
    graph = make_fx(fn, tracing_mode="fake")(*args)
    return lower.run(graph, SMALL, returned=returned, input_strides=strides)


PROGRAMS = {
    "by rows": (lambda x: x.float().sum(1), (40, 1), False),
    "by rows of several dimensions": (lambda x: x.view(4, 2, 37).exp().amax((0, 2)), (40, 1), False),
    "one after the other": (lambda x: x.view(-1).exp(), (40, 1), True),
    "by a call": (lambda x: torch.sort(x)[0] + 1, (40, 1), True),
    "by both": (lambda x: (torch.cumprod(x.sum(1), 0), torch.sort(x.t())[0], x + 1), (40, 1), True),
    "returned": (lambda x: (x, x.sum(1)), (40, 1), True),
    "by columns": (lambda x: x.exp().sum(1), (1, 8), True),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_readers(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fn, strides, copied = PROGRAMS[name]
    x = half(8, 37)
    graph = arriving(fn, [x], [strides])
    (note,) = [note for note in graph.notes if "arrives" in note]
    assert note.endswith("it is copied") == copied
    other = torch.empty_strided((8, 37), strides, dtype=x.dtype).copy_(x)
    got, wanted = running(graph, tmp_path / "g", monkeypatch)([other]), fn(x)
    for mine, theirs in zip(got, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert mine.stride() == theirs.stride()
        torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=1e-2)


def test_a_kept_result_beside_a_call() -> None:
    """What stays with its strides when loops read longer rows shows the copy that a call needs."""
    graph = arriving(lambda x: (torch.sort(x)[0], x.sum(1), x), [half(8, 37)], [(40, 1)], returned=2)
    assert graph.outputs[2] == View("x_1_rows", (8, 37), (37, 1))


def test_what_lies_as_eagers_does_is_left() -> None:
    assert arriving(lambda x: x.sum(1), [half(8, 37)], [(37, 1)]).notes == ()
    assert arriving(lambda x: x.sum(1), [half(8, 37)], [None]).notes == ()
