"""Triton compiles what is printed, for an H100 that need not be here; tests/gpu runs it on one.

The stand-in of ``triton_on_torch`` knows neither types nor what Triton has no function for. This does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.codegen.test_graphs import GRAPHS, make, with_gradients
from tests.codegen.test_triton_text import (
    BINARY,
    GPU,
    INTEGERS,
    LAYOUTS,
    PROGRAMS,
    SCANNING,
    SHORT_ROWS,
    UNARY,
    fused,
    special,
)  # fmt: skip
from tests.codegen.triton_compile import compiled
from tests.lower import test_scans as scans

from torchglass import codegen, schedule
from torchglass.records.target import Targets

pytest.importorskip("triton")


@pytest.fixture
def compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Print a function's kernels and compile them, with nothing left in the user's cache."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))

    def run(fn: Callable[..., Any], args: Sequence[torch.Tensor], targets: Targets = GPU) -> None:
        scheduled = schedule.run(fused(fn, args), targets)
        made = compiled(scheduled, codegen.run(scheduled, targets), tmp_path)
        assert len(made) == len(scheduled.schedules)
        assert all(".target sm_90" in kernel.asm["ptx"] and kernel.asm["cubin"] for kernel in made.values())

    return run


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name: str, compiles: Callable[..., None]) -> None:
    fn, args = GRAPHS[name]
    compiles(fn, args)
    compiles(with_gradients(fn), args)


@pytest.mark.parametrize("name", PROGRAMS)
def test_long_rows(name: str, compiles: Callable[..., None]) -> None:
    fn, args = PROGRAMS[name]
    compiles(fn, args, SHORT_ROWS)
    compiles(fn, [a.bfloat16() for a in args], SHORT_ROWS)


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name: str, compiles: Callable[..., None]) -> None:
    compiles(*LAYOUTS[name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_functions(dtype: torch.dtype, compiles: Callable[..., None]) -> None:
    x = special().to(dtype)
    compiles(lambda x: tuple(getattr(torch, name)(x) for name in UNARY.split()), [x])
    compiles(lambda x, y: tuple(getattr(torch, name)(x, y) for name in BINARY.split()), [x, x.flip(0)])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8])
def test_integers(dtype: torch.dtype, compiles: Callable[..., None]) -> None:
    i = torch.arange(-9, 9).view(2, 9)
    for fn in INTEGERS.values():
        compiles(fn, [i.to(dtype), i.flip(0, 1).to(dtype)])


@pytest.mark.parametrize("targets", [GPU, SHORT_ROWS], ids=["whole", "in blocks"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_scans(dtype: torch.dtype, targets: Targets, compiles: Callable[..., None]) -> None:
    compiles(scans.every, [scans.numbers((4, 100), dtype)], targets)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCANNING.split()[1:])  # strided is every, three times
def test_scans_with_what_surrounds_them(name: str, compiles: Callable[..., None]) -> None:
    compiles(getattr(scans, name), [make(24, 40)])
    compiles(getattr(scans, name), [make(24, 40)], SHORT_ROWS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_with_the_sums_of_their_columns(dtype: torch.dtype, compiles: Callable[..., None]) -> None:
    """Of the size at which they are one kernel; nothing is computed here."""
    args = [torch.empty(8192, 768, dtype=dtype), torch.empty(768, dtype=dtype), torch.empty(768, dtype=dtype)]
    norm = with_gradients(lambda x, w, b: torch.nn.functional.layer_norm(x, (768,), w, b))
    (first, _) = schedule.run(fused(norm, args), GPU).schedules
    assert [axis.kind for axis in first.mapping.axes] == ["parallel", "serial", "vector"]
    compiles(norm, args)


SINGLE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "pad": lambda a: torch.nn.functional.pad(a[:1], [1, -1]),
    "cat": lambda a: torch.cat([a[:1], a[:1] * 2])[1:].sin(),
    "roll": lambda a: a.roll(1, 0)[0] * 2,
}


@pytest.mark.parametrize("name", SINGLE)
def test_masked_reads_of_one_element(name: str, compiles: Callable[..., None]) -> None:
    """Their mask is a block of one, and so is the pointer."""
    compiles(SINGLE[name], [torch.ones(3)])
