"""Results that have nothing in common: what lies behind one is left alone by the backward of another, as in eager."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.autodiff import training_programs

import torchglass as tg

BACKENDS = ("aot_eager", "glass")


def apart(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return a * a, b.sin()


def written(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    a.mul_(2)
    return a, b.sin()


def leaves_and_more(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return a.exp() * a, b.sin() * b


def reads_the_other(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    first = a.exp()
    return first, b.sin() * first.detach()


def second_alone(f: Callable[..., Any], x: torch.Tensor) -> None:
    _, second = f(x.sqrt(), x * 1)
    second.sum().backward()


def second_after_a_write(f: Callable[..., Any], x: torch.Tensor) -> None:
    a = x.sqrt()
    _, second = f(a, x * 1)
    with torch.no_grad():
        a.fill_(0.3)
    second.sum().backward()


def one_after_the_other(f: Callable[..., Any], x: torch.Tensor) -> None:
    first, second = f(x.sqrt(), x.exp())
    second.sum().backward()
    first.expand(3, 5).sum().backward()


def what_lies_behind(f: Callable[..., Any], x: torch.Tensor) -> None:
    a = x.sqrt()
    _, second = f(a * 1, x.exp())
    second.sum().backward()
    a.sum().backward()


def together(f: Callable[..., Any], x: torch.Tensor) -> None:
    first, second = f(x.sqrt(), x.exp())
    (first.sum() + second.exp().sum()).backward(retain_graph=True)
    (first * second).sum().backward()


USES = (second_alone, second_after_a_write, one_after_the_other, what_lies_behind, together)


def outcome(f: Callable[..., Any], use: Callable[..., None]) -> torch.Tensor | str | None:
    x = torch.linspace(0.2, 1, 5).requires_grad_()
    try:
        use(f, x)
    except RuntimeError as error:
        return str(error)[:60]
    return x.grad


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("f", "use"),
    [
        *itertools.product((apart, written, leaves_and_more), USES),
        (reads_the_other, second_alone),  # the two are one node: see docs/limits.md
        (reads_the_other, together),
    ],
    ids=lambda function: function.__name__,
)
def test_backward_visits_what_eager_visits(f, use, backend):
    wanted, found = outcome(f, use), outcome(tg.compile(f, backend=backend), use)
    assert type(found) is type(wanted)
    if isinstance(wanted, torch.Tensor):
        torch.testing.assert_close(found, wanted)
    else:
        assert found == wanted


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_one_backward_has_read_is_freed(backend):
    x = torch.rand(1000).requires_grad_()
    first, second = tg.compile(leaves_and_more, backend=backend)(x * 1, x * 2)
    second.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        second.sum().backward()
    first.sum().backward()
    assert first.grad_fn is not second.grad_fn
    assert not set(first.grad_fn.next_functions) & set(second.grad_fn.next_functions)


def test_one_node_where_nothing_lies_behind():
    x, y = torch.rand(5).requires_grad_(), torch.rand(5).requires_grad_()
    first, second = tg.compile(apart)(x, y)
    assert first.grad_fn is second.grad_fn


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_dead_result_that_a_later_graph_writes_to(backend):
    """A square root is written to behind a graph break, and nobody reads its gradient."""
    assert not training_programs.difference(training_programs.Program(256), backend)
