"""Branches on sizes that are taken whatever the sizes are, and such of which the program sees the two sides."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchglass as tg

from .test_changing_sizes import entries


def unequal(x: torch.Tensor) -> torch.Tensor:
    places = torch.arange(x.shape[1])[None]
    if x.shape[0] != places.shape[0]:
        places = places.expand(x.shape[0], -1)
    return x * places


def negated(x: torch.Tensor) -> torch.Tensor:
    first = x[:1].sin()
    if not x.shape[0] == first.shape[0]:  # noqa: SIM201 - another jump than !=
        first = first.expand_as(x)
    return first * 2


def bounded(x: torch.Tensor) -> torch.Tensor:
    first = x[:1] + 1
    n = len(x)
    if n > 1:
        first = first.expand(n, x.size(1))
    return first.sum(0)


@pytest.mark.parametrize("function", [unequal, negated, bounded])
def test_one_entry_for_both_sides(function: Callable[..., Any]) -> None:
    compiled = tg.compile(function, dynamic=True)
    for b in (3, 1, 2):
        x = torch.arange(b * 5.0).view(b, 5)
        torch.testing.assert_close(compiled(x), function(x))
    assert entries(compiled) == 1


said: list[str] = []


def an_argument(x: torch.Tensor, row: torch.Tensor) -> Any:
    if x.shape[0] != 1:
        row = row.expand(x.shape[0], -1)
    return row


def both_leave(x: torch.Tensor, row: torch.Tensor) -> Any:
    row = kept = row * 2
    if x.shape[0] != 1:
        row = row.expand(x.shape[0], -1)
    return kept, row


def told_apart(x: torch.Tensor, row: torch.Tensor) -> Any:
    row = kept = row * 2
    if x.shape[0] != 1:
        row = row.expand(x.shape[0], -1)
    return row + 1 if row is kept else row - 1


def another_number(x: torch.Tensor, row: torch.Tensor) -> Any:
    row = row * 2
    if x.shape[0] != 3:
        row = row.expand(x.shape[0] + 1, -1)
    return row


def more_dimensions(x: torch.Tensor, row: torch.Tensor) -> Any:
    row = row * 2
    if x.shape[0] != 1:
        row = row.expand(2, x.shape[0], -1)
    return row


class Speaking:
    def expand(self, row: torch.Tensor, n: int) -> torch.Tensor:
        said.append("expanded")
        return row.expand(n, -1)


def with_effects(x: torch.Tensor, row: torch.Tensor) -> Any:
    row = row * 2
    if x.shape[0] != 1:
        row = Speaking().expand(row, x.shape[0])
    return row * 3


def raising(x: torch.Tensor, row: torch.Tensor) -> Any:
    row = row * 2
    if x.shape[0] != 1:
        row = row.expand(x.shape[0], 7)
    return row * 3


def as_keys(x: torch.Tensor, row: torch.Tensor) -> Any:
    row = kept = row * 2
    if x.shape[0] != 1:
        row = row.expand(x.shape[0], -1)
    return row + len({row, kept}) + (id(row) == id(kept))


def copied(x: torch.Tensor, row: torch.Tensor) -> Any:
    row = kept = row * 2
    if x.shape[0] != 1:
        row = row.expand(x.shape[0], -1)
    if x.shape[0] > 1:
        return row
    one, other = copy.deepcopy([row, kept])
    return row + (one is other)


def turned(x: torch.Tensor, row: torch.Tensor) -> Any:
    row = kept = row * 2
    if x.shape[0] != 1:
        row = row.expand(x.shape[0], -1)
    row.t_()
    return row + row._is_view(), kept


def calls_what_it_holds(x: torch.Tensor, row: torch.Tensor) -> Any:
    row, say, sizes = row * 2, said.append, iter([x.shape[0], 5])
    if x.shape[0] != 1:
        row = (say("expanded"), row.expand(x.shape[0], -1))[1]
    if x.shape[0] != 1:
        row = row.expand(*sizes)
    return row + len(list(sizes))


def differentiated(x: torch.Tensor, row: torch.Tensor) -> Any:
    row = kept = row.requires_grad_() * 2
    if x.shape[0] != 1:
        row = row.expand(x.shape[0], -1)
    return torch.autograd.grad((row * x).sum() + kept.sum(), [row, kept])


OBSERVED = [
    an_argument, both_leave, told_apart, another_number, more_dimensions, with_effects, raising, as_keys, copied,
    turned, calls_what_it_holds, differentiated,
]  # fmt: skip


@pytest.mark.parametrize("sizes", [(3, 1, 2), (1, 4, 2)], ids=["taken first", "skipped first"])
@pytest.mark.parametrize("function", OBSERVED)
def test_what_the_program_sees(function: Callable[..., Any], sizes: tuple[int, ...]) -> None:
    compiled = tg.compile(function, backend="aot_eager", dynamic=True)
    for b in sizes:
        seen = []
        for one in (function, compiled):
            said.clear()
            row = torch.arange(5.0)[None]
            try:
                result = one(torch.ones(b, 5), row)
            except RuntimeError:
                seen.append((type(RuntimeError), tuple(said)))
                continue
            made = result if isinstance(result, tuple) else (result, row)
            seen.append(([*map(torch.Tensor.tolist, made)], made[0] is made[1], tuple(said)))
        assert seen[0] == seen[1]
