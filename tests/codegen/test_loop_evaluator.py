"""Loops read back from their text and computed by PyTorch's operators equal eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.codegen import triton_on_torch
from tests.codegen.harness import compare, tensors
from tests.codegen.test_graphs import GRAPHS, with_gradients
from tests.codegen.test_triton_text import (
    BINARY,
    GPU,
    INTEGERS,
    LAYOUTS,
    SCANNING,
    UNARY,
    fused,
    make,
    special,
)  # fmt: skip
from tests.lower import test_scans as scans

from torchglass import codegen, schedule
from torchglass.records.loops import OPS, REDUCTIONS, SCANS
from torchglass.runtime import kernel_trial, load, loop_evaluator
from torchglass.runtime.loop_evaluator import Memory, evaluate, read

Check = Callable[..., None]


def test_the_tables_are_those_of_the_loops() -> None:
    assert loop_evaluator.OPERATIONS.keys() == OPS.keys() - {"philox"}  # whose numbers buffers do not tell
    assert (tuple(loop_evaluator.REDUCTIONS), tuple(loop_evaluator.SCANS)) == (REDUCTIONS, SCANS)


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Print for a GPU, evaluate a kernel's loops wherever the wrapper starts it, compare with eager."""

    def run(fn: Callable[..., Any], args: Sequence[torch.Tensor], tol: float | None = None) -> None:
        scheduled = schedule.run(fused(fn, args), GPU)
        sources = codegen.run(scheduled, GPU)
        found = [*kernel_trial.launches(str(sources.plan), read(str(scheduled.fused)))]
        kernels = {one.name: evaluating(one) for one in reversed(found)}
        monkeypatch.setattr(load, "_of_file", lambda path: kernels)
        wrapper = tmp_path / "forward_wrapper.py"
        wrapper.write_text(triton_on_torch.on_cpu(sources.wrapper_text))
        call = load.load(wrapper, constants=sources.plan.handed)
        for want, got in zip(tensors(fn(*args)), call(list(args)), strict=True):
            compare(want, got, tol)

    return run


def evaluating(one: kernel_trial.Launched) -> Callable[..., None]:
    names = one.loops.arguments

    def launch(*args: Any, points: Any = ()) -> None:
        evaluate(one.loops, Memory(dict(zip(names, map(flat, args)))), dict(zip(one.sizes, args[len(names) :])))

    return launch


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """All elements from the first to the last, in the same memory."""
    last = sum((d - 1) * s for d, s in zip(tensor.shape, tensor.stride()))
    return tensor.as_strided((1 + last if tensor.numel() else 0,), (1,))


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name: str, check: Check) -> None:
    fn, args = GRAPHS[name]
    check(fn, args, 1e-5)
    check(with_gradients(fn), args, 2e-5)


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name: str, check: Check) -> None:
    check(*LAYOUTS[name])


def test_operations(check: Check) -> None:
    x, i = special(), torch.arange(-9, 9).view(2, 9)
    check(lambda x: tuple(getattr(torch, name)(x) for name in UNARY.split()), [x])
    check(lambda x, y: tuple(getattr(torch, name)(x, y) for name in BINARY.split()), [x, x.flip(0) * 0.75])
    for fn in INTEGERS.values():
        check(fn, [i, i.flip(0, 1)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_scans(dtype: torch.dtype, check: Check) -> None:
    check(scans.every, [scans.numbers((4, 100), dtype)], 5e-6 if dtype is torch.float32 else None)


@pytest.mark.parametrize("name", SCANNING.split())
def test_scans_with_what_surrounds_them(name: str, check: Check) -> None:
    check(getattr(scans, name), [make(24, 40)], 2e-5)


def test_a_wrong_address_is_said() -> None:
    text = "  kernel y rows [4] inner []:\n      loop y over [4]:\n          t0 = load x[2*i0] : float32"
    kernel = read(text).kernels["y"]
    with pytest.raises(IndexError, match="an address outside the 4 elements of x"):
        evaluate(kernel, Memory({"x": torch.zeros(4)}), {})
    evaluate(kernel, Memory({"x": torch.zeros(7)}), {})


def test_elements_that_move_are_counted_once() -> None:
    """Every second one of x, and y, which is read again after it was written."""
    text = """
  kernel y rows [s0] inner [] local z:
      loop z over [s0]:
          t0 = load x[2*i0] : float32
          store z[i0] t0
      loop y over [s0]:
          t0 = load z[i0] : float32
          t1 = load x[2*i0] : float32
          store y[i0] t0
      loop y_sum over [reduce s0]:
          t0 = load y[i0] : float32
          t1 = reduce_sum t0 : float32
          store y_sum[0] t1
"""
    kernel = read(text).kernels["y"]
    assert kernel.arguments == ("x", "y", "y_sum")
    memory = Memory({"x": torch.arange(20.0), "y": torch.zeros(10).double(), "y_sum": torch.zeros(1)})
    evaluate(kernel, memory, {"s0": 5})
    assert memory.flat["y_sum"].item() == 0 + 2 + 4 + 6 + 8
    assert memory.moved() == 5 * 4 + 5 * 8 + 1 * 4
