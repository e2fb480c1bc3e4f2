"""Small kernels that do not need one another in one call: which ones, with what memory, and that results stay right."""

from __future__ import annotations

import pytest
import torch
from tests.codegen.harness import check

from torchglass.records.tuned.fusion import CpuFusion

Tensor = torch.Tensor
SMALL = CpuFusion.horizontal_points // 2  # of the numbers that a step of two operations may have


def groups(compiled) -> list[int]:
    """How many kernels each call runs that runs several."""
    sizes: list[int] = []
    for kernel in compiled.fused.kernels:
        if kernel.horizontal:
            sizes[-1] += 1
        else:
            sizes.append(1)
    return [n for n in sizes if n > 1]


def steps(*tensors: Tensor) -> list[Tensor]:
    return [p - 0.1 * g for p, g in zip(tensors[::2], tensors[1::2])]


def test_equal_kernels_are_one_call(tmp_path):
    compiled = check(steps, [torch.randn(30) for _ in range(20)], tmp_path)
    assert groups(compiled) == [10] and compiled.sources.wrapper_text.count("kernel_group_0(") == 1
    assert "kernel_0_call(a + 3 * k)" in compiled.sources.texts["c"]
    assert sum(d.rule == "horizontal" and d.fused for d in compiled.fused.decisions) == 9


def test_kernels_that_differ(tmp_path):
    def program(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        return x.exp(), y.softmax(-1), z.sum(), (z.half() + 1)

    compiled = check(program, [torch.randn(7), torch.randn(3, 9), torch.randn(4, 5)], tmp_path)
    assert groups(compiled) == [3]


@pytest.mark.parametrize(
    "rows, expected", [(CpuFusion.horizontal_points // 2, [3]), (CpuFusion.horizontal_points // 2 + 1, [])]
)
def test_large_ones_stay_alone(rows, expected, tmp_path):
    assert groups(check(steps, [torch.randn(rows) for _ in range(6)], tmp_path)) == expected


def test_no_more_than_can_be_held_at_once(tmp_path):
    found = groups(check(steps, [torch.randn(8) for _ in range(2 * CpuFusion.horizontal_kernels + 20)], tmp_path))
    assert found == [CpuFusion.horizontal_kernels, 10]


def test_what_one_makes_the_next_may_read(tmp_path):
    def program(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = x.softmax(0).t().contiguous().view(-1)  # its rows lie across those of what follows
        return y.view(6, 4).softmax(1), w.exp(), y.view(4, 6).softmax(0) * 2

    check(program, [torch.randn(4, 6), torch.randn(9)], tmp_path)


def test_memory_that_is_free_only_after_all_of_them(tmp_path):
    """No kernel of a call writes to memory that another one of it reads."""

    def program(w: Tensor, *tensors: Tensor) -> list[Tensor]:
        products = [x @ w for x in tensors]
        squares = [p.relu() + 1 for p in products]
        return [s @ w for s in squares]

    compiled = check(program, [torch.randn(8, 8), *(torch.randn(8, 8) for _ in range(6))], tmp_path)
    assert groups(compiled)


def test_a_wrong_index_raises_by_itself(tmp_path):
    def program(x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, ...]:
        return x.exp(), y[index], x.view(-1)[:3].sin()

    tensors = [torch.randn(4, 5), torch.randn(6, 2), torch.tensor([0, 5, 2])]
    compiled = check(program, tensors, tmp_path)
    tensors[2][1] = 6
    with pytest.raises(IndexError, match="index 6 is out of bounds"):
        compiled.call(list(tensors))


@pytest.mark.parametrize("count, shared", [(2, False), (40, True)])
def test_threads_share_the_kernels_of_a_call(count, shared, tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    compiled = check(steps, [torch.randn(1000) for _ in range(2 * count)], tmp_path)
    assert ("#pragma omp parallel" in compiled.sources.texts["c"]) == shared
