"""Numbers computed at the few places where they are read, instead of all of them before."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tests.codegen.harness import Compiled, check

from torchglass.fuse.inline_producers import inline_producers
from torchglass.records.loops import Loop
from torchglass.records.target import Targets

Tensor = torch.Tensor
ROWS, COLUMNS = 40, 24


def picked(x: Tensor, index: Tensor) -> Tensor:
    return (x.exp() * 2).gather(1, index)


def cross_entropy(x: Tensor, index: Tensor) -> Tensor:
    return F.cross_entropy(x, index[:, 0], ignore_index=3)


def smooth(x: Tensor, index: Tensor) -> Tensor:
    return F.cross_entropy(x, index[:, 0], label_smoothing=0.1, reduction="sum")


def chain(x: Tensor, index: Tensor) -> Tensor:
    y = x.view(2, -1, COLUMNS).sin() + 1  # over other dimensions than what reads it
    return (y.view(ROWS, COLUMNS) * 3)[index[:2, 0], index[:2, 0]]


def counted(x: Tensor, index: Tensor) -> Tensor:
    return torch.where(torch.arange(ROWS * COLUMNS).view(ROWS, COLUMNS) % 3 == 0, x, -x).gather(1, index)


def padded(x: Tensor, index: Tensor) -> Tensor:
    return F.pad(x, (0, 0, 1, 1))[:, ::3].gather(0, index[:2, :2])


def across(x: Tensor, index: Tensor) -> Tensor:
    return (x.t().contiguous() + 1).view(-1)[index.view(-1)]


def added_at_places(x: Tensor, index: Tensor) -> Tensor:
    return x.new_zeros(COLUMNS).index_add(0, index[:8, 0], x.exp()[::5, ::COLUMNS].view(-1))


def overwritten(x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    z = y.exp()
    return y.index_add(0, index[:2, 0], x[:2]), z.gather(1, index) + 1


def gathered_twice(x: Tensor, index: Tensor) -> Tensor:
    return x.gather(1, index.expand(-1, COLUMNS)).neg().gather(1, index)


def narrow_numbers(x: Tensor, index: Tensor) -> Tensor:
    return ((x * 100).to(torch.uint8) * 2).gather(1, index).to(torch.int32)


def diagonal(x: Tensor, index: Tensor) -> Tensor:
    return x.cos()[:COLUMNS].diagonal(), x.cos()


def cheap_in_no_order(x: Tensor, index: Tensor) -> Tensor:
    return x.exp().gather(1, index.expand(-1, COLUMNS))


def most_is_read(x: Tensor, index: Tensor) -> Tensor:
    y = torch.lerp(x.exp(), x.sin(), x.cos()) - x.tanh() * x.sigmoid()
    return F.gelu(y, approximate="tanh").gather(1, index.expand(-1, COLUMNS))


def returned(x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    y = x.exp()
    return y, y.gather(1, index)


def turned(x: Tensor, index: Tensor) -> Tensor:
    half = COLUMNS // 2
    return torch.cat((-x[:, half:], x[:, :half]), -1) * x.cos() - x


def three_parts(x: Tensor, index: Tensor) -> Tensor:
    return torch.cat((-x[:, :5], x[:, 3:9] * 2, x[::2].repeat(2, 1) - 1), -1) * 3 + 1


def parts_of_parts(x: Tensor, index: Tensor) -> Tensor:
    inner = torch.cat((-x[:7], x[5:] * 2)) + 1
    return torch.cat((inner[1:] - 2, -inner[:, 2:4].repeat(1, COLUMNS // 2))) * 0.5


def infinite_outside(x: Tensor, index: Tensor) -> Tensor:
    return torch.cat((-(x[:, :4] / x[:, :1].mul(0)), x[:, 4:]), -1) + 1


def padded_part(x: Tensor, index: Tensor) -> Tensor:
    return F.pad(-x[1:, 2:], (2, 0, 1, 0), value=-0.0) * x


def heavy_parts(x: Tensor, index: Tensor) -> Tensor:
    return torch.cat((x[:, :4].exp(), x[:, 4:].sin()), -1) * 2


def part_of_two_sums(x: Tensor, index: Tensor) -> Tensor:
    left, right = x.exp() + 1, x.sin() + 1
    return torch.cat(((left * right)[:, 3:] + 1, (left * right)[:, :3]), -1) * left


@pytest.mark.parametrize(
    "function, taken",
    [(picked, 2), (cross_entropy, 1), (smooth, 1), (chain, 3), (counted, 3), (padded, 1), (across, 1),
     (added_at_places, 1), (overwritten, 2),
     (gathered_twice, 1), (narrow_numbers, 3), (diagonal, 0), (most_is_read, 0), (cheap_in_no_order, 1),
     (returned, 0),
     (turned, 1), (three_parts, 3), (parts_of_parts, 4), (infinite_outside, 1), (padded_part, 1), (heavy_parts, 0),
     (part_of_two_sums, 5)],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_as_eager(function: Callable, taken: int, dtype: torch.dtype, tmp_path):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(ROWS, COLUMNS, generator=generator).to(dtype)
    index = torch.randint(0, COLUMNS, (ROWS, 1), generator=generator)
    compiled = check(function, [x, index], tmp_path, tol=0.03 if dtype is torch.bfloat16 else None)
    places = [d for d in compiled.fused.decisions if d.rule == "inline"]
    assert len(places) == taken and all(d.fused and d.bytes_saved > 0 for d in places)


def test_many_loops_take_linear_time(tmp_path):
    """No loop is looked at once for each other one."""
    seen = 0

    class Counted(Loop):
        @property
        def reads(self):
            nonlocal seen
            seen += 1
            return super().reads

    graph = Compiled(lambda *xs: [x + 1 for x in xs], [torch.ones(3) for _ in range(60)], tmp_path).graph
    fields = [f.name for f in dataclasses.fields(Loop)]
    nodes = tuple(Counted(**{f: getattr(node, f) for f in fields}) for node in graph.nodes)
    inline_producers(dataclasses.replace(graph, nodes=nodes), Targets())
    assert 0 < seen <= 4 * len(nodes)


def test_an_index_out_of_range_still_raises(tmp_path):
    x, index = torch.rand(ROWS, COLUMNS), torch.full((ROWS, 1), 2)
    compiled = check(picked, [x, index], tmp_path)
    index[5] = COLUMNS
    with pytest.raises(RuntimeError, match=f"index {COLUMNS} is out of bounds for dimension 1 with size {COLUMNS}"):
        compiled.call([x, index])


def test_the_loss_needs_no_memory_for_the_logarithms(tmp_path):
    compiled = check(cross_entropy, [torch.rand(ROWS, COLUMNS), torch.zeros(ROWS, 1, dtype=torch.int64)], tmp_path)
    assert compiled.fused.peak_bytes < 100
