"""Rows and the sums of their columns in one kernel of a GPU, and other reductions in two steps, run on the stand-in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.codegen import triton_on_torch
from tests.codegen.harness import compare, tensors
from tests.codegen.test_graphs import make, with_gradients
from torch.fx.experimental.proxy_tensor import make_fx

from torchglass import codegen, fuse, lower, schedule
from torchglass.records.check_loops import check_graph
from torchglass.records.kernels import FusedGraph
from torchglass.records.schedule import ScheduledGraph
from torchglass.records.target import Gpu, Targets
from torchglass.records.tuned.fusion import GpuFusion
from torchglass.records.tuned.scheduling import GpuSchedule

Tensor = torch.Tensor
FEW = GpuFusion(split_rows=16, split_least=2, split_row=64, persistent_programs=2)
SMALL = Targets(cpu=Gpu(multiprocessors=4, fusion=FEW, schedule=GpuSchedule(persistent_tile=32)))
"""A GPU on which small tensors are large."""


def fused(fn: Callable[..., Any], args: Sequence[Tensor], targets: Targets = SMALL) -> FusedGraph:
    plain = lambda *a: fn(*a)
    functional = plain if getattr(fn, "trains", False) else torch.func.functionalize(plain)
    graph = fuse.run(lower.run(make_fx(functional, tracing_mode="fake")(*args), targets), targets)
    check_graph(graph.graph)
    return graph


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScheduledGraph]:
    """Print, run on the stand-in, compare with eager."""

    def run(fn: Callable[..., Any], args: Sequence[Tensor], tol: float | None = 2e-5) -> ScheduledGraph:
        scheduled = schedule.run(fused(fn, args), SMALL)
        sources = codegen.run(scheduled, SMALL)
        call = triton_on_torch.loaded(sources, tmp_path, monkeypatch)
        for want, got in zip(tensors(fn(*args)), call(list(args)), strict=True):
            compare(want, got, tol)
        return scheduled

    return run


def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.gelu(F.layer_norm(x, x.shape[-1:], w, b))


def rms_norm(x: Tensor, w: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], w, 1e-6)


def kinds(scheduled: ScheduledGraph) -> list[str]:
    return ["".join(axis.kind[0] for axis in s.mapping.axes) for s in scheduled.schedules]


@pytest.mark.parametrize("dtype, tol", [(torch.float32, 2e-5), (torch.bfloat16, 4e-2)])
@pytest.mark.parametrize("shape", [(48, 20), (4, 16, 24), (64, 32), (6, 8, 5)], ids=str)
def test_a_norm_with_gradients(
    shape: tuple[int, ...], dtype: torch.dtype, tol: float, check: Callable[..., ScheduledGraph]
) -> None:
    """Programs that walk rows with the columns' sums in registers, and a second kernel for both sums of theirs."""
    args = [make(*shape).to(dtype), make(shape[-1]).to(dtype), make(shape[-1], seed=1).to(dtype)]
    made = check(with_gradients(layer_norm), args, tol)
    assert kinds(made) == ["psv", "pv"]
    first = made.schedules[0].kernel
    parts = {b for b in first.writes if "parts" in b}
    assert len(parts) == 2 and {made.buffers[b].dtype for b in parts} == {"float32"}
    check(with_gradients(rms_norm), args[:2], tol)


WIDE = Targets(
    cpu=Gpu(
        multiprocessors=4,
        fusion=replace(FEW, persistent_columns=8, packed_columns=64, packed_numbers=192),
        schedule=GpuSchedule(persistent_tile=32, packed_row=8),
    )
)
"""One for which short rows are wide."""


@pytest.mark.parametrize("columns", [64, 40])
@pytest.mark.parametrize("fn", [layer_norm, lambda x, w, b: rms_norm(x, w) + b], ids=["layer norm", "rms norm"])
def test_wide_rows_of_halves(
    fn: Callable[..., Tensor], columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two passes over a row that is read once, and in the second weights once more; floats are kernels of their own."""
    args = [make(64, columns).bfloat16(), make(columns).bfloat16(), make(columns, seed=1).bfloat16()]
    plain = lambda x, w, b: fn(x, w, b)
    scheduled = schedule.run(fused(with_gradients(plain), args, WIDE), WIDE)
    sources = codegen.run(scheduled, WIDE)
    call = triton_on_torch.loaded(sources, tmp_path, monkeypatch)
    for want, got in zip(tensors(with_gradients(plain)(*args)), call(list(args)), strict=True):
        compare(want, got, 4e-2)
    (made,) = [k for k, s in zip(sources.kernels, scheduled.schedules) if s.mapping.packed]
    assert made.source.count("for start in") == 1 and "= tg_keep(" in made.source
    assert 'eviction_policy="evict_last"' in made.source
    floats = schedule.run(fused(with_gradients(plain), [x.float() for x in args], WIDE), WIDE)
    assert not any(s.mapping.packed for s in floats.schedules)


def test_a_ragged_share_of_rows(check: Callable[..., ScheduledGraph]) -> None:
    """Eleven rows a program, one at a time: no block of several divides them."""
    made = check(with_gradients(layer_norm), [make(88, 12), make(12), make(12, seed=1)])
    walked = made.schedules[0].mapping.axes[1]
    assert (walked.size, walked.block, walked.is_ragged) == (11, 1, False)


def test_sums_of_columns_alone(check: Callable[..., ScheduledGraph]) -> None:
    """In two steps, with what is made on the way; a mean is divided once, after the second."""
    made = check(lambda x: ((x * 2).relu(), x.sum(0), (x * x).mean(0)), [make(64, 24)])
    assert kinds(made) == ["pv", "pv"]


def test_other_reductions_in_two_steps(check: Callable[..., ScheduledGraph]) -> None:
    check(lambda x: (x.sum(), x.amax(), (x > 3).any(), x.mean()), [make(64, 24)])
    check(lambda x: x.amax(1), [make(1, 640)])
    check(lambda x: (x - x.mean((0, 2), True)) * x.var((0, 2), keepdim=True), [make(8, 2, 40)])
    check(lambda i: (i.sum(0), i.amax(0)), [torch.arange(640).view(64, 10)])


def test_rows_with_no_divisor_stay_in_one_step(check: Callable[..., ScheduledGraph]) -> None:
    args = [make(53, 12), make(12), make(12, seed=1)]
    made = check(with_gradients(layer_norm), args)
    assert "s" not in kinds(made)[0]
    why = [d.why for d in made.fused.decisions if d.rule == "split"]
    assert why == ["53 have no divisor by which all multiprocessors could share them"] * 2


@pytest.mark.parametrize(
    "rows, columns, why",
    [
        (512, 1024, "512 are few: what a second kernel reads again is still in cache"),
        (8192, 16384, "16384 columns are enough for all multiprocessors, and too wide to be kept beside their sums"),
        (8192, 8192, None),
        (64 * 197, 768, None),
        (32 * 512, 768, None),
        (200_000, 256, None),
    ],
)
def test_where_it_pays(rows: int, columns: int, why: str | None) -> None:
    args = [torch.empty(rows, columns), torch.empty(columns)]
    graph = fused(with_gradients(rms_norm), args, Targets(cpu=Gpu()))
    refused = [d.why for d in graph.decisions if d.rule == "split"]
    assert refused == ([] if why is None else [why])
    assert ("_parts" in str(graph)) == (why is None)
