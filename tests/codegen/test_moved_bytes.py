"""The bytes that a kernel is said to move: each element that it touches, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from torchglass import codegen, fuse, lower, schedule
from torchglass.records.target import Targets

ROWS = torch.randn(128, 64)
TARGETS = Targets()


@pytest.mark.parametrize(
    ("fn", "args", "moved"),
    [
        (lambda x: F.softmax(x, -1), (ROWS,), 2 * 4 * 128 * 64),  # read by three loops, from memory once
        (lambda x: x[:, :32] * 2, (ROWS,), 2 * 4 * 128 * 32),  # half of what is there
        (lambda x: x[:, :32] + x[:, 32:], (ROWS,), 4 * 128 * (64 + 32)),  # all of it, by two accesses
        (lambda x: x.bfloat16(), (ROWS,), (4 + 2) * 128 * 64),
        (lambda x, i: x[i], (ROWS, torch.arange(8)), 8 * 8 + 2 * 4 * 8 * 64),  # eight rows and their numbers
        (lambda x, b: x + b, (ROWS, torch.randn(64)), 4 * (2 * 128 * 64 + 64)),  # what is repeated lies there once
    ],
)
def test_moved_bytes(fn: Callable[..., Any], args: tuple[torch.Tensor, ...], moved: int) -> None:
    graph = fuse.run(lower.run(make_fx(fn, tracing_mode="fake")(*args), TARGETS), TARGETS)
    (kernel,) = codegen.run(schedule.run(graph, TARGETS), TARGETS).kernels
    assert kernel.bytes == moved
