"""Writes at places that tensors say: by loops, beside eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchglass as tg

Tensor = torch.Tensor


def add_rows(x: Tensor, index: Tensor, rows: Tensor, dim: int = 0) -> Tensor:
    return torch.ops.aten.index_put(x, [*[None] * dim, index], rows, True)


def calls(compiled: object) -> str:
    (graph,) = tg.explain(compiled).graphs()
    return graph.files["forward_wrapper.py"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("dim", "kind"), [(0, torch.int64), (1, torch.int32), (0, torch.int32), (2, torch.int64)])
def test_rows_are_added(dim: int, kind: torch.dtype, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 6, 7, dtype=dtype).transpose(0, 1)
    index = torch.randint(-5, 5, (9,), dtype=kind)
    rows = torch.randn(*x.shape[:dim], 9, *x.shape[dim + 1 :], dtype=dtype)
    compiled = tg.compile(add_rows, fullgraph=True)
    ours, theirs = compiled(x, index, rows, dim), add_rows(x, index, rows, dim)
    torch.testing.assert_close(ours, theirs)
    assert ours.stride() == theirs.stride()
    assert "aten_" not in calls(compiled)


@pytest.mark.parametrize(
    ("index", "rows", "loops"),
    [
        (torch.tensor([0, 0, 2]), torch.ones(3, 1), True),  # broadcast
        (torch.tensor([[0, 1], [1, 1]]), torch.ones(2, 2, 4), True),
        (torch.tensor([True, False, True]), torch.ones(2, 4), False),
        (torch.tensor([], dtype=torch.int64), torch.ones(0, 4), False),
    ],
)
def test_kinds_of_indices(index: Tensor, rows: Tensor, loops: bool) -> None:
    x = torch.randn(3, 4)
    compiled = tg.compile(add_rows)
    torch.testing.assert_close(compiled(x, index, rows), add_rows(x, index, rows))
    assert ("aten_" not in calls(compiled)) == loops


def copied(x: Tensor, *index_and_value: Any) -> Tensor:
    x = x.clone()
    x[index_and_value[:-1]] = index_and_value[-1]
    return x


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return (torch.randn(shape) * 10).to(dtype)


def places(size: int, *shape: int) -> Tensor:
    return torch.randint(0, size, shape)


aten = torch.ops.aten
HALF = torch.bfloat16
Program = Callable[..., Tensor]


def index_add(x: Tensor, index: Tensor, rows: Tensor) -> Tensor:
    return x.index_add(0, index, rows)


def scatter_add(x: Tensor, index: Tensor, source: Tensor, dim: int = 1) -> Tensor:
    return x.scatter_add(dim, index, source)


WRITES: dict[str, tuple[Program, Callable[[], tuple[Any, ...]]]] = {
    "rows": (index_add, lambda: (numbers(9, 64), places(9, 500), numbers(500, 64))),
    "many rows": (index_add, lambda: (numbers(50, 96), places(50, 4096), numbers(4096, 96))),
    "one number": (index_add, lambda: (numbers(9), torch.tensor(4), numbers(1))),
    "rows of half precision": (
        index_add,
        lambda: (numbers(9, 64, dtype=HALF), places(9, 500), numbers(500, 64, dtype=HALF)),
    ),
    "twice as much": (
        lambda x, i, s: x.index_add(1, i, s, alpha=2),
        lambda: (numbers(9, 6), places(6, 8), numbers(9, 8)),
    ),
    "to a transposed tensor": (
        lambda x, i, s: x.t().index_add(0, i, s),
        lambda: (numbers(6, 9), places(9, 30), numbers(30, 6)),
    ),
    "index_copy": (
        lambda x, i, s: x.index_copy(1, i, s),
        lambda: (numbers(9, 6, 5), torch.tensor([4, 0, 2]), numbers(9, 3, 5)),
    ),
    "index_fill": (
        lambda x, i, v: (x.index_fill(1, i, 2.5), x.t().index_fill(0, i, v), x.to(torch.int32).index_fill(0, i, 2.5)),
        lambda: (numbers(9, 6), torch.tensor([4, -1, 4]), numbers(1)[0]),
    ),
    "scatter of a number": (lambda x, i: x.scatter(1, i, 3.5), lambda: (numbers(100, 64), places(64, 100, 3))),
    "scatter of a larger source": (
        lambda x, i, s: x.scatter(0, i, s),
        lambda: (numbers(9, 6), torch.tensor([[1, 2, 0], [0, 1, 8]]), numbers(5, 6)),
    ),
    "scatter_add": (scatter_add, lambda: (numbers(300, 64), places(64, 300, 99), numbers(300, 99))),
    "scatter_add of rows": (scatter_add, lambda: (numbers(100, 64), places(100, 50, 64), numbers(60, 64), 0)),
    "scatter_add of half precision": (
        scatter_add,
        lambda: (numbers(9, 64, dtype=HALF), places(64, 9, 200), numbers(9, 200, dtype=HALF)),
    ),
    "scatter_add of whole numbers": (
        scatter_add,
        lambda: (numbers(9, 6, dtype=torch.int32), places(6, 9, 50), numbers(9, 50, dtype=torch.int32)),
    ),
    "embedding": (
        lambda g, i: aten.embedding_dense_backward(g, i, 50, 5, False),
        lambda: (numbers(8, 32, 64), places(9, 8, 32)),
    ),
    "two indices": (
        copied,
        lambda: (numbers(9, 6), torch.tensor([1, 8, 3]), torch.tensor([5, -1, 0]), numbers(3)),
    ),
    "two indices, added": (
        lambda x, i, j, v: x.index_put((i, j), v, accumulate=True),
        lambda: (numbers(9, 6), places(3, 40), places(6, 40) - 3, numbers(40)),
    ),
    "indices that broadcast": (
        copied,
        lambda: (numbers(9, 6, 4), torch.tensor([[1], [8]]), torch.tensor([5, 0]), numbers(2, 2, 4)),
    ),
    "a later dimension": (
        copied,
        lambda: (numbers(4, 9, 5), slice(None), torch.tensor([1, -1, 3]), numbers(3, 5)),
    ),
    "indices apart": (
        copied,
        lambda: (numbers(4, 9, 5), torch.tensor([0, 1]), slice(None), torch.tensor([4, 0]), numbers(2, 9)),
    ),
    "a mask": (copied, lambda: (numbers(4, 9), numbers(4, 9) > 0, -1e9)),
    "a mask of rows": (copied, lambda: (numbers(4, 9, 5), numbers(4, 9) > 0, torch.tensor(2.0))),
    "beside what reads the same": (
        lambda x, i, s: (x.index_add(0, i, s), x.cos() + 1),
        lambda: (numbers(17), torch.tensor([3]), numbers(1)),
    ),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_are_loops(name: str) -> None:
    torch.manual_seed(0)
    program, arguments = WRITES[name]
    given = arguments()
    compiled = tg.compile(program, fullgraph=True)
    ours, theirs = compiled(*given), program(*given)
    torch.testing.assert_close(ours, theirs)
    if isinstance(ours, Tensor):
        assert ours.stride() == theirs.stride()
    assert "aten_" not in calls(compiled)


@pytest.mark.parametrize(
    "program",
    [
        lambda x, i: x.index_add(0, i, x[:2]),
        lambda x, i: x[0].index_add(0, i, x[0, :2]),
        lambda x, i: x.index_copy(0, i, x[:2]),
        lambda x, i: x.index_fill(0, i * 4, 1.0),
        lambda x, i: x.scatter(0, i[None, :], 1.0),
        lambda x, i: x.scatter_add(0, i[None, :], x),
    ],
)
@pytest.mark.parametrize("place", [5, -1])
def test_errors_are_as_in_eager(program: Callable[..., Tensor], place: int) -> None:
    arguments = torch.randn(3, 4), torch.tensor([0, place])
    with pytest.raises((IndexError, RuntimeError)) as eager:
        program(*arguments)
    with pytest.raises(type(eager.value)) as ours:
        tg.compile(program)(*arguments)
    assert str(ours.value) == str(eager.value)


@pytest.mark.parametrize("place", [3, -4])
def test_an_index_out_of_range(place: int) -> None:
    arguments = torch.randn(3, 4), torch.tensor([0, place]), torch.ones(2, 4)
    with pytest.raises(IndexError) as eager:
        add_rows(*arguments)
    with pytest.raises(IndexError) as ours:
        tg.compile(add_rows)(*arguments)
    assert str(ours.value) == str(eager.value)


def test_gradient_of_reading_rows() -> None:
    torch.manual_seed(0)
    x, index = torch.randn(6, 4, requires_grad=True), torch.tensor([0, 5, -1, 0])
    compiled = tg.compile(lambda x: x[index])
    ours, theirs = (torch.autograd.grad((y**2).sum(), x)[0] for y in (compiled(x), x[index]))
    torch.testing.assert_close(ours, theirs)
