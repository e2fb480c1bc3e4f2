"""Where operands lie differently, what is computed of them lies as in eager at all sizes, also by an entry that was
made at a size of 1, where every order of the dimensions is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchglass as tg

from .test_changing_sizes import entries

Maker = Callable[[int, int], tuple[torch.Tensor, ...]]


def made(b: int, t: int, *orders: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    """Tensors of [2, b, 3, t], each with its dimensions in this order in memory."""
    sizes = (2, b, 3, t)
    return tuple(
        torch.randn([sizes[dim] for dim in order]).permute([order.index(dim) for dim in range(4)]) for order in orders
    )


OPERANDS: dict[str, Maker] = {
    "turned": lambda b, t: (torch.randn(t, b).t(), torch.randn(b, t)),
    "turned second": lambda b, t: (torch.randn(b, t), torch.randn(t, b).t()),
    "channels last": lambda b, t: made(b, t, (0, 2, 3, 1), (0, 1, 2, 3)),
    "two orders": lambda b, t: made(b, t, (3, 1, 0, 2), (2, 0, 3, 1)),
    "expanded by the second": lambda b, t: (torch.randn(b, 1), torch.randn(t, b).t()),
    "rows of the first": lambda b, t: (made(b, t, (3, 2, 1, 0))[0], torch.randn(t)),
    "gaps": lambda b, t: (torch.randn(t + 2, b + 2)[1:-1, 1:-1].t(), torch.randn(t, b).t()),
}
FUNCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "sums": lambda x, y: (x + y, (y * 2) + (x + 1)),
    "copy": lambda x, y: (x.clone(), torch.zeros_like(x), x.to(torch.float64), x.sort(0)[0]),
    "in rows": lambda x, y: (x.masked_fill(x > 0, 1.0), x.softmax(-1), y.cumsum(0)),
    "asked": lambda x, y: z.view(-1) + 100 if (z := x * y).is_contiguous() else z.sum(0),
}
SEQUENCES = {
    "from one": ((1, 1), (4, 5), (1, 4), (5, 5)),
    "through one": ((3, 4), (1, 4), (4, 4), (4, 1), (5, 6)),
}


def assert_lies_as(ours: Any, eager: Any) -> None:
    """Equal, with equal strides wherever an address depends on them."""
    if not isinstance(ours, tuple):
        ours, eager = (ours,), (eager,)
    for one, other in zip(ours, eager, strict=True):
        torch.testing.assert_close(one, other)
        strides = ([s for s, n in zip(t.stride(), t.shape) if n != 1] for t in (one, other))
        assert next(strides) == next(strides)


@pytest.mark.parametrize("sizes", SEQUENCES.values(), ids=SEQUENCES)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("operands", OPERANDS.values(), ids=OPERANDS)
def test_results_lie_as_in_eager(operands: Maker, function: Callable[..., Any], sizes: Any) -> None:
    compiled = tg.compile(function, dynamic=True if sizes[0] == (1, 1) else None)
    for b, t in sizes:
        tensors = operands(b, t)
        assert_lies_as(compiled(*tensors), function(*tensors))


@pytest.mark.parametrize("sizes", [*SEQUENCES.values(), ((3, 4), (1, 1), (4, 4))])
def test_images_that_a_norm_takes_for_contiguous_at_sizes_of_one(sizes: Any) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.batch_norm(x, torch.zeros(3), torch.ones(3))

    compiled = tg.compile(function)
    for b, t in sizes:
        x = torch.randn(2, b, t, 3).permute(0, 3, 1, 2)
        assert_lies_as(compiled(x), function(x))


@pytest.mark.parametrize("operands", ["turned", "turned second", "channels last", "two orders", "rows of the first"])
def test_what_is_the_same_at_a_size_of_one_has_no_entry_for_it(operands: str) -> None:
    compiled = tg.compile(lambda x, y: (x + y, (y * 2).exp(), x.clone()), backend="eager")
    for b, t in ((4, 5), (3, 6), (1, 7), (5, 1), (1, 1), (2, 8)):
        compiled(*OPERANDS[operands](b, t))
    assert entries(compiled) == 2


# Tokens [b, h * w, 4] that become images [b, 4, h, w]: views of them, with the channels innermost.
IMAGES: dict[str, Callable[..., torch.Tensor]] = {
    "given": lambda x, h: x.mT.reshape(x.shape[0], -1, h, 6),
    "halves": lambda x, h: x.mT.reshape(x.shape[0], x.shape[2], x.shape[1] // 2, 2),
    "the rest": lambda x, h: x.mT.reshape(x.shape[0], -1, 2, x.shape[1] // 2),
    "flat": lambda x, h: x.mT.unflatten(2, (h, 6)).flatten(2).unflatten(2, (-1, 6)),
}
TOKENS = ((2, 8), (2, 10), (3, 7), (1, 7), (1, 9), (4, 5))


@pytest.mark.parametrize("backend", ["eager", "glass"])
@pytest.mark.parametrize("images", IMAGES.values(), ids=IMAGES)
def test_a_reshape_that_is_a_view_lies_as_one(images: Callable[..., torch.Tensor], backend: str) -> None:
    def function(x: torch.Tensor, h: int) -> Any:
        y = images(x, h)
        return y * 2, y + 1 if y.is_contiguous() else y - 1

    compiled = tg.compile(function, backend=backend)
    alone = tg.compile(lambda x, h: images(x, h) * 2, backend=backend)
    for b, h in TOKENS:
        x = torch.randn(b, h * 6, 4)
        assert_lies_as(compiled(x, h), function(x, h))
        assert_lies_as(alone(x, h), images(x, h) * 2)
    assert entries(alone) <= 4


@pytest.mark.parametrize("backend", ["aot_eager", "glass"])
def test_a_batch_of_one_whose_images_are_no_more_channels_last(backend: str) -> None:
    """Where the norm's backward is given what it takes for two layouts, PyTorch computes something else."""
    layers = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False), torch.nn.BatchNorm2d(4))

    def function(x: torch.Tensor, h: int) -> torch.Tensor:
        return layers(x.permute(0, 2, 1).view(x.shape[0], 4, h, 6)).flatten(2) * 2

    compiled = tg.compile(function, backend=backend, dynamic=True)
    for b, h in TOKENS:
        found = []
        for call in (compiled, function):
            x = torch.linspace(-1, 2, b * h * 24).view(b, h * 6, 4).sin().requires_grad_()
            result = call(x, h)
            weights = torch.linspace(-1, 1, result.numel()).view(result.shape)
            found.append([result, *torch.autograd.grad((result * weights).sum(), [x, *layers.parameters()])])
        assert found[0][0].stride() == found[1][0].stride()
        torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)
    assert entries(compiled) == 3  # a number and symbols, and the batch of one


def test_a_gradient_of_images_asks_nothing_of_a_batch_of_one() -> None:
    patches = torch.nn.Conv2d(3, 8, 2, stride=2)

    def function(x: torch.Tensor) -> torch.Tensor:
        return (patches(x).flatten(2).transpose(1, 2) * 2).softmax(-1)

    compiled = tg.compile(function, dynamic=True)
    for b, t in TOKENS:
        found = []
        for call in (compiled, function):
            result = call(torch.linspace(-1, 2, b * t * 24).view(b, 3, t, 8).sin())
            weights = torch.linspace(-1, 1, result.numel()).view(result.shape)
            found.append([result, *torch.autograd.grad((result * weights).sum(), list(patches.parameters()))])
        torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)
    assert entries(compiled) == 1


def test_of_equal_strides_the_smaller_dimension_lies_inside() -> None:
    compiled = tg.compile(lambda x: x * 2, dynamic=True)
    for count, size in ((9, 4), (5, 4), (4, 3), (11, 8), (7, 4)):
        x = torch.randn(count).unfold(0, size, 1)  # [count - size + 1, size], strides (1, 1)
        assert_lies_as(compiled(x), x * 2)
    assert entries(compiled) == 2


def test_of_strides_that_are_arguments_the_smaller_lies_inside() -> None:
    def function(x: torch.Tensor, a: int, b: int) -> Any:
        return x.as_strided((a, b), (a, a)) * 2, x.as_strided((a, b), (a, b)) * 2

    compiled = tg.compile(function, dynamic=True)
    for a, b in ((3, 4), (5, 4), (7, 6), (4, 4), (2, 8)):
        x = torch.randn(300)
        assert_lies_as(compiled(x, a, b), function(x, a, b))
