"""What is changed of other people's types for the process is in one table, and can be undone and made again."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from torchglass import _native
from torchglass.records.guards import Guard, TensorMeta
from torchglass.records.sources import InstanceDict, Item, Local
from torchglass.runtime.guards import build_table

LIMITS = Path(__file__).parents[2] / "docs" / "limits.md"


@pytest.fixture(autouse=True)
def as_found() -> Iterator[None]:
    yield
    tg.reset(everything=True)


def in_place() -> dict[str, bool]:
    return {f"{of}.{name}": made for of, name, _, made in _native.process_changes()}


def has_kernel(operator: str, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{operator}", key))


def remembered(module: nn.Linear) -> Callable[[], bool]:
    """A check of both parameters, within another module, that has been remembered."""

    def function(self: nn.Module) -> None: ...

    child = Item(Item(InstanceDict(Local("self")), "_modules"), "0")
    outer = nn.Sequential(module)
    guards = [
        Guard(Item(Item(InstanceDict(child), "_parameters"), name), "tensor", TensorMeta.of(parameter))
        for name, parameter in module._parameters.items()
        if parameter is not None
    ]
    table = build_table(guards, [], function)
    if not table.remember:
        pytest.skip("this Python's dicts have no versions to remember")
    for _ in range(3):
        assert table.check((outer,)) is not None
    return lambda: table.check((outer,)) is not None


def test_all_that_is_changed_is_undone_and_changed_again() -> None:
    tg.reset(everything=True)
    assert not any(in_place().values()) and not has_kernel("resize_", "BackendSelect")
    for _ in range(3):
        check = remembered(nn.Linear(2, 2))
        assert all(in_place().values()), in_place()
        assert has_kernel("resize_", "BackendSelect")
        tg.reset(everything=True)
        assert not any(in_place().values()), in_place()
        assert not has_kernel("resize_", "BackendSelect")
        assert check()


CHANGES: dict[str, Callable[[nn.Linear], Any]] = {
    "data": lambda module: setattr(module.weight, "data", torch.ones(3, 2)),
    "requires_grad": lambda module: setattr(module.weight, "requires_grad", False),
    "requires_grad_": lambda module: module.weight.requires_grad_(False),
    "detach_": lambda module: module.weight.detach_(),
    "resize_": lambda module: module.weight.requires_grad_(False).resize_(7).requires_grad_(),
    "class": lambda module: setattr(module.weight, "__class__", type("Own", (nn.Parameter,), {})),
    "dict": lambda module: setattr(module, "__dict__", {**module.__dict__, "_parameters": {}}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_no_change_is_missed_while_nothing_is_counted(change: Callable[[nn.Linear], Any]) -> None:
    module = nn.Linear(2, 2)
    check = remembered(module)
    tg.reset(everything=True)
    assert check() and check()
    change(module)
    assert not check()


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_no_change_is_missed_once_all_is_counted_again(change: Callable[[nn.Linear], Any]) -> None:
    """By tables from before and by new ones, and none that was made in between."""
    early, between = nn.Linear(2, 2), nn.Linear(2, 2)
    check, check_between = remembered(early), remembered(between)
    tg.reset(everything=True)
    assert check() and check_between()
    change(between)
    late = nn.Linear(2, 2)
    check_late = remembered(late)
    assert all(in_place().values())
    assert not check_between() and check() and check_late()
    for module, holds in ((early, check), (late, check_late)):
        change(module)
        assert not holds()


def test_what_compiling_changes_in_the_dispatcher_is_undone() -> None:
    def first(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x.abs(), 0.5).sum()

    def second(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x.abs() + 1, 0.25).sum()

    tg.reset(everything=True)  # what other tests of this process left
    before = {name: has_kernel(name, "Functionalize") for name in ("polygamma_", "native_batch_norm")}
    for function in (first, second):
        x = torch.randn(8, requires_grad=True)
        compiled = tg.compile(function)
        torch.manual_seed(0)
        compiled(x).backward()
        found, x.grad = x.grad, None
        torch.manual_seed(0)
        function(x).backward()
        torch.testing.assert_close(found, x.grad)
        assert has_kernel("polygamma_", "Functionalize") and has_kernel("native_batch_norm", "Functionalize")
        tg.reset(everything=True)
        assert {name: has_kernel(name, "Functionalize") for name in before} == before


def test_torch_compile_is_pytorchs_again() -> None:
    function = inspect.unwrap(torch.compile)
    tg.reset(everything=True)
    code, names = function.__code__, dict(vars(function))
    for _ in range(2):
        tg.install()
        assert function.__code__ is not code
        tg.reset(everything=True)
        assert function.__code__ is code and vars(function) == names


def test_functions_of_dynamo_are_its_own_again() -> None:
    program = """
import sys, torch, torchglass as tg
paths = list(sys.meta_path)
tg.compile(torch.sin)
assert sys.meta_path != paths
tg.reset(everything=True)
assert sys.meta_path == paths
import torch._dynamo
theirs = torch._dynamo.reset, torch._dynamo.decorators._set_stance
for _ in range(2):
    compiled = tg.compile(lambda x: x + 1, backend="eager")
    compiled(torch.ones(2))
    ours = torch._dynamo.reset, torch._dynamo.decorators._set_stance
    assert ours[0] is not theirs[0] and ours[1] is not theirs[1]
    torch._dynamo.reset()
    assert not compiled.entries
    tg.reset(everything=True)
    assert (torch._dynamo.reset, torch._dynamo.decorators._set_stance) == theirs
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)


def test_the_end_of_the_process_undoes_it() -> None:
    program = """
import atexit
def look():
    from torchglass import _native
    print([made for *_, made in _native.process_changes()])
atexit.register(look)
import torch, torchglass as tg
model = torch.nn.Sequential(torch.nn.Linear(2, 2))
compiled = tg.compile(model, backend="eager")
for _ in range(4):
    compiled(torch.ones(1, 2))
look()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    before, after = done.stdout.splitlines()
    rows = len(_native.process_changes())
    assert after == str([False] * rows) and before in (str([True] * rows), after)


def test_the_limits_say_all_of_it() -> None:
    table = [line for line in LIMITS.read_text().splitlines() if line.startswith("| ")]
    for of, names, _, _ in _native.process_changes():
        rows = [line for line in table if line.startswith((f"| `{of}` ", f"| {of} "))]
        for name in names.split(", "):
            assert any(f"`{name}`" in row or f"`{name}()`" in row for row in rows), (of, name)
