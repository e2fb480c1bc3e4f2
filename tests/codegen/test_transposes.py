"""Reads across memory go through blocks that are turned in registers: every element size, whole blocks and edges."""

from __future__ import annotations

import pytest
import torch
from tests.codegen.harness import check

SIZES = ((16, 64), (17, 33), (64, 64), (100, 70), (130, 65), (16, 200), (300, 16))
DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16, torch.uint8,
    torch.bool,
)  # fmt: skip


def make(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    numbers = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows)) * 20
    return numbers > 0 if dtype is torch.bool else numbers.to(dtype)


def programs(x: torch.Tensor, t: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """One read across, two of them, one backwards through a batch, and one of every other element."""
    batch = torch.stack((t, t))
    return (
        torch.where(x != 0, x, t.t()), torch.where(t.t() != 0, x, t.t().flip(0)),
        batch.transpose(1, 2).flip(2).contiguous(), t[:, ::2].t().contiguous(),
    )  # fmt: skip


def every(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(result for x, t in zip(tensors[::2], tensors[1::2]) for result in programs(x, t))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_turned_blocks(dtype, tmp_path):
    tensors = [make(*shape, dtype) for rows, columns in SIZES for shape in ((rows, columns), (columns, rows))]
    compiled = check(every, tensors, tmp_path, loops_only=True, tol=0)
    assert f"tg_turn_{8 * dtype.itemsize}(" in compiled.sources.texts["c"].split("kernel_0(")[-1]


FAR = [(torch.bfloat16, 520, True), (torch.float32, 520, False), (torch.float32, 1030, True)]


@pytest.mark.parametrize("dtype, rows, asked", FAR)
def test_memory_far_away_is_asked_for_ahead(dtype, rows, asked, tmp_path):
    tensors = [make(rows, 1050, dtype), make(1050, rows, dtype)]
    compiled = check(lambda x, t: x + t.t(), tensors, tmp_path, loops_only=True)
    assert ("tg_fetch(&" in compiled.sources.texts["c"].split("kernel_0(")[1]) == asked
