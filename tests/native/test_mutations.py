"""What no dict tells of is counted: ways to change a tensor's metadata, an object's class and its whole dict."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from torchglass.records.guards import Guard, TensorMeta
from torchglass.records.sources import InstanceDict, Item, Local
from torchglass.runtime.guards import build_table


def remembered_check(count: int) -> Callable[[], Any]:
    """A check of a module with so many children of two parameters each."""
    module = nn.Module()
    guards = []
    for i in range(count):
        module.add_module(f"child_{i}", nn.Linear(4, 4))
        child = Item(Item(InstanceDict(Local("self")), "_modules"), f"child_{i}")
        for name, parameter in module._modules[f"child_{i}"]._parameters.items():
            where = Item(Item(InstanceDict(child), "_parameters"), name)
            guards.append(Guard(where, "tensor", TensorMeta.of(parameter)))

    def function(self: nn.Module) -> None: ...

    table = build_table(guards, [], function)
    if not table.remember:
        pytest.skip("this Python's dicts have no versions to remember")
    for _ in range(3):
        assert table.check((module,)) is not None
    return lambda: table.check((module,))


def shortest(call: Callable[[], Any]) -> float:
    times = []
    for _ in range(200):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def test_parameters_are_not_looked_at_while_nothing_is_mutated() -> None:
    check = remembered_check(400)
    other = torch.zeros(3)

    def mutated() -> None:
        other.resize_(3)  # of a tensor that no guard knows: it is counted all the same
        check()

    assert shortest(check) < 0.8 * (shortest(mutated) - shortest(lambda: other.resize_(3)))


def test_functions_behave_as_before() -> None:
    remembered_check(1)
    weight = nn.Parameter(torch.zeros(2, 3))
    assert weight.requires_grad_(requires_grad=False) is weight and not weight.requires_grad
    assert weight.requires_grad_() is weight and weight.requires_grad
    with pytest.raises(RuntimeError, match="floating point"):
        torch.zeros(1, dtype=torch.int64).requires_grad_()
    with pytest.raises(TypeError):
        weight.data = 3
    with pytest.raises(TypeError):
        weight.requires_grad_(1, 2)
    with pytest.raises(TypeError):
        weight.__class__ = 3
    with pytest.raises(TypeError):
        nn.Module().__dict__ = 3
    with pytest.raises(RuntimeError, match="resize"):
        weight.resize_(7)
    with pytest.raises(RuntimeError):
        torch.zeros(3).resize_(-2)
    with torch.no_grad():
        assert weight.t_() is weight and weight.shape == (3, 2)
    assert torch.Tensor.requires_grad_.__name__ == "requires_grad_" and torch.Tensor.data.__name__ == "data"
    assert torch.zeros(3, out=torch.empty(0)).shape == (3,)
    assert torch.zeros(2, 2).to("meta").resize_(5).shape == (5,)


def test_tensors_in_lists_are_looked_at_on_every_call() -> None:
    tensors = [nn.Parameter(torch.zeros(4))]

    def function(tensors: list[torch.Tensor]) -> None: ...

    table = build_table([Guard(Item(Local("tensors"), 0), "tensor", TensorMeta.of(tensors[0]))], [], function)
    for i in range(200):
        assert (table.check((tensors,)) is None) == bool(i % 3 == 2)
        tensors[0] = None
        tensors[0] = nn.Parameter(torch.zeros(5 if i % 3 == 1 else 4))


@pytest.mark.parametrize(
    "mode",
    [
        "torch.inference_mode()",
        *(pytest.param(f"torch.{mode}", marks=pytest.mark.slow) for mode in ("no_grad()", "device('cpu')")),
    ],
)
def test_the_first_table_may_be_made_within_any_mode(mode: str) -> None:
    program = f"""
import torch, torchglass as tg
model, x = torch.nn.Linear(4, 4), torch.ones(2, 4)
compiled = tg.compile(model, backend="eager")
for _ in range(4):
    with {mode}:
        compiled(x)
    compiled(x)
model.weight.data, model.bias.data = torch.ones(3, 4), torch.ones(3)
assert compiled(x).shape == (2, 3)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
