"""Convolutions of patches that lie side by side as products on a GPU: which, and that they come to the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.codegen import triton_on_torch
from torch.fx.experimental.proxy_tensor import make_fx

from torchglass import codegen, fuse, lower, schedule
from torchglass.records.loops import ExternCall, LoopGraph
from torchglass.records.target import Gpu, Targets

Tensor = torch.Tensor
GPU = Targets(cpu=Gpu())


def lowered(fn: Callable[..., Any], args: Sequence[Tensor], targets: Targets = GPU) -> LoopGraph:
    return lower.run(make_fx(fn, tracing_mode="fake")(*args), targets)


def calls(graph: LoopGraph) -> list[str]:
    return [n.target.removeprefix("torch.ops.aten.") for n in graph.nodes if isinstance(n, ExternCall)]


def training(x: Tensor, w: Tensor, b: Tensor | None, stride: Any) -> tuple[Tensor | None, ...]:
    """The result, and the gradients of all that need one."""
    with torch.enable_grad():
        inputs = [t.detach().requires_grad_() if t is not None else None for t in (x, w, b)]
        functions = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}
        y = functions[x.dim()](inputs[0], inputs[1], inputs[2], stride=stride)
        wanted = [t for t in inputs if t is not None]
        return (y, *torch.autograd.grad(y, wanted, torch.cos(y)))


@pytest.mark.parametrize("shape, window, bias, memory", [
    ((2, 3, 8, 12), (4, 4), True, torch.contiguous_format),
    ((2, 3, 8, 12), (4, 6), False, torch.channels_last),
    ((3, 2, 32), (16,), True, torch.contiguous_format),
    ((1, 2, 4, 8, 8), (2, 4, 4), True, torch.contiguous_format),
    ((1, 1, 4, 4), (4, 4), True, torch.contiguous_format),
], ids=str)  # fmt: skip
def test_results_and_gradients(
    shape: tuple[int, ...], window: tuple[int, ...], bias: bool, memory: Any, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    x = torch.randn(shape, dtype=torch.bfloat16).to(memory_format=memory)
    w = torch.randn(5, shape[1], *window, dtype=torch.bfloat16) / 8
    b = torch.randn(5, dtype=torch.bfloat16) if bias else None
    args = [t for t in (x, w, b) if t is not None]
    fn = lambda *given: training(given[0], given[1], given[2] if bias else None, window)
    graph = lowered(fn, args)
    assert not any("convolution" in call for call in calls(graph)) and "patches" in str(graph)
    sources = codegen.run(schedule.run(fuse.run(graph, GPU), GPU), GPU)
    got = triton_on_torch.loaded(sources, tmp_path, monkeypatch)(list(args))
    for mine, eager in zip(got, fn(*args), strict=True):
        assert mine.stride() == eager.stride()
        torch.testing.assert_close(mine.float(), eager.float(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype, shape, window, stride, more", [
    (torch.float32, (1, 3, 32, 32), (16, 16), 16, {}),  # TF32 in cuDNN
    (torch.bfloat16, (1, 3, 32, 32), (16, 16), 8, {}),  # they overlap
    (torch.bfloat16, (1, 3, 40, 32), (16, 16), 16, {}),  # a rest
    (torch.bfloat16, (1, 3, 32, 32), (2, 2), 2, {}),  # small
    (torch.bfloat16, (1, 3, 32, 32), (16, 16), 16, {"padding": 8}),
    (torch.bfloat16, (1, 4, 32, 32), (16, 16), 16, {"groups": 2}),
], ids=str)  # fmt: skip
def test_others_stay_calls(dtype: Any, shape: Any, window: Any, stride: int, more: dict[str, int]) -> None:
    x, w = torch.randn(shape, dtype=dtype), torch.randn(4, shape[1] // more.get("groups", 1), *window, dtype=dtype)
    assert calls(lowered(lambda x, w: F.conv2d(x, w, stride=stride, **more), [x, w])) == ["convolution.default"]


def test_on_a_cpu_they_stay_calls() -> None:
    x, w = torch.randn(1, 3, 32, 32, dtype=torch.bfloat16), torch.randn(4, 3, 16, 16, dtype=torch.bfloat16)
    assert calls(lowered(lambda x, w: F.conv2d(x, w, stride=16), [x, w], Targets())) == ["convolution.default"]
