"""Tensors of 2**31 elements, one less and one more: every element of what is compiled is eager's.

Eager computes its side in parts, which 32 bits count. A test takes at most 18 GB of the GPU's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.gpu.compiled import DEVICE, generated, needs_gpu

import torchglass as tg

pytestmark = needs_gpu

LIMIT = 2**31
PART = 2**28
GIGABYTE = 2**30
Fn = Callable[..., Any]


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    """Enough of it, or the test is skipped; given back at its end."""
    torch.cuda.empty_cache()
    if torch.cuda.mem_get_info()[0] < 20 * GIGABYTE:
        pytest.skip("needs 20 GB of a GPU's memory")
    yield
    tg.reset()
    torch.cuda.empty_cache()


def filled(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Numbers that no part of the tensor has as another part has them."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    made = torch.empty(shape, dtype=dtype, device=DEVICE)
    return made.normal_(generator=generator) if dtype.is_floating_point else made.random_(-64, 64, generator=generator)


def compiled(fn: Fn, *args: Any) -> Any:
    """What a compiled function returns."""
    call = tg.compile(fn, fullgraph=True)
    got = call(*args)
    generated(call)
    return got


def same_by_parts(fn: Fn, got: torch.Tensor, *args: torch.Tensor) -> None:
    """Whether ``fn`` of parts along the first dimension gives the parts of ``got``."""
    step = max(1, PART // max(1, got[0].numel()))
    for begin in range(0, len(got), step):
        part = slice(begin, begin + step)
        assert torch.equal(fn(*(x[part] for x in args)), got[part]), f"differs from {begin} on"


@pytest.mark.parametrize("count", [LIMIT - 1, LIMIT, LIMIT + 1], ids=["one less", "2**31", "one more"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.float16])
def test_elements(dtype: torch.dtype, count: int) -> None:
    fn = lambda x, y: (x * 2 + y).clamp(-50, 50)
    x, y = (filled(count, dtype=dtype, seed=seed) for seed in (0, 1))
    same_by_parts(fn, compiled(fn, x, y), x, y)


@pytest.mark.parametrize("count", [LIMIT - 1, LIMIT + 1], ids=["one less", "one more"])
def test_sums_of_all(count: int) -> None:
    x = filled(count, dtype=torch.int8)
    x[-1] = 127
    total, largest = compiled(lambda x: (x.sum(), x.amax()), x)
    assert int(total) == sum(int(part.sum()) for part in x.split(PART)) and int(largest) == 127


def test_rows() -> None:
    """Each row is short, all together are not."""
    x = filled(2**16 + 1, 2**15 + 1, dtype=torch.float16)
    got, sums = compiled(lambda x: (torch.softmax(x * 2, -1), x.float().sum(-1)), x)
    for rows in (slice(0, 512), slice(2**15 - 256, 2**15 + 256), slice(-512, None)):
        torch.testing.assert_close(got[rows], torch.softmax(x[rows] * 2, -1), atol=1e-5, rtol=1e-2)
        torch.testing.assert_close(sums[rows], x[rows].float().sum(-1), atol=1e-2, rtol=1e-3)


def test_columns() -> None:
    x = filled(2**22 + 1, 513, dtype=torch.int8)
    got = compiled(lambda x: x.sum(0), x)
    assert torch.equal(got, sum(part.sum(0) for part in x.split(2**19)))


def test_columns_and_rows_change_places() -> None:
    side = 46341  # the smallest whose square is more
    x, y = (filled(side, side, dtype=torch.int8, seed=seed) for seed in (0, 1))
    fn = lambda x, y: x.t() * 2 + y
    got = compiled(fn, x, y)
    for rows in (slice(0, 64), slice(side // 2, side // 2 + 64), slice(-64, None)):
        assert torch.equal(got[rows], x[:, rows].t() * 2 + y[rows])


def test_reads_at_places_beyond() -> None:
    x = filled(LIMIT + 4099, dtype=torch.int8)
    places = torch.arange(LIMIT - 4096, LIMIT + 4099, device=DEVICE).flip(0)
    fn = lambda x, places: (x[places] + 1, x.gather(0, places) + 2, x[-places] + 3)
    for want, got in zip(fn(x, places), compiled(fn, x, places)):
        assert torch.equal(want, got)


@pytest.mark.parametrize("kind", [torch.int32, torch.int64], ids=["int32", "int64"])
def test_rows_of_a_table_beyond(kind: torch.dtype) -> None:
    """The rows' numbers fit 32 bits, what they are multiplied to does not."""
    rows, columns = 2**22 + 1, 513
    table = filled(rows, columns, dtype=torch.float16)
    places = torch.cat((torch.arange(64), torch.arange(rows - 8192, rows))).to(DEVICE, kind)
    fn = lambda table, places: F.embedding(places, table) * 2
    assert torch.equal(fn(table, places), compiled(fn, table, places))


def test_writes_at_places_beyond() -> None:
    x = filled(LIMIT + 4099, dtype=torch.int8)
    places = torch.arange(LIMIT - 4096, LIMIT + 4099, 3, device=DEVICE)
    values = filled(len(places), dtype=torch.int8, seed=1)

    def fn(x: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return (x + 1).index_put((places,), values * 2)

    assert torch.equal(fn(x, places, values), compiled(fn, x, places, values))


def test_gradients_of_a_table_beyond() -> None:
    rows, columns = 2**21 + 1, 1025
    table = filled(rows, columns, dtype=torch.float16).requires_grad_()
    places = torch.arange(rows - 4096, rows, device=DEVICE)
    call = tg.compile(lambda table, places: F.embedding(places, table).float().square().sum(), fullgraph=True)
    call(table, places).backward()
    assert table.grad is not None
    assert torch.equal(table.grad[-4096:], 2 * table.detach()[-4096:])
    assert not any(bool(part.any()) for part in table.grad[:-4096].split(2**18))
