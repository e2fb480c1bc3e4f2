"""The memory plan holds no dead memory for what comes later."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.codegen.harness import Compiled

from torchglass import torch_compat
from torchglass.records.kernels import Allocate, Free

Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def products_by_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which write into the graph's memory; oneDNN's, on some processors, bring their own."""
    monkeypatch.setattr(torch_compat.onednn, "_mkl_is_slow", lambda: False)


def waits(compiled: Compiled) -> list[int]:
    """For each buffer whose memory another one takes over: how many steps ran between."""
    ran, died, found = 0, {}, []
    for step in compiled.fused.steps:
        if isinstance(step, Free):
            died[step.buffer] = ran
        elif not isinstance(step, Allocate):
            ran += 1
        elif step.reuse:
            found.append(ran - died[step.reuse])
    return found


def chain(x: Tensor, *weights: Tensor) -> Tensor:
    for w in weights:
        x = torch.mm(x, w)
    return x


def compiled_chain(sizes: list[int], folder: Path) -> Compiled:
    """Products of as many rows as the first size, with the columns that ``sizes`` say."""
    args = [torch.randn(a, b) for a, b in zip(sizes[:1] + sizes, sizes)]
    return Compiled(chain, args, folder)


def test_memory_that_nothing_takes_over_at_once_is_given_back(tmp_path: Path) -> None:
    """Kept for the next wide product, it would stand beside all the narrow ones."""
    assert waits(compiled_chain([256, 128, 96, 112, 128, 144], tmp_path)) == []


def test_memory_of_what_died_a_step_ago_is_taken_over(tmp_path: Path) -> None:
    assert set(waits(compiled_chain([256] * 7, tmp_path))) == {0}


def test_small_memory_may_wait(tmp_path: Path) -> None:
    assert waits(compiled_chain([64, 32, 24, 28, 32, 36], tmp_path)) == [1]
