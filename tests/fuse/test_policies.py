"""What pays on a CPU and on a GPU: the same graph fused for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.codegen.test_graphs import GRAPHS, make, with_gradients
from torch.fx.experimental.proxy_tensor import make_fx

from torchglass import fuse, lower
from torchglass.records.kernels import Allocate, FusedGraph
from torchglass.records.loops import LoopGraph
from torchglass.records.target import Cpu, Gpu, Target, Targets

Tensor = torch.Tensor


def lowered(fn: Callable[..., Any], *args: Tensor) -> LoopGraph:
    plain = lambda *a: fn(*a)
    functional = plain if getattr(fn, "trains", False) else torch.func.functionalize(plain)
    return lower.run(make_fx(functional, tracing_mode="fake")(*args), Targets())


def fused(target: Target, fn: Callable[..., Any], *args: Tensor) -> FusedGraph:
    return fuse.run(lowered(fn, *args), Targets(cpu=target))


def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.gelu(F.layer_norm(x, (96,), w, b))


LAYER_NORM = (with_gradients(layer_norm), make(40, 96), make(96), make(96, seed=1))


def test_a_cpu_adds_up_columns_while_it_walks_rows() -> None:
    (kernel,) = fused(Cpu(), *LAYER_NORM).kernels
    assert {loop.reduced for loop in kernel.loops} == {(False, False), (False, True), (True, False)}


def test_a_gpu_sums_columns_in_a_kernel_of_their_own() -> None:
    """Which reads what the rows' kernel stored, in memory of the normal plan."""
    graph = fused(Gpu(), *LAYER_NORM)
    rows, columns = graph.kernels
    assert (rows.inner, columns.inner) == ((False, True), (True, False))
    assert [loop.reduced for loop in columns.loops] == [(True, False)] * 2
    crossing = set(columns.reads) & set(rows.writes)
    assert crossing and crossing <= {step.buffer for step in graph.steps if isinstance(step, Allocate)}


def test_counters_share_a_launch_on_a_gpu() -> None:
    """What needs inputs alone and has one point; the rest of the graph keeps kernels of its own."""
    counters = [torch.tensor(n) for n in range(5)]
    fn = lambda x, *counts: (x.sin(), *(count + 1 for count in counts), x.sum().sqrt())
    graph = fused(Gpu(), fn, torch.randn(4, 8), *counters)
    assert sorted(len(kernel.loops) for kernel in graph.kernels if not any(kernel.dims)) == [5]
    assert any(d.rule == "horizontal" and d.fused for d in graph.decisions)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_no_kernel_of_a_gpu_has_to_be_split(name: str, gradients: bool) -> None:
    """Whatever a kernel reduces is within a row of it, and no row waits for another."""
    fn, args = GRAPHS[name]
    for kernel in fused(Gpu(), with_gradients(fn) if gradients else fn, *args).kernels:
        assert not kernel.strided and not kernel.horizontal
        for loop in kernel.loops:
            assert not any(r and not i for r, i in zip(loop.reduced, kernel.inner)), kernel
            assert not any(s and not i for s, i in zip(loop.scanned, kernel.inner)), kernel


def test_a_softmax_down_short_columns() -> None:
    """Rows across memory on a CPU, where columns are short; a GPU's programs take columns of any length."""
    softmax = lambda x: x.softmax(0)
    (short,) = fused(Cpu(), softmax, make(64, 256)).kernels
    assert short.strided and len(fused(Cpu(), softmax, make(2048, 256)).kernels) == 3
    (long,) = fused(Gpu(), softmax, make(2048, 256)).kernels
    assert not long.strided and long.inner == (True, False)


def test_kernels_of_one_call_are_for_a_cpu() -> None:
    steps = lambda a, b: (a.exp(), b.sin())
    assert [k.horizontal for k in fused(Cpu(), steps, make(9), make(7)).kernels] == [False, True]
    assert [k.horizontal for k in fused(Gpu(), steps, make(9), make(7)).kernels] == [False, False]


def test_nothing_of_two_devices_is_fused() -> None:
    """Neither a loop with what makes its input, nor one inlined there, nor two kernels in one call."""
    graph = lowered(lambda x, y: ((x * 2)[:3] + 1, y.sin(), y.cos()), make(30), make(9))
    away = {"add", "cos"}
    buffers = {n: replace(b, device="cuda:0" if n in away else "cpu") for n, b in graph.buffers.items()}
    moved = fuse.run(replace(graph, buffers=buffers), Targets(Cpu(), Gpu()))
    why = [d.why for d in moved.decisions if not d.fused]
    assert why == ["they run on cpu and cuda:0"] * 2 and len(moved.kernels) == 4
    assert not any(k.horizontal for k in moved.kernels)
    with pytest.raises(NotImplementedError, match="no code is generated for cuda:0"):
        fuse.run(replace(graph, buffers=buffers), Targets())
