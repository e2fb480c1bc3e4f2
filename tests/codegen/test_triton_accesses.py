"""How many bytes a thread moves at once, counted in the PTX that Triton makes for an H100: 16, the most there are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.codegen.test_graphs import with_gradients
from tests.codegen.test_triton_text import GPU, fused, toy
from tests.codegen.triton_compile import compiled

from torchglass import codegen, schedule

pytest.importorskip("triton")

Tensor = torch.Tensor
Counts = Callable[..., "list[tuple[Counter[int], Counter[int]]]"]
ASYNC = re.compile(r"cp\.async\.\w+\.shared\.global \[.*?\], \[.*?\], (0x\w+)")
ACCESS = re.compile(r"\b(ld|st)\.global(?:\.\w+(?:::\w+)?)*?(?:\.v(\d))?\.[bfsu](\d+)\s")


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counts:
    """By the bytes that they move how many loads a thread has, and how many stores, for each kernel of a function.

    A load that is asked for blocks ahead counts once for each block that is under way.
    """
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))

    def run(fn: Callable[..., Any], args: Sequence[Tensor]) -> list[tuple[Counter[int], Counter[int]]]:
        scheduled = schedule.run(fused(fn, args), GPU)
        made = compiled(scheduled, codegen.run(scheduled, GPU), tmp_path, aligned=16)
        return [accesses(made[s.name].asm["ptx"]) for s in scheduled.schedules]

    return run


def accesses(ptx: str) -> tuple[Counter[int], Counter[int]]:
    found: dict[str, Counter[int]] = {"ld": Counter(), "st": Counter()}
    for kind, lanes, bits in ACCESS.findall(ptx):
        found[kind][int(lanes or 1) * int(bits) // 8] += 1
    for size in ASYNC.findall(ptx):
        found["ld"][int(size, 16)] += 1
    return found["ld"], found["st"]


def norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], w, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_byte_is_moved_once_and_in_sixteens(dtype: torch.dtype, counts: Counts) -> None:
    """A thread has 16 points of toy, 32 of a softmax over 1,024 and of a norm over 768 (of whose row 8 are none)."""
    empty = lambda *sizes: torch.empty(sizes, dtype=dtype)
    items = 16 // dtype.itemsize
    assert counts(toy, [empty(4096, 4096), empty(4096, 4096)]) == [({16: 2 * 16 // items}, {16: 16 // items})]
    assert counts(lambda x: x.softmax(-1), [empty(16384, 1024)]) == [({16: 32 // items}, {16: 32 // items})]
    weights = [empty(768), empty(768)]
    assert counts(norm, [empty(16384, 768), *weights]) == [({16: 3 * 32 // items}, {16: 32 // items})]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_norm_with_its_gradients(dtype: torch.dtype, counts: Counts) -> None:
    """x once; y, dx, and the sums in float32."""
    sizes = [(16384, 1024), (1024,), (1024,)]
    first, _ = counts(with_gradients(norm), [torch.empty(s, dtype=dtype) for s in sizes])
    loads, stores = first
    items = 16 // dtype.itemsize
    assert loads == {16: (GPU.cpu.schedule.stages * 16 + 16) // items}  # and 16 of weights
    assert set(stores) == {16}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["transposed", "channels last", "heads", "shared row"])
def test_tiles_of_two_dimensions(name: str, dtype: torch.dtype, counts: Counts) -> None:
    empty = lambda *sizes: torch.empty(sizes, dtype=dtype)
    programs: dict[str, tuple[Callable[..., Tensor], list[Tensor]]] = {
        "transposed": (lambda x, t: x + t.t(), [empty(4096, 2048), empty(2048, 4096)]),
        "channels last": (
            lambda x: (x * 2).contiguous(memory_format=torch.channels_last), [empty(64, 64, 56, 56)],
        ),
        "heads": (lambda x: (x.view(32, 512, 12, 64).transpose(1, 2) * 2).contiguous(), [empty(16384, 768)]),
        "shared row": (lambda x, y: x + y[:, None], [empty(64, 64, 768), empty(64, 768)]),
    }  # fmt: skip
    ((loads, stores),) = counts(*programs[name])
    assert set(loads) == set(stores) == {16}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_odd_number_of_points(dtype: torch.dtype, counts: Counts) -> None:
    """Only the last block has a mask, which its threads need element by element."""
    ((loads, stores),) = counts(F.gelu, [torch.empty(3001, 3333, dtype=dtype)])
    items = 16 // dtype.itemsize
    assert loads == stores == {16: 16 // items, dtype.itemsize: 16}
