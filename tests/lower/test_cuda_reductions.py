"""Reductions divided into parts on a GPU: which ones, into what, and that they come to the same."""

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
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from torchglass import codegen, fuse, lower, schedule
from torchglass.lower.split_reduction import Division, can_divide, divided, neutral
from torchglass.records.check_loops import check_graph
from torchglass.records.loops import Access, Buffer, Load, Loop, LoopGraph, Reduce, Store, View
from torchglass.records.target import Gpu, Targets

Tensor = torch.Tensor
GPU = Targets(cpu=Gpu())
FEW = Targets(
    cpu=replace(
        Gpu(multiprocessors=16),
        lowering=replace(Gpu().lowering, divided_points=64, part_points=8, programs_each=2),
        schedule=replace(Gpu().schedule, column_block=8),
    )
)
"""A small GPU on which every division pays."""


def lowered(fn: Callable[..., Any], args: Sequence[Tensor], targets: Targets = FEW) -> LoopGraph:
    return lower.run(make_fx(fn, tracing_mode="fake")(*args), targets)


def parts(graph: LoopGraph) -> list[str]:
    """What the loops over parts run over."""
    loops = [n for n in graph.nodes if isinstance(n, Loop) and "_parts" in n.name]
    return [", ".join(f"({d})" if r else str(d) for d, r in zip(n.dims, n.reduced)) for n in loops]


def programs(fn: Callable[..., Any], *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[str]:
    """The parts on an H100, with nothing in memory."""
    with FakeTensorMode():
        args = [torch.empty(shape, dtype=dtype) for shape in shapes]
    return parts(lowered(fn, args, GPU))


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., LoopGraph]:
    """Lower, print, run on the stand-in for Triton, compare with eager."""

    def run(fn: Callable[..., Any], args: Sequence[Tensor], tol: float | None = None) -> LoopGraph:
        graph = lowered(fn, args)
        sources = codegen.run(schedule.run(fuse.run(graph, FEW), FEW), FEW)
        call = triton_on_torch.loaded(sources, tmp_path, monkeypatch)
        for want, got in zip(tensors(fn(*args)), call(list(args)), strict=True):
            compare(want, got, tol)
        return graph

    return run


# -- which ones ------------------------------------------------------------------------------------------------------
def test_a_mean_of_everything_fills_the_gpu() -> None:
    assert programs(lambda x: x.float().square().mean(), (16, 1024, 1024)) == ["16, 64, (16), (1024)"]
    assert programs(lambda x: x.sum(), (1 << 24,)) == ["1024, (16384)"]


def test_column_sums_fill_the_gpu() -> None:
    """Those of a bias, of 12 programs otherwise, beside what makes their columns. Many rows that parts can share alike
    are left whole: fusion gives a part to what walks its rows.
    """
    assert programs(lambda g: g.sum(0), (6007, 768), dtype=torch.bfloat16) == ["23, (272), 768"]
    assert programs(lambda g: g.sum((0, 1)), (7, 859, 768)) == ["7, 4, (224), 768"]
    assert programs(lambda g: g.sum(0), (2048, 768)) == []  # 48 programs of 16 columns, with little to read each
    assert programs(lambda g: g.sum(0), (16381, 768)) == ["43, (384), 768"]
    assert programs(lambda g: g.sum(0), (16384, 768)) == []


def test_few_long_rows() -> None:
    assert programs(lambda x: x.amax(-1), (4, 1 << 20)) == ["4, 64, (16384)"]
    assert programs(lambda x: x.argmax(-1), (4, 1 << 19)) == ["4, 32, (16384)"] * 2
    assert programs(lambda x: x.argmax(-1), (4, 1 << 17)) == []


def test_statistics_of_few_channels() -> None:
    assert programs(lambda x: x.mean((0, 2, 3)), (64, 64, 112, 112)) == ["16, (4), 64, (112), (112)"]
    last = lambda x: x.permute(0, 3, 1, 2).mean((0, 2, 3))
    assert programs(last, (64, 112, 112, 64)) == []


def test_what_is_small_or_fills_the_gpu_is_left_whole() -> None:
    assert programs(lambda x: x.sum(-1), (8192, 50257)) == []
    assert programs(lambda x: x.sum(), (8192,)) == []
    assert programs(lambda x: x.sum(-1), (4, 16384)) == []
    assert programs(lambda x: x.sum(0), (128, 768)) == []
    assert programs(lambda x: x.sum(0), (4096, 16384)) == []
    assert programs(lambda x: x.cumsum(-1), (4, 1 << 20)) == []


def test_columns_of_what_rows_are_reduced_of_are_left_to_one_kernel() -> None:
    """The backward of a norm: sums of rows and of columns of the same gradient."""

    def program(g: Tensor, x: Tensor, w: Tensor) -> Any:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        return torch.autograd.grad(F.layer_norm(x, (768,), w), (x, w), g)

    assert programs(program, (16384, 768), (16384, 768), (768,)) == []


# -- what they come to -----------------------------------------------------------------------------------------------
def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


PROGRAMS: dict[str, tuple[Callable[..., Any], list[Tensor]]] = {
    "mean": (lambda x: x.square().mean(), [numbers(16, 64)]),
    "sum of columns": (lambda x, y: (x * y, (x * y).sum(0)), [numbers(256, 12), numbers(256, 12)]),
    "ragged": (lambda x: x.exp().sum(), [numbers(521)]),
    "ragged columns": (lambda x: (x.exp() + 1).sum(0), [numbers(257, 6)]),
    "ragged of several dimensions": (lambda x: x.cos().sum((0, 2)), [numbers(3, 5, 211)]),
    "ragged product": (lambda x: (x / 4 + 1).prod(), [numbers(211)]),
    "ragged extrema": (lambda x: (x.amax(), x.amin(), x.long().amax(), x.long().amin()), [numbers(211)]),
    "ragged truths": (lambda x: ((x > 3).all(), (x > 3).any(), (x < 9).all()), [numbers(211)]),
    "ragged gather": (lambda x, i: x[i].sum(), [numbers(50), torch.arange(211) % 50]),
    "ragged shift": (lambda x: F.pad(x, (1, 2)).exp().sum(), [numbers(211)]),
    "places": (lambda x: (x.argmax(-1), x.argmin(-1), *x.max(-1)), [numbers(3, 211)]),
    "counters": (lambda x: (x * torch.arange(211)).sum(-1), [numbers(3, 211)]),
    "variance": (lambda x: torch.var_mean(x, (0, 2, 3)), [numbers(4, 3, 9, 11)]),
    "softmax": (lambda x: torch.softmax(x, -1), [numbers(2, 512)]),
    "half": (lambda x: (x.sum(0), x.mean()), [numbers(256, 12).bfloat16()]),
    "integers": (lambda x: (x.sum(), x.sum(0)), [torch.arange(1024).view(128, 8)]),
    "a number added up": (lambda x: torch.ones_like(x).sum() + x.sum(0), [numbers(128, 8)]),
    "norm": (lambda x: torch.linalg.vector_norm(x), [numbers(33, 17)]),
    "turned": (lambda x: x.t().sum(1), [numbers(130, 7)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name: str, check: Callable[..., LoopGraph]) -> None:
    fn, args = PROGRAMS[name]
    assert parts(check(fn, args, tol=1e-4 if args[0].dtype == torch.float32 else None))


def test_not_a_number_stays(check: Callable[..., LoopGraph]) -> None:
    x = numbers(211)
    x[207] = float("nan")
    check(lambda x: (x.sum(), x.amax(), x.argmax(-1)), [x])


# -- the division by itself ------------------------------------------------------------------------------------------
def sum_of(dims: tuple[int, ...], strides: tuple[int, ...]) -> Loop:
    body = (
        Load("t0", Access("x", strides), "float32"),
        Reduce("t1", "sum", "t0", "float32"),
        Store(Access("y", (0,) * len(dims)), "t1"),
    )
    return Loop("y", dims, (True,) * len(dims), body)


@pytest.mark.parametrize(
    ("by", "first", "last"),
    [
        (Division((), 0, 8, 16), ((8, 16, 6), (False, True, True)), ((8, 1), (True, False))),
        (Division((0,)), ((128, 6), (False, True)), ((128, 1), (True, False))),
        (Division((0,), 1, 2, 3), ((128, 2, 3), (False, False, True)), ((128, 2), (True, True))),
        (Division((), 0, 3, 48), ((3, 48, 6), (False, True, True)), ((3, 1), (True, False))),
    ],
)
def test_dimensions(by: Division, first: Any, last: Any) -> None:
    loop = sum_of((128, 6), (6, 1))
    one, other, between = divided(loop, by, lambda name: name, "cpu")
    assert ((one.dims, one.reduced), (other.dims, other.reduced)) == (first, last)
    buffers = {b.name: b for b in (*between, Buffer("x", "float32", (128, 6), (6, 1), "input"),
                                   Buffer("y", "float32", (), ()))}  # fmt: skip
    check_graph(LoopGraph("g", ("x",), buffers, (one, other), (View("y", (), ()),)))


def test_neutral_numbers() -> None:
    kinds = {"sum": torch.sum, "prod": torch.prod, "max": torch.amax, "min": torch.amin}
    for name in ("float32", "int64", "int8", "uint8"):
        dtype = getattr(torch, name)
        for kind, reduce in kinds.items():
            x = torch.tensor([3, neutral(kind, name)], dtype=dtype)
            assert reduce(x, 0) == 3, (kind, name)
    assert [neutral(kind, "bool") for kind in ("any", "all", "max", "min")] == [False, True, False, True]


def test_what_cannot_be_divided() -> None:
    plain = sum_of((128,), (1,))
    assert can_divide(plain)
    again = (*plain.body[:2], Reduce("t2", "max", "t1", "float32"), Store(Access("y", (0,)), "t2"))
    assert not can_divide(replace(plain, body=again)) and not can_divide(replace(plain, dims=(0,)))
    assert not can_divide(replace(plain, reduced=(False,)))
