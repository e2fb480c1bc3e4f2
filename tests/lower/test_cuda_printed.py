"""What Triton has no text for stays an ATen call, of that node alone; and what is lowered on a GPU's own tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from torchglass import codegen, fuse, lower, schedule
from torchglass.records.check_loops import DTYPES
from torchglass.records.loops import Buffer, ExternCall, Loop, LoopGraph
from torchglass.records.target import Gpu, Targets
from torchglass.records.triton_support import ATOMIC_SUMS, TYPES, lacking

Tensor = torch.Tensor
GPU = Targets(cpu=Gpu(), cuda=Gpu())
aten = torch.ops.aten


def lowered(fn: Callable[..., Any], *args: Tensor) -> LoopGraph:
    graph = lower.run(make_fx(fn, tracing_mode="fake")(*args), GPU)
    codegen.run(schedule.run(fuse.run(graph, GPU), GPU), GPU)  # all that is left has a text
    return graph


def calls(graph: LoopGraph) -> list[str]:
    return [n.target.removeprefix("torch.ops.aten.") for n in graph.nodes if isinstance(n, ExternCall)]


def test_all_dtypes_of_loops_have_a_name() -> None:
    assert TYPES.keys() == DTYPES and ATOMIC_SUMS <= DTYPES


@pytest.mark.parametrize("dtype", sorted(DTYPES - {"bool"}))
def test_sums_at_computed_places(dtype: str) -> None:
    """Only the node that has no atomic sum stays a call: loops around it do not."""

    def program(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
        return torch.index_add(x + 1, 0, index, source * 2, alpha=2) - 1

    of = getattr(torch, dtype)
    graph = lowered(program, torch.ones(4, 3).to(of), torch.tensor([0, 2, 2]), torch.ones(3, 3).to(of))
    if dtype in ATOMIC_SUMS:
        assert calls(graph) == []
        return
    assert calls(graph) == ["index_add.default"]
    assert f"aten.index_add stays a call (1): no atomic sum of {dtype} in Triton" in graph.notes
    assert sum(isinstance(n, Loop) for n in graph.nodes) == 3
    (scatter,) = [n for n in lower_for_cpu(program, of).nodes if isinstance(n, Loop) and n.is_scatter]
    out = scatter.writes[0]
    assert lacking(scatter, {b: Buffer(b, dtype if b == out else "int64", (), ()) for b in (*scatter.reads, out)})


def test_deterministic_algorithms_are_atens() -> None:
    """PyTorch does in its own calls what ``use_deterministic_algorithms`` asks for: it sorts, or raises."""
    args = torch.ones(4, 3), torch.tensor([0, 2, 2]), torch.ones(3, 3)
    for program in (lambda x, i, s: x.index_add(0, i, s), lambda x, i, s: x.scatter_add(0, i[:, None].expand(3, 3), s)):
        graph = lower.run(make_fx(program, tracing_mode="fake")(*args), Targets(cpu=Gpu(deterministic=True)))
        assert len(calls(graph)) == 1 and calls(lowered(program, *args)) == []


def lower_for_cpu(program: Callable[..., Any], dtype: torch.dtype) -> LoopGraph:
    args = torch.ones(4, 3).to(dtype), torch.tensor([0, 2, 2]), torch.ones(3, 3).to(dtype)
    return lower.run(make_fx(program, tracing_mode="fake")(*args), Targets())


def test_halves_are_added_up_in_float32() -> None:
    x, index = torch.ones(4, 3).bfloat16(), torch.tensor([[0, 2, 2]])
    graph = lowered(lambda x, i: torch.scatter_add(x, 0, i, x), x, index)
    assert calls(graph) == [] and graph.buffers["scatter_add_sum"].dtype == "float32"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_that_eager_orders_are_its_own(dtype: torch.dtype) -> None:
    rows, ids = torch.ones(5, 8, dtype=dtype), torch.tensor([1, 1, 2, 3, 0])
    graph = lowered(lambda g, i: aten.embedding_dense_backward(g * 2, i, 10, -1, False), rows, ids)
    assert calls(graph) == ["embedding_dense_backward.default"]
    assert any("embedding_dense_backward stays a call (1): sums in one order" in note for note in graph.notes)
    table = torch.zeros(10, 8, dtype=dtype)
    graph = lowered(lambda t, i, g: torch.index_put(t, (i,), g, accumulate=True), table, ids, rows)
    assert calls(graph) == ["index_put.default"]
    assert calls(lowered(lambda t, i, g: torch.index_put(t, (i,), g), table, ids, rows)) == []


def test_other_dtypes_are_calls() -> None:
    graph = lowered(lambda x: (x * 2).real + 1, torch.ones(3, dtype=torch.complex64))
    assert any(name.startswith("mul") for name in calls(graph))


def test_random_numbers_are_eagers() -> None:
    """Those of dropout are drawn in kernels: tests/codegen/test_triton_philox.py."""
    graph = lowered(lambda x: torch.bernoulli(x, 0.5) + torch.rand_like(x), torch.ones(8))
    assert {"bernoulli.p", "rand_like.default"} <= set(calls(graph))


def on_gpu(fn: Callable[..., Any], *shapes: tuple[int, ...]) -> LoopGraph:
    with FakeTensorMode():
        args = [torch.empty(shape, device="cuda") for shape in shapes]
    return lowered(fn, *args)


def test_repeated_numbers_on_a_gpu_take_no_memory() -> None:
    graph = on_gpu(lambda x: torch.full_like(x, 2.0) * x + torch.zeros(8, device="cuda"), (8,))
    assert calls(graph) == [] and [n.name for n in graph.nodes] == ["mul", "add"]


def test_repeated_numbers_lie_where_they_are_wanted() -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        ones = torch.ones(4, device="cuda")
        return torch.ones(4), ones, torch.sort(ones)[0] + x, torch.sort(torch.ones(4))[0]

    graph = on_gpu(program, (4,))
    first, second = (graph.buffers[o.buffer] for o in graph.outputs[:2])
    assert (first.device, second.device) == ("cpu", "cuda:0")
    sorts = [n for n in graph.nodes if isinstance(n, ExternCall)]
    assert [graph.buffers[n.args[0].buffer].device for n in sorts] == ["cuda:0", "cpu"]
