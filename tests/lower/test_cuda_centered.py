"""Variances and log-softmax of long rows on a GPU, from parts that are read once: which parts, and how exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.codegen import triton_on_torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from torchglass import codegen, fuse, lower, schedule
from torchglass.records.loops import Loop, LoopGraph
from torchglass.records.target import Gpu, Targets

Tensor = torch.Tensor
GPU = Targets(cpu=Gpu())
TUNED = Gpu().schedule
SMALL = Targets(cpu=Gpu(multiprocessors=2, schedule=replace(TUNED, long_row=64, column_block=16, least_part=4)))
"""A GPU whose programs hold few numbers."""


def lowered(fn: Callable[..., Any], args: Sequence[Tensor], targets: Targets = SMALL) -> LoopGraph:
    return lower.run(make_fx(fn, tracing_mode="fake")(*args), targets)


def dims(fn: Callable[..., Any], shape: tuple[int, ...], ending: str, memory: Any = torch.contiguous_format) -> str:
    """What a loop over parts runs over on an H100, with nothing in memory."""
    with FakeTensorMode():
        x = torch.empty(shape, dtype=torch.bfloat16).to(memory_format=memory)
    graph = lowered(fn, [x], GPU)
    found = [n for n in graph.nodes if isinstance(n, Loop) and n.name.endswith(ending)]
    return "; ".join(", ".join(f"({d})" if r else str(d) for d, r in zip(n.dims, n.reduced)) for n in found)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Tensor, ...]]:
    """Lower for the small GPU, print, run on the stand-in for Triton."""

    def run(fn: Callable[..., Any], *args: Tensor) -> tuple[Tensor, ...]:
        graph = lowered(fn, args)
        assert any(n.name.endswith(("_near", "_tops")) for n in graph.nodes) or "joined from parts" in str(graph)
        sources = codegen.run(schedule.run(fuse.run(graph, SMALL), SMALL), SMALL)
        return tuple(triton_on_torch.loaded(sources, tmp_path, monkeypatch)(list(args)))

    return run


# -- which parts -----------------------------------------------------------------------------------------------------
def batch_norm(x: Tensor) -> Tensor:
    return F.batch_norm(x, None, None, training=True)


def test_parts_of_channels() -> None:
    """Channels last: rows of all images together; else a part of each image. All have programs for the whole GPU."""
    last = torch.channels_last
    assert dims(batch_norm, (64, 64, 112, 112), "_squares", last) == "784, (1024), 64"
    assert dims(batch_norm, (64, 2048, 7, 7), "_squares", last) == "49, (64), 2048"
    assert dims(batch_norm, (64, 512, 14, 14), "_squares", last) == "49, (256), 512"
    assert dims(batch_norm, (64, 64, 112, 112), "_squares") == "64, 1, (12544), 64"
    assert dims(batch_norm, (64, 64, 7, 7), "_squares") == ""  # 3,136 numbers of a channel fit a program


def test_parts_of_rows() -> None:
    log_softmax = lambda x: torch.log_softmax(x, -1)
    assert dims(log_softmax, (4096, 128256), "_tops") == "8, (16032), 4096"
    assert dims(log_softmax, (4096, 50257), "_tops") == "29, (1733), 4096"
    assert dims(log_softmax, (4096, 16384), "_tops") == ""  # whole in a program's registers
    assert dims(log_softmax, (4096, 65537), "_tops") == ""  # a prime: walked, twice
    assert dims(lambda x: x.var(), (1 << 22,), "_squares") == "512, (8192)"


def test_nothing_changes_on_a_cpu() -> None:
    graph = lowered(batch_norm, [torch.randn(8, 4, 16, 16)], Targets())
    assert not any(n.name.endswith(("_means", "_squares")) for n in graph.nodes)


# -- how exact -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last], ids=["channels first", "last"])
def test_variances_far_from_zero(run: Callable[..., Any], memory: torch.memory_format) -> None:
    """Sums of squares less the square of the sum would have no digit left. A border, and an outlier that is among the
    numbers that a part's squares are summed about.
    """
    torch.manual_seed(0)
    x = 1000 + 0.01 * torch.randn(6, 3, 8, 8)
    x[:, 1, :, 0] = 0.0
    x[0, 2, 0, 0] = 1e6
    var, mean = run(lambda x: torch.var_mean(x, (0, 2, 3)), x.to(memory_format=memory))
    exact = torch.var_mean(x.double(), (0, 2, 3))
    torch.testing.assert_close(var.double(), exact[0], rtol=1e-5, atol=0)
    torch.testing.assert_close(mean.double(), exact[1], rtol=1e-6, atol=0)


@pytest.mark.parametrize("value", [torch.inf, torch.nan, 1e30], ids=str)
def test_what_is_not_finite(run: Callable[..., Any], value: float) -> None:
    """Wherever it stands in a part."""
    for place in (0, 5, 77):
        x = torch.randn(3, 160)
        x[1].view(-1)[place] = value
        for got, want in zip(run(lambda x: torch.var_mean(x, 1), x), (x.var(1), x.mean(1)), strict=True):
            torch.testing.assert_close(got, want, equal_nan=True)


def test_a_variance_of_everything(run: Callable[..., Any]) -> None:
    x = torch.randn(3, 160) + 50
    (var,) = run(lambda x: x.var(), x)
    torch.testing.assert_close(var.double(), x.double().var(), rtol=1e-6, atol=0)


def test_batch_norm_and_its_statistics(run: Callable[..., Any]) -> None:
    x, mean, var = torch.randn(6, 3, 8, 8).to(memory_format=torch.channels_last) * 3 + 5, torch.zeros(3), torch.ones(3)
    call = lambda x, m, v: torch.ops.aten._native_batch_norm_legit_functional(x, None, None, m, v, True, 0.1, 1e-5)
    for got, want in zip(run(call, x, mean, var), call(x, mean, var), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_log_softmax(run: Callable[..., Any]) -> None:
    """Parts of -inf alone, a whole row of it, and one that overflows."""
    x = torch.randn(5, 160) * 20
    x[0, :40] = x[1] = -torch.inf
    x[2, 100] = torch.inf
    x[3, 7] = torch.nan
    (got,) = run(lambda x: torch.log_softmax(x, -1), x)
    torch.testing.assert_close(got, torch.log_softmax(x, -1), equal_nan=True, rtol=1e-6, atol=1e-5)


def parted_log_softmax(x: Tensor) -> tuple[Tensor, ...]:
    """As cross entropy is traced on a GPU."""
    x = x.float()
    most = torch.amax(x, [-1], True)
    below = x - most
    total = torch.sum(torch.exp(below), [-1], True)
    return below - torch.log(total), most, total


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_log_softmax_in_its_parts(run: Callable[..., Any], dtype: torch.dtype) -> None:
    """The maximum is read once more where it is subtracted, and returned."""
    x = (torch.randn(3, 5, 160) * 20).to(dtype)
    x[0, 0, :40] = x[0, 1] = -torch.inf
    x[1, 2, 100] = torch.inf
    x[2, 3, 7] = torch.nan
    with torch.no_grad():
        found, wanted = run(parted_log_softmax, x), parted_log_softmax(x)
    for got, want in zip(found, wanted, strict=True):
        assert got.stride() == want.stride()
        torch.testing.assert_close(got, want, equal_nan=True, rtol=1e-5, atol=1e-5)


def test_what_is_not_below_the_maximum_stays_whole() -> None:
    x = torch.randn(5, 160)
    other = lambda x: torch.sum(torch.exp(x - torch.amax(x.neg(), [-1], True)), [-1], True)
    down = lambda x: torch.sum(torch.exp(x - torch.amax(x, [0], True)), [0], True)
    assert not any("joined" in str(lowered(fn, [x])) for fn in (other, down))
