"""How many guards the sizes of a program take: few, and no more for a deeper model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from benchmarks.models import WORKLOADS

import torchglass as tg
from torchglass.records.sources import Computed, is_tensor_size


def guards_on_sizes(function: Any, *args: Any, **kwargs: Any) -> list[str]:
    """The texts of an entry's guards on sizes that are left open."""
    compiled: Any = tg.compile(function, dynamic=True, fullgraph=True, backend="eager")
    with torch.no_grad():
        compiled(*args, **kwargs)
    (entry,) = tg.explain(compiled).all_entries()
    computed = (g.source for g in entry.guards if isinstance(g.source, Computed))
    return [s.render() for s in computed if any(is_tensor_size(leaf) for leaf in s.leaves())]


def many_questions(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[0]
    for bound in range(6):
        if n > bound:
            x = x + 1
    if n == 1 or n < 3 or n != x.shape[1] + n:
        x = x * 2
    return x


def halved(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[0]
    return x * 2 if n // 2 == n // 4 * 2 and n // 4 * 4 == n else x


@pytest.mark.parametrize(
    ("function", "guards"),
    [
        (many_questions, ["x.shape[0] >= 6", "x.shape[1] >= 1"]),
        (halved, ["x.shape[0] >= 1", "x.shape[1] >= 1", "(4 * (x.shape[0] // 4)) == x.shape[0]"]),
    ],
)
def test_what_follows_from_another_guard_is_none(function: Any, guards: list[str]) -> None:
    assert guards_on_sizes(function, torch.randn(8, 5)) == guards


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_model_takes_six(name: str) -> None:
    few, many = (WORKLOADS[name].build(layers=layers) for layers in (2, 5))
    found = [guards_on_sizes(model.eval(), **inputs) for model, inputs in (few, many)]
    assert found[0] == found[1]
    assert len(found[0]) <= 6
