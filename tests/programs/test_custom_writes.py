"""Custom operators that write to arguments: the program sees what they wrote, in order, on every backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import torchglass as tg

# mypy: ignore-errors


@torch.library.custom_op("tg_writes::bump", mutates_args=("x",))
def bump(x: Tensor, by: float) -> None:
    x.add_(by)


@torch.library.custom_op("tg_writes::move", mutates_args=("x", "z"))
def move(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    x.mul_(2)
    z.copy_(y)
    return x.sum() + y


@move.register_fake
def _(x, y, z):
    return torch.empty_like(y)


@torch.library.custom_op("tg_writes::each", mutates_args=("xs",))
def each(xs: Sequence[Tensor], k: Tensor) -> None:
    for x in xs:
        x.add_(k)


torch.library.define("tg_writes::low", "(Tensor(a!) x, Tensor(b!)? z, Tensor w) -> (Tensor, Tensor)")


@torch.library.impl("tg_writes::low", "cpu")
def low(x, z, w):
    x.add_(5)
    if z is not None:
        z.add_(5)
    return x.clone(), w + x


@torch.library.register_fake("tg_writes::low")
def _(x, z, w):
    return x.clone(), w + x


PROGRAMS: dict[str, Callable[..., Any]] = {}


def program(function: Any) -> Any:
    PROGRAMS[function.__name__] = function
    return function


@program
def an_input(x, y):
    bump(x, 1.5)
    return x * 2 + y


@program
def views_of_an_input(x, y):
    tail, flat = x[1:], x.view(-1)
    bump(tail, 2.0)
    return flat * 2, x.sum(), tail + 1


@program
def views_of_a_result(x, y):
    z = x.sin()
    even = z[::2]
    bump(even, 1.0)
    bump(z, 3.0)
    return z * y, even


@program
def two_arguments_and_a_result(x, y):
    z = torch.zeros_like(y)
    result = move(x.detach(), y.detach(), z)
    return result, z, x


@program
def a_list_of_parts(x, y):
    a = x.cos() + y
    each([a[:2], a[2:]], torch.tensor(2.0))
    return a


@program
def an_optional_argument_left_out(x, y):
    one, other = torch.ops.tg_writes.low(x.detach(), None, y.detach())
    return one + other + y


@program
def parts_by_overload(x, y):
    z = y.detach().cos()
    one, other = torch.ops.tg_writes.low.default(x.detach()[0:2], z[2:], y.detach()[:2])
    return one + other, z, x


@program
def reads_between_writes(x, y):
    a = x.clone()
    bump(a, 1.0)
    before = a * 2
    bump(a, 1.0)
    return a, before, a * 3


@program
def one_memory_twice(x, y):
    a = x.detach().sin()
    each([a, a], torch.tensor(2.0))
    return a


def results(function: Callable[..., Any], training: bool) -> list[Any]:
    x, y = (torch.linspace(n, n + 1, 4).requires_grad_(training) for n in (0, 1))
    found = function(x, y)
    found = found if isinstance(found, tuple) else (found,)
    ends = [end.sum() for end in found if end.requires_grad]
    if ends:
        torch.autograd.backward(ends)
    return [*(end.detach() for end in found), x.detach(), y.detach(), x.grad, y.grad]


@pytest.mark.complains("memory that it is given twice")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_writes(name: str, backend: str) -> None:
    function = PROGRAMS[name]
    for training in (False, True):
        tg.reset()
        whole = name != "one_memory_twice"
        found = results(tg.compile(function, backend=backend, fullgraph=whole), training)
        torch.testing.assert_close(found, results(function, training))
