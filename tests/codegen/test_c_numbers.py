"""Kernels that are equal but for their numbers: one function where they are many, each with numbers of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from tests.codegen.harness import check

import torchglass as tg


def apart(row, count):
    """A kernel for each number: a product stands before it."""

    def program(x, w):
        return tuple(row(x @ w, k) for k in range(count))

    return program


def pointwise(x, k):
    return torch.sin(x * (k + 2)) + k


def rows(x, k):
    return (x * (k + 2)).softmax(-1) / (k + 3)


def columns(x, k):
    return (x * (k + 2.5)).sum(0) * (k + 0.5) + (k + 7)


def total(x, k):
    return (x + k).sum() * (k + 2) + (k + 3)


def masked(x, k):
    return torch.where(x > k / 8, x * (k + 2), float("-inf")).amax(-1)


def transposed(x, k):
    return (x.t() * (k + 2)).contiguous() + (k + 3)


def doubles(x, k):
    return (x.double() * (k + 2.1)).float() * (k + 3.1)


def filled(x, k):
    return torch.full_like(x, k + 2.5)


PROGRAMS = (pointwise, rows, columns, total, masked, transposed, doubles, filled)


def inputs():
    return [torch.randn(33, 65), torch.randn(65, 65) / 8]


def functions(source: str) -> int:
    return len(re.findall(r"^static void kernel_\d+\(", source, re.MULTILINE))


@pytest.mark.parametrize("row", PROGRAMS)
def test_many_share_a_function(row, tmp_path: Path) -> None:
    made = check(apart(row, 24), inputs(), tmp_path, tol=2e-5)
    text = made.sources.texts["c"]
    assert len(made.sources.kernels) >= 24 > 3 >= functions(text)
    assert text.count("with numbers of its own") == len(made.sources.kernels) - functions(text)
    assert all("_call(void** a)" in kernel.source for kernel in made.sources.kernels)


def test_few_keep_their_numbers(tmp_path: Path) -> None:
    made = check(apart(pointwise, 4), inputs(), tmp_path)
    assert functions(made.sources.texts["c"]) == len(made.sources.kernels) == 4
    assert "numbers" not in made.sources.texts["c"]


def test_inputs_called_numbers() -> None:
    def program(numbers, doubles):
        return tuple(pointwise(numbers @ doubles, k) for k in range(24))

    numbers, doubles = inputs()
    torch.testing.assert_close(tg.compile(program)(numbers, doubles), program(numbers, doubles))


def test_tried_ways_are_each_kernels_own() -> None:
    compiled, args = tg.compile(apart(rows, 12), mode="max-autotune"), inputs()
    torch.testing.assert_close(compiled(*args), apart(rows, 12)(*args))
