"""Operands whose sizes do not fit are errors as in eager, also where fake tensors take them, and no reads beyond."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchglass as tg


def assigned(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[torch.arange(x.shape[0])] = y
    return x


def in_columns(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[:, torch.arange(x.shape[1])] = y
    return x


WRITES: dict[str, Callable[..., Any]] = {
    "setitem": assigned,
    "setitem in columns": in_columns,
    "index_put": lambda x, y: x.index_put((torch.arange(x.shape[0]),), y),
    "index_put_": lambda x, y: x.clone().index_put_((torch.arange(x.shape[0]),), y, accumulate=True),
    "index_add": lambda x, y: x.index_add(0, torch.arange(x.shape[0]), y),
    "index_add_": lambda x, y: x.clone().index_add_(0, torch.arange(x.shape[0]), y),
    "index_copy_": lambda x, y: x.clone().index_copy_(0, torch.arange(x.shape[0]), y),
    "scatter_add_": lambda x, y: x.clone().scatter_add_(0, torch.zeros(y.shape, dtype=torch.long), y),
    "select_scatter": lambda x, y: x.select_scatter(y[0], 0, 0),
}
SHAPES = (
    ((6, 4), (6, 4)), ((4, 4), (4, 1)), ((4, 2), (3, 2)), ((2, 1), (2, 4)), ((3, 3), (1, 3)), ((90, 90), (80, 90)),
)  # fmt: skip


@pytest.mark.parametrize("backend", ["aot_eager", "glass"])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("write", WRITES)
def test_sizes_that_do_not_fit(write: str, dynamic: bool | None, backend: str) -> None:
    function = WRITES[write]
    compiled: Any = tg.compile(function, dynamic=dynamic, backend=backend)
    for one, other in SHAPES:
        x, y = torch.rand(one), torch.rand(other)
        try:
            expected = function(x, y)
        except (RuntimeError, IndexError) as error:
            with pytest.raises(type(error)):
                compiled(x, y)
        else:
            torch.testing.assert_close(compiled(x, y), expected)
