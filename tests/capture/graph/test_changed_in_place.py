"""In-place changes of an input that are none of its data: the program's own tensors end as eager's do."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchglass as tg


def detach_(y):
    return y.detach_()


def function_detach_(y):
    torch.detach_(y)
    return y * 2


def operator_detach_(y):
    torch.ops.aten.detach_(y)
    return y * 2


def made_a_leaf(y):
    z = y * 3
    y.detach_()
    y.requires_grad_()
    return y * 2 + z.detach()


def detached_and_written(y):
    y.detach_().mul_(2)
    return y + 1


def written_and_detached(y):
    y.mul_(2).detach_()
    return y + 1


def of_a_temporary(y):
    z = (y * 2).detach_()
    return z, y + z


def strided(y):
    y.as_strided_((2, 2), (2, 1), 2)
    return y + 1


def transposed(y):
    y.t_()
    return y * 2


FUNCTIONS: list[Callable[..., Any]] = [
    detach_,
    function_detach_,
    operator_detach_,
    made_a_leaf,
    detached_and_written,
    written_and_detached,
    of_a_temporary,
]


def computed() -> torch.Tensor:
    return torch.ones(4, 2, requires_grad=True) * torch.arange(8.0).view(4, 2)


def leaf() -> torch.Tensor:
    return torch.ones(4, 2, requires_grad=True)


def without_gradient() -> torch.Tensor:
    return torch.ones(4, 2)


def seen(tensor: torch.Tensor) -> tuple[Any, ...]:
    layout = tensor.shape, tensor.stride(), tensor.storage_offset()
    return *layout, tensor.requires_grad, tensor.is_leaf, tensor.grad_fn is None, tensor.tolist()


def after_call(function: Callable[..., Any], y: torch.Tensor) -> Any:
    try:
        result = function(y)
    except RuntimeError as error:
        return str(error), seen(y)
    results = result if isinstance(result, tuple) else (result,)
    return [seen(one) for one in results], [one is y for one in results], seen(y)


@pytest.mark.parametrize("make", [computed, leaf, without_gradient])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_input_is_detached_in_place(function: Callable[..., Any], make: Callable[[], torch.Tensor]) -> None:
    compiled = tg.compile(function)
    for _ in range(2):
        assert after_call(compiled, make()) == after_call(function, make())


@pytest.mark.parametrize("function", [strided, transposed])
def test_an_input_lies_otherwise(function: Callable[..., Any]) -> None:
    assert after_call(tg.compile(function), without_gradient()) == after_call(function, without_gradient())


def test_what_lies_in_an_argument_is_detached_in_place() -> None:
    def step(state):
        state["h"].detach_()
        return state["h"] + 1

    state = {"h": computed()}
    assert not tg.compile(step)(state).requires_grad
    assert state["h"].is_leaf and not state["h"].requires_grad


def test_a_tensor_made_inside_is_detached_in_the_graph() -> None:
    compiled = tg.compile(of_a_temporary, fullgraph=True)
    assert after_call(compiled, computed()) == after_call(of_a_temporary, computed())


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])
def test_places_that_are_one_and_the_same(backend):
    """What is written to them depends on the order in which a kernel goes through memory: the graph breaks."""

    def folded(a):
        a.as_strided((2, 2), (1, 1)).neg_()
        return a

    def given(a):
        return a.add_(1)

    def beside(a):
        a.as_strided((2, 2), (1, 2)).neg_()
        return a

    for program, make in (
        (folded, lambda: torch.arange(4.0)), (given, lambda: torch.zeros(5).as_strided((2, 3), (1, 1))),
        (beside, lambda: torch.arange(4.0)),
    ):  # fmt: skip
        compiled = tg.compile(program, backend=backend, fullgraph=program is beside)
        assert torch.equal(compiled(make()), program(make()))
