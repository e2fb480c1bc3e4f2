"""The tile and the warps of a GPU's kernels, by size and dtype; what Triton makes of them is tried in tests/codegen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from torchglass import fuse, lower, schedule
from torchglass.records.schedule import GpuMapping
from torchglass.records.target import Gpu, Targets

Tensor = torch.Tensor
GPU = Targets(cpu=Gpu())


def mappings(fn: Callable[..., Any], *args: Tensor) -> list[GpuMapping]:
    graph = make_fx(torch.func.functionalize(fn), tracing_mode="fake")(*args)
    return [s.mapping for s in schedule.run(fuse.run(lower.run(graph, GPU), GPU), GPU).schedules]


def shape(mapping: GpuMapping) -> tuple[tuple[int, ...], int]:
    """Blocks and warps; no thread has more than 64 points."""
    blocks, points = tuple(axis.block for axis in mapping.axes), 1
    for block in blocks:
        points *= block
    assert points <= 64 * 32 * mapping.warps
    return blocks, mapping.warps


def empty(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(sizes, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "sizes, blocks, warps",
    [
        ((4096, 4096), (1024,), 2),
        ((512, 512), (512,), 4),
        ((32, 64), (128,), 1),
        ((7,), (8,), 1),
    ],
    ids=str,
)
def test_points(sizes: Sequence[int], blocks: tuple[int, ...], warps: int, dtype: torch.dtype) -> None:
    """Sixteen to a thread, and smaller blocks where there are too few for all multiprocessors."""
    (made,) = mappings(lambda a: a.relu() + 1, empty(*sizes, dtype=dtype))
    assert shape(made) == (blocks, warps)


@pytest.mark.parametrize("columns, blocks", [(768, (256, 4)), (1024, (1024, 1)), (100, (1024,)), (11008, (256, 4))])
def test_points_beside_a_row_that_all_share(columns: int, blocks: tuple[int, ...]) -> None:
    """Columns and rows where a block of columns divides them, which costs no division for each element."""
    (made,) = mappings(lambda a, b: a + b, empty(8192, columns), empty(columns))
    assert shape(made) == (blocks, 2)


@pytest.mark.parametrize(
    "rows, columns, blocks, warps",
    [
        (65536, 100, (8, 128), 1),
        (16384, 1024, (1, 1024), 1),
        (32, 1000, (1, 1024), 4),
        (16384, 1500, (1, 2048), 4),
        (16384, 2048, (1, 2048), 8),
        (16384, 4096, (1, 4096), 8),
        (16384, 8192, (1, 8192), 16),
        (16384, 16384, (1, 16384), 16),
        (512, 50257, (1, 8192), 16),
    ],
)
def test_rows(rows: int, columns: int, blocks: tuple[int, ...], warps: int) -> None:
    (made,) = mappings(lambda x: x.softmax(-1), empty(rows, columns))
    assert shape(made) == (blocks, warps)
    assert made.looped == (columns > 16384)


def test_columns_are_read_beside_each_other() -> None:
    """Though the rows' means, of which there are few, lie along them."""
    (made,) = mappings(lambda x, m: ((x - m) * x).sum(0), empty(256, 65536), empty(256, 1))
    assert shape(made) == ((64, 64), 4)
    assert [axis.dims for axis in made.axes] == [(0,), (1,)]


@pytest.mark.parametrize("dtype, side, warps", [(torch.float32, 32, 4), (torch.bfloat16, 64, 16)])
def test_transposed_points(dtype: torch.dtype, side: int, warps: int) -> None:
    """Squares, of which each side is read, or written, along memory."""
    (made,) = mappings(lambda x, t: x + t.t(), empty(2048, 1024, dtype=dtype), empty(1024, 2048, dtype=dtype))
    assert shape(made) == ((side, side), warps) and made.grid == (2048 // side, 1024 // side)
    channels_last = lambda x: F.relu(x).contiguous(memory_format=torch.channels_last)
    (made,) = mappings(channels_last, empty(8, 64, 56, 56, dtype=dtype))
    assert shape(made) == ((side, side), warps)
    assert [len(axis.dims) for axis in made.parallel] == [2, 1]


def test_a_small_transposed_side_stays_flat() -> None:
    (made,) = mappings(lambda x, t: x + t.t(), empty(2048, 3), empty(3, 2048))
    assert len(made.axes) == 1
