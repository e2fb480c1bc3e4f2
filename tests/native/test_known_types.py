"""Types of libraries that guards treat in a way of their own are known by themselves: others may have their names."""

from __future__ import annotations

import collections
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.utils._device import DeviceContext

from torchglass import _native
from torchglass.records.guards import Guard
from torchglass.records.sources import Local
from torchglass.runtime.guards import build_table


def test_sizes_are_compared_by_their_items() -> None:
    assert _native.same_constant(torch.Size([2, 3]), torch.Size([2, 3]))
    assert not _native.same_constant(torch.Size([2, 3]), torch.Size([2, 4]))
    other: Any = type("torch.Size", (tuple,), {})
    assert not _native.same_constant(other((2, 3)), other((2, 3)))


def test_scalars_and_dtypes_of_numpy_are_compared_by_their_text() -> None:
    numpy = pytest.importorskip("numpy")
    pairs = numpy.dtype([("a", int), ("b", float)]), numpy.dtype([("a", int), ("b", float)])
    assert pairs[0] is not pairs[1] and _native.same_constant(*pairs)
    assert not _native.same_constant(pairs[0], numpy.dtype([("a", int)]))
    assert _native.same_constant(numpy.datetime64("2020-01-01"), numpy.datetime64("2020-01-01"))
    assert not _native.same_constant(numpy.ones(1), numpy.ones(1))


def test_no_code_of_a_class_runs_for_its_name() -> None:
    def fail(self: Any, *rest: Any) -> Any:
        raise AssertionError("it ran")

    own = dict.fromkeys(("__repr__", "__getitem__", "__eq__", "__hash__", "__len__"), fail)
    for name in ("numpy.float64", "numpy.dtype[int64]", "torch.Size", "collections.deque"):
        cls: Any = type(name, (), own)
        assert not _native.same_constant(cls(), cls())
    numpy = pytest.importorskip("numpy")
    derived: Any = type("numpy.mine", (numpy.float64,), {"__repr__": fail})
    assert not _native.same_constant(derived(1), derived(1))


def test_numpy_may_be_loaded_later() -> None:
    program = """
import sys, torch
from torchglass import _native
assert not _native.same_constant(object(), object())
import numpy
assert _native.same_constant(numpy.float32("nan"), numpy.float32("nan"))
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_length_of_a_deque_is_remembered() -> None:
    def function(items: Any) -> None: ...

    table = build_table([Guard(Local("items"), "length", 2)], [], function)
    items = collections.deque([1, 2])
    assert [table.check((items,)) is not None for _ in range(3)] == [True] * 3
    items.append(3)
    assert table.check((items,)) is None


def test_a_device_context_stands_for_its_device() -> None:
    with DeviceContext(torch.device("cpu")):
        one = _native.global_state()
    with DeviceContext(torch.device("cpu")):
        assert _native.global_state() == one and torch.device("cpu") in one[9]

    class Own(torch.overrides.TorchFunctionMode):
        device = torch.device("cpu")

    Own.__name__ = "DeviceContext"
    with Own() as own:
        assert own in _native.global_state()[9]
