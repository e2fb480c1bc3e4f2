"""Sums of rows at places that tensors say."""

from __future__ import annotations

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
    assert "aten_index_add(" in calls(compiled)


@pytest.mark.parametrize(
    ("index", "rows"),
    [
        (torch.tensor([0, 0, 2]), torch.ones(3, 1)),  # broadcast
        (torch.tensor([[0, 1], [1, 1]]), torch.ones(2, 2, 4)),
        (torch.tensor([True, False, True]), torch.ones(2, 4)),
        (torch.tensor([], dtype=torch.int64), torch.ones(0, 4)),
    ],
)
def test_other_kinds_stay(index: Tensor, rows: Tensor) -> None:
    x = torch.randn(3, 4)
    compiled = tg.compile(add_rows)
    torch.testing.assert_close(compiled(x, index, rows), add_rows(x, index, rows))
    assert "aten_index_add(" not in calls(compiled)


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
