"""What eager refuses at other sizes than those that a program was compiled for is refused then too, never read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torchglass as tg

Shapes = list[tuple[int, ...]]
CASES: dict[str, tuple[Callable[[Any, Any], Any], Shapes, Shapes]] = {
    "select": (lambda x, y: x.select(0, 3) + torch.select(x, 0, -2), [(10, 4), (8, 4), (2, 4)], [(4,)] * 3),
    "gather": (lambda x, y: x.gather(1, y.long()), [(6, 5), (5, 5), (4, 5)], [(4, 5), (3, 5), (5, 5)]),
    "scatter_add": (
        lambda x, y: torch.zeros_like(x).scatter_add(0, torch.zeros_like(y).long(), y),
        [(6, 5), (5, 5), (4, 5)], [(4, 5), (3, 5), (3, 6)],
    ),
    "layer_norm": (lambda x, y: F.layer_norm(x, (4,), y), [(6, 4), (5, 4), (5, 5)], [(4,)] * 3),
    "add": (lambda x, y: x + y, [(6,), (5,), (4,)], [(6,), (5,), (3,)]),
    "copy": (lambda x, y: x.clone().copy_(y), [(6,), (5,), (4,)], [(6,), (5,), (3,)]),
    "slice_scatter": (lambda x, y: x.slice_scatter(y, 0, 1, 4), [(6,), (5,), (4,)], [(3,), (3,), (2,)]),
    "index_add": (
        lambda x, y: x.index_add(0, torch.arange(y.shape[0]), y), [(6, 2), (5, 2), (3, 2)], [(3, 2), (4, 2), (4, 2)],
    ),
    "as_strided before the memory": (
        lambda x, y: x.as_strided((2, 2), (1, 1), 7 - x.shape[0]) * y, [(6, 3), (5, 3), (9, 3)], [(2,)] * 3,
    ),
    "as_strided of less": (
        lambda x, y: (x * 1).as_strided((7 - x.shape[0], 2), (1, 1)).sum() * y, [(6, 3), (5, 3), (9, 3)], [(2,)] * 3,
    ),
    "pad": (lambda x, y: F.pad(x, (-3, 0)) + y.sum(), [(6,), (5,), (2,)], [(3,)] * 3),
    "attention": (
        lambda x, y: F.scaled_dot_product_attention(x[:, None], y[:, None], y[:, None]),
        [(2, 6, 4), (2, 5, 4), (2, 4, 4)], [(2, 6, 4), (2, 3, 4), (1, 3, 4)],
    ),
    "mm": (lambda x, y: x @ y, [(6, 4), (5, 3), (4, 3)], [(4, 2), (3, 2), (2, 2)]),
    "addmm": (lambda x, y: torch.addmm(y, x, x.T), [(6, 4), (5, 4), (4, 4)], [(6, 6), (5, 5), (3, 4)]),
    "index": (lambda x, y: x[y.long() * 0 + 3], [(6,), (5,), (3,)], [(3,)] * 3),
    "cat": (lambda x, y: torch.cat([x, y], 1), [(6, 2), (5, 2), (3, 2)], [(6, 2), (5, 2), (4, 2)]),
    "narrow": (lambda x, y: x.narrow(0, 2, 3), [(6, 2), (5, 2), (3, 2)], [(2,)] * 3),
    "as_strided": (lambda x, y: x.as_strided((4,), (1,)), [(6,), (5,), (3,)], [(2,)] * 3),
    "as_strided to another's size": (
        lambda x, y: x.as_strided((y.shape[0],), (1,)), [(6,), (5,), (6,)], [(2,), (4,), (8,)],
    ),
    "as_strided nobody reads": (
        lambda x, y: ((x * 2).as_strided((y.shape[0],), (1,)), x + 1)[1], [(6,), (5,), (6,)], [(2,), (4,), (8,)],
    ),
    "interpolate": (
        lambda x, y: F.interpolate(x[None, None], size=y.shape[0] // 4), [(6,), (5,), (7,)], [(5,), (9,), (3,)],
    ),
    "unfold": (lambda x, y: x.unfold(0, 4, 1), [(6,), (5,), (3,)], [(2,)] * 3),
    "windows nobody reads": (
        lambda x, y: (x.unfold(0, 3 - y.shape[0], 1), x + 1)[1], [(6,), (5,), (6,)], [(1,), (2,), (4,)],
    ),
    "classes nobody reads": (
        lambda x, y: (F.one_hot(y.long() + 3, x.shape[0]), x + 1)[1], [(6,), (5,), (3,)], [(1,), (2,), (2,)],
    ),
    "index_put": (lambda x, y: x.clone().index_put_((torch.arange(3),), y), [(6,), (5,), (2,)], [(3,)] * 3),
    "split": (lambda x, y: sum(t.sum() for t in x.split([2, 3])), [(5, 2), (5, 3), (4, 3)], [(2,)] * 3),
    "pool": (lambda x, y: F.max_pool1d(x, 3), [(1, 2, 6), (1, 2, 5), (1, 2, 2)], [(2,)] * 3),
    "topk": (lambda x, y: x.topk(3).values, [(6,), (5,), (2,)], [(3,)] * 3),
    "maximum of nothing": (lambda x, y: x[2:].max(), [(6,), (5,), (2,)], [(3,)] * 3),
    "view": (lambda x, y: x.view(2, -1), [(6,), (4,), (5,)], [(3,)] * 3),
}  # fmt: skip


def outcome(function: Callable[[Any, Any], Any], *args: Any) -> Any:
    try:
        return function(*args)
    except (RuntimeError, IndexError) as error:
        return type(error)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_sizes_that_do_not_fit(name: str, training: bool) -> None:
    function, left, right = CASES[name]
    compiled = tg.compile(function)
    for seed, shapes in enumerate(zip(left, right)):
        torch.manual_seed(seed)
        x, y = (torch.rand(shape) for shape in shapes)
        x.requires_grad_(training)
        eager, ours = outcome(function, x, y), outcome(compiled, x, y)
        if isinstance(eager, type):
            assert ours is eager
        else:
            torch.testing.assert_close(ours, eager)
