"""Small matrix products as loops on a GPU: which ones, and that they come to the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.codegen import triton_on_torch
from tests.codegen.harness import compare, tensors
from torch.fx.experimental.proxy_tensor import make_fx

from torchglass import codegen, fuse, lower, schedule
from torchglass.records.loops import ExternCall, LoopGraph
from torchglass.records.target import Gpu, Targets

GPU = Targets(cpu=Gpu())


def make(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)


def lowered(fn: Callable[..., Any], *args: torch.Tensor) -> LoopGraph:
    return lower.run(make_fx(fn, tracing_mode="fake")(*args), GPU)


def calls(graph: LoopGraph) -> list[str]:
    return [node.target for node in graph.nodes if isinstance(node, ExternCall)]


CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "mm": (torch.mm, ((5, 7), (7, 3))),
    "of a transposed matrix": (lambda a, b: a.t() @ b, ((7, 5), (7, 3))),
    "of a part": (lambda a, b: a[1:, ::2] @ b[:4], ((6, 8), (5, 3))),
    "linear, norm and activation": (
        lambda x, w, b: F.gelu(F.layer_norm(F.linear(x, w, b), (12,))), ((4, 9), (12, 9), (12,))
    ),
    "scaled": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2.0), ((3,), (5, 7), (7, 3))),
    "added to nothing": (
        lambda c, a, b: torch.addmm(c * torch.nan, a, b, beta=0), ((5, 3), (5, 7), (7, 3))
    ),
    "batches": (torch.bmm, ((2, 5, 7), (2, 7, 3))),
    "batches, added": (torch.baddbmm, ((2, 5, 3), (2, 5, 7), (2, 7, 3))),
    "one number": (torch.mm, ((1, 1), (1, 1))),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_products_are_those_of_eager(
    name: str, dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fn, shapes = CASES[name]
    args = [make(*shape, dtype=dtype) for shape in shapes]
    graph = lowered(fn, *args)
    assert not calls(graph)
    sources = codegen.run(schedule.run(fuse.run(graph, GPU), GPU), GPU)
    call = triton_on_torch.loaded(sources, tmp_path, monkeypatch)
    for want, got in zip(tensors(fn(*args)), call(list(args)), strict=True):
        compare(want, got, 2e-2 if dtype == torch.bfloat16 else 1e-5)


def test_large_products_and_empty_ones_stay_calls() -> None:
    assert calls(lowered(torch.mm, make(256, 64), make(64, 128))) == ["torch.ops.aten.mm.out"]
    assert calls(lowered(torch.mm, make(4, 0), make(0, 4))) == ["torch.ops.aten.mm.out"]
    assert "sums too long for a program" in str(lowered(torch.mm, make(1, 1 << 15), make(1 << 15, 1)))


def test_a_bias_and_an_activation_share_the_kernel() -> None:
    graph = lowered(lambda x, w, b: F.linear(x, w, b).relu(), make(4, 9), make(12, 9), make(12))
    kernels = codegen.run(schedule.run(fuse.run(graph, GPU), GPU), GPU).kernels
    assert [kernel.loops for kernel in kernels] == [("addmm_sums", "addmm", "relu")]
