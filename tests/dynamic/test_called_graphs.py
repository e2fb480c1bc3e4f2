"""Sizes that change in functions that operators call: branches and loops leave them open, transforms take numbers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import torchglass as tg

from .test_changing_sizes import assert_equal, entries

Tensor = torch.Tensor


def branches(x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda t: t * t.shape[0], lambda t: t - t.shape[1], (x,))


def outside(x: Tensor) -> Any:
    """The branches read a tensor from outside, and operands lie otherwise than they are."""
    y = x.sin()
    return torch.cond(x.sum() > 0, lambda t: t @ y, lambda t: t[:, :1] @ y[:1], (x.t(),))


def rounds(x: Tensor) -> Any:
    return while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t * 1.5 + t.shape[0]), (torch.tensor(0), x))


def rows(x: Tensor) -> Any:
    return map_rows(lambda row, w: row.sin() * w, x, x.sum(0))


def carried(x: Tensor) -> Any:
    return scan(lambda c, row: (c + row, c * row), x[0] * 0, x)


def size_from_outside(x: Tensor) -> Any:
    n = x.shape[0]
    return torch.cond(x.sum() > 0, lambda t: t * n, lambda t: t - n, (x.sum(0),))


SUB_GRAPHS = {branches: 3, outside: 3, rounds: 2, rows: 4, carried: 4, size_from_outside: 4}
"""And how many entries they have at most: those that take sizes as numbers have one for each."""


def unsaid(caplog: pytest.LogCaptureFixture) -> bool:
    return not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("function", SUB_GRAPHS, ids=lambda function: function.__name__)
def test_sub_graphs(function: Callable[[Tensor], Any], caplog: pytest.LogCaptureFixture) -> None:
    compiled = tg.compile(function)
    for size in (3, 5, 7, 2):
        for sign in (1, -1):
            x = torch.rand(size, 4) * sign
            assert_equal(compiled(x), function(x))
    assert unsaid(caplog) and entries(compiled) <= SUB_GRAPHS[function]


def test_branches_are_differentiated(caplog: pytest.LogCaptureFixture) -> None:
    compiled = tg.compile(branches)
    for size in (3, 5, 7, 2):
        x = torch.rand(size, 4, requires_grad=True)
        weights = torch.rand(size, 4)
        found = [torch.autograd.grad((run(x) * weights).sum(), x) for run in (compiled, branches)]
        torch.testing.assert_close(*found)
    assert unsaid(caplog) and entries(compiled) <= 3


TRANSFORMS: dict[str, Callable[[Tensor], Any]] = {
    "vmap": lambda x: torch.vmap(lambda row: row[: x.shape[1] // 2] * x.shape[0])(x),
    "grad": lambda x: torch.func.grad(lambda t: (t**2).sum() * t.shape[1])(x),
    "jacrev": lambda x: torch.func.jacrev(lambda t: t**2 * t.shape[0])(x[0]),
    "named": lambda x: torch.vmap(lambda row: row.new_full(size=(x.shape[0],), fill_value=2.0) + row.sum())(x),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    compiled = tg.compile(TRANSFORMS[name])
    for size in (3, 5, 7):
        x = torch.randn(size, size + 1)
        assert_equal(compiled(x), TRANSFORMS[name](x))
    assert unsaid(caplog) and capfd.readouterr().err == ""
