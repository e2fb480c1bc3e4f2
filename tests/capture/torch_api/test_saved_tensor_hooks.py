"""Hooks for saved tensors that are entered inside a compiled function see what eager saves."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchglass as tg
from torchglass.errors import GraphBreakError

hooks = torch.autograd.graph.saved_tensors_hooks
packed: list[str] = []


def pack(tensor: torch.Tensor) -> torch.Tensor:
    packed.append("packed")
    return tensor + 1


def same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def block(x: torch.Tensor) -> torch.Tensor:
    return x.exp() * x


def within(x):
    y = x * 3
    with hooks(pack, same):
        z = y.exp() * y
    return z.sin() * 2


def within_a_function(x):
    return within(x * 2) + block(x)


def calling_a_function(x):
    with hooks(pack, same):
        y = block(x).sin()
    return block(y)


@contextlib.contextmanager
def packing():
    with hooks(pack, same):
        yield


def by_a_context_manager(x):
    with packing():
        y = block(x)
    return y * 2


def in_a_loop(x):
    for _ in range(2):
        with hooks(pack, same):
            x = block(x)
    return x


def on_a_stack(x):
    with contextlib.ExitStack() as stack:
        stack.enter_context(hooks(pack, same))
        return block(x)


def in_a_try(x):
    try:
        with hooks(pack, same):
            y = block(x)
            raise KeyError
    except KeyError:
        return block(y)


def left_entered(x):
    torch._C._autograd._push_saved_tensors_default_hooks(pack, same)
    y = block(x)
    torch._C._autograd._pop_saved_tensors_default_hooks()
    return y


FUNCTIONS: list[Callable[..., Any]] = [
    within,
    within_a_function,
    calling_a_function,
    by_a_context_manager,
    in_a_loop,
    on_a_stack,
    in_a_try,
    left_entered,
]


def seen(function: Callable[..., Any]) -> tuple[int, list[float]]:
    packed.clear()
    x = torch.tensor([0.5, 0.25, 0.125], requires_grad=True)
    function(x).sum().backward()
    assert x.grad is not None
    return len(packed), x.grad.tolist()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_hooks_see_what_eager_saves(function: Callable[..., Any]) -> None:
    count, gradient = seen(function)
    compiled = tg.compile(function)
    for _ in range(2):
        found, values = seen(compiled)
        assert found == count
        torch.testing.assert_close(values, gradient)


def test_what_is_before_and_around_the_hooks_is_compiled() -> None:
    compiled = tg.compile(within_a_function)
    seen(compiled)
    record = tg.explain(compiled).record
    assert record.entries and not record.fallbacks
    assert any(len(resume.entries) for resume in record.resumes)


def test_fullgraph_says_why() -> None:
    with pytest.raises(GraphBreakError, match="hooks for saved tensors"):
        tg.compile(within, fullgraph=True)(torch.ones(3, requires_grad=True))


def test_what_save_on_cpu_is_around_is_compiled() -> None:
    def saving(x):
        with torch.autograd.graph.save_on_cpu():
            return x.exp() * x

    compiled = tg.compile(saving)
    torch.testing.assert_close(seen(compiled)[1], seen(saving)[1])
    record = tg.explain(compiled).record
    assert any(entry.graphs for resume in record.resumes for entry in resume.entries)
