"""Inputs that a program writes to get their new numbers from the kernels that make them, where nothing forbids it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import torchglass as tg
from torchglass import _native

Tensor = torch.Tensor


def scaled(x: Tensor, y: Tensor) -> None:
    x.mul_(0.9).add_(y)


def counted(x: Tensor, y: Tensor) -> None:
    """A single number, too, is made once."""
    count = y[0, :1]
    count += 1
    x.mul_(count)


def swapped(x: Tensor, y: Tensor) -> None:
    old = x.clone()
    x.copy_(y)
    y.copy_(old)


def normalized(x: Tensor, y: Tensor) -> None:
    """Each row is read again after its sum is known."""
    x.sub_(x.sum(1, keepdim=True)).mul_(x.exp())
    y.add_(x)


def turned(x: Tensor, y: Tensor) -> None:
    x.add_(x.t() + y)


def read_later(x: Tensor, y: Tensor) -> Tensor:
    old = x.cos()
    x.add_(1)
    return (old @ y) + x


def may_fail(x: Tensor, y: Tensor) -> Tensor:
    x.add_(1)
    return y[y.long().clamp(0, 3)[:, 0]]


PROGRAMS = [scaled, counted, swapped, normalized, turned, read_later, may_fail]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_the_numbers_are_eagers(program: Callable[..., Any]) -> None:
    given = [torch.randn(6, 6), torch.rand(6, 6)]
    compiled = tg.compile(program, fullgraph=True)
    for _ in range(3):
        ours, eager = ([t.clone() for t in given] for _ in range(2))
        versions = [t._version for t in ours]
        torch.testing.assert_close(compiled(*ours), program(*eager))
        torch.testing.assert_close(ours, eager)
        assert [t._version > v for t, v in zip(ours, versions)] == [t._version > 0 for t in eager]


def kernels_over_inputs(program: Callable[..., Any]) -> int:
    compiled = tg.compile(program)
    compiled(torch.randn(6, 6), torch.rand(6, 6))
    (graph,) = tg.explain(compiled).record.entries[0].graphs
    fused = graph.fused["forward"]
    inputs = set(fused.graph.inputs)
    return sum(read in inputs for kernel in fused.kernels for _, read in kernel.inplace)


def test_writes_go_where_nothing_forbids_it() -> None:
    assert kernels_over_inputs(scaled) == 1
    assert kernels_over_inputs(normalized) == 0
    assert kernels_over_inputs(may_fail) == 0


def test_memory_in_common() -> None:
    whole = torch.zeros(10)
    apart, meeting = (whole[:4], whole[4:]), (whole[:6], whole[4:])
    assert not _native.overlap(apart, (0,))
    assert _native.overlap(meeting, (1,))
    assert not _native.overlap((torch.zeros(3), *meeting), (0,))
    assert not _native.overlap((torch.zeros(0), torch.zeros(0)), (0,))
    with pytest.raises(IndexError):
        _native.overlap(apart, (2,))


def test_what_is_written_back_counts_as_eagers_writes() -> None:
    x, y = torch.zeros(2), torch.ones(2)
    _native.write_back((x,), (y,), ((0, 0, 1),))
    assert (x.tolist(), x._version) == ([1, 1], 1)
    _native.write_back((x,), (x,), ((0, 0, 1),))
    _native.write_back((x,), (y * 2,), ((0, 0, 2),))
    assert (x.tolist(), x._version) == ([2, 2], 2)
    leaf = torch.ones(2, requires_grad=True)
    product = leaf * 1
    _native.write_back((product,), (leaf,), ((0, 0, 0),))
    assert "CopyBackwards" in str(product.grad_fn)
    with pytest.raises(TypeError):
        _native.write_back((x,), (1,), ((0, 0, 1),))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("value", [0.1, -3, 1 << 40, 1e300, float("nan")])
def test_numbers_as_tensors(value: float, dtype: torch.dtype) -> None:
    if dtype is torch.int64 and isinstance(value, float):
        return
    expected = torch.scalar_tensor(value, dtype=torch.float64 if isinstance(value, float) else torch.int64).to(dtype)
    assert torch.equal(_native.number_tensor(value, dtype).nan_to_num(7), expected.nan_to_num(7))


@pytest.mark.parametrize("backend", ["aot_eager", "glass"])
def test_memory_that_is_shared_through_two_storages(backend) -> None:
    """Each tensor of an array of NumPy has a storage of its own."""

    def program(a, b):
        b.mul_(2)
        a.add_(b)
        return b.sum()

    outcomes = []
    for function in (program, tg.compile(program, backend=backend)):
        x = np.arange(10, dtype=np.float32)
        apart = torch.from_numpy(x[:4]), torch.from_numpy(x[4:8])
        meeting = torch.from_numpy(x[:8]), torch.from_numpy(x[2:])
        outcomes.append([(float(function(*pair)), x.tolist()) for pair in (apart, meeting)])
    assert outcomes[0] == outcomes[1]
    assert not _native.overlap(apart, (0, 1)) and _native.overlap(meeting, (0,)) and _native.overlap(meeting, (1,))
    assert not _native.overlap((*apart, torch.from_numpy(x[:0])), (0, 2))


def mapped(*files: str) -> list[Tensor]:
    return [torch.from_file(name, shared=True, size=6, dtype=torch.float32) for name in files]


def shared() -> Tensor:
    return torch.zeros(6).share_memory_()


def received(x: Tensor) -> Tensor:
    """The same memory as another process, or this one, gets it."""
    handle, size = x.untyped_storage()._share_fd_cpu_()
    return torch.tensor([]).set_(torch.UntypedStorage._new_shared_fd_cpu(handle, size), 0, (6,), (1,))


def test_files_that_are_mapped_twice(tmp_path: Path) -> None:
    """Their memory is the same at other addresses."""

    def f(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return (x * y).sum()

    compiled = tg.compile(f, fullgraph=True)
    for number in range(3):
        name = str(tmp_path / f"{number}")
        Path(name).write_bytes(bytes(24))
        x, y = mapped(name, name)
        os.unlink(name)
        assert compiled(x, y) == 6
        x = shared()
        assert compiled(x, received(x)) == 6
        assert compiled(shared(), shared()) == 0


def test_which_mappings_may_be_of_one_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(24))
    a, b = mapped(str(tmp_path / "a"), str(tmp_path / "a"))
    x, y, plain = shared(), shared(), torch.zeros(6)
    cases = [
        ((a, b), (0,), True), ((a, b), (1,), True), ((a, b, plain), (2,), False), ((a, a[:0]), (0,), False),
        ((x, y), (0,), False), ((x, y), (0, 1), False), ((x, received(x)), (1,), True), ((x, received(x)), (), False),
        ((x, y, received(x)), (1,), False), ((x, y, received(x)), (0,), True), ((x, a), (0,), True),
    ]  # fmt: skip
    for inputs, written, expected in cases:
        assert _native.overlap(inputs, written) is expected, (inputs, written)
