"""Sizes that many calls have get a graph of their own, in the background; all others run the one that is open."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import traceback
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import torchglass as tg
from torchglass import lazy_specialization
from torchglass._native import SizeDispatch
from torchglass.torch_compat import FakeTensor

CALLS = 3


def hot(function: Any, calls: int = CALLS, **kwargs: Any) -> Any:
    return tg.compile(function, dynamic=True, options={"hot_calls": calls}, **kwargs)


def graph_of(compiled: Any) -> Any:
    """The record of its newest graph."""
    return compiled.function_state.record.entries[-1].graphs[0]


def wait_for(compiled: Any, count: int = 1, seconds: float = 60) -> None:
    """Until so many sizes have a graph of their own."""
    end = time.monotonic() + seconds
    while len(graph_of(compiled).specialized) < count:
        assert time.monotonic() < end, [sizes for sizes, _ in graph_of(compiled).specialized]
        time.sleep(0.01)
    lazy_specialization.wait()  # else other sizes are not taken yet


def shaped(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x).view(x.shape[0] * 2, -1).sum(1) + torch.arange(x.shape[0] * 2)


def test_hot_sizes_run_kernels_in_numbers(tmp_path: Path) -> None:
    with tg.prepare_debug(str(tmp_path)):
        compiled = hot(shaped)
        for _ in range(CALLS):
            compiled(torch.randn(5, 8))
        wait_for(compiled)
        for rows in (5, 6, 5):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(compiled(x), shaped(x))
    ((_, alone),) = graph_of(compiled).specialized
    assert len(compiled.function_state.record.entries) == 1
    assert "s0" in graph_of(compiled).files["forward_kernels.c"] and "s0" not in alone.files["forward_kernels.c"]
    (folder,) = tmp_path.rglob("s0_5_s1_8")
    assert "gelu.view(10, -1)" in (folder / "captured.py").read_text()
    assert "many calls have s0=5, s1=8" in str(tg.explain(compiled))


def test_training_has_its_backward_ahead() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))
    compiled = hot(lambda x: model(x).square().mean())
    for step in range(2 * CALLS):
        if step == CALLS:
            wait_for(compiled)
            ((_, alone),) = graph_of(compiled).specialized
            assert "backward" in {side.name for side in alone.sides}
        x = torch.randn(7, 8)
        model.zero_grad()
        compiled(x).backward()
        found = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        model(x).square().mean().backward()
        torch.testing.assert_close(found, [parameter.grad for parameter in model.parameters()])
    assert not any(side.name == "backward_2" for side in alone.sides)


def test_the_backward_for_all_sizes_is_compiled_meanwhile() -> None:
    """One thread reads the fake tensors of a graph under whose mode another one traces."""
    for seed in range(8):
        torch.manual_seed(seed)
        model = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU()) for _ in range(4)])
        compiled = hot(model.forward, calls=1)
        for rows in (5, 6):
            compiled(torch.randn(rows, 8)).square().backward(torch.ones(rows, 8))
        wait_for(compiled)
        ((_, alone),) = [*dict(graph_of(compiled).specialized).items()][:1]
        assert not alone.fallbacks and all(alone.files[f"{side}_kernels.c"] for side in ("forward", "backward"))


def test_anomalies_are_detected_as_the_program_says() -> None:
    layers = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(6)])
    compiled = hot(layers.forward, calls=1)
    with torch.autograd.set_detect_anomaly(True):
        compiled(torch.randn(3, 8))
        assert torch.is_anomaly_enabled() and not graph_of(compiled).specialized
    compiled(torch.randn(4, 8))  # from here on beside the program
    torch.autograd.set_detect_anomaly(True)
    lazy_specialization.wait()
    assert torch.is_anomaly_enabled()
    torch.autograd.set_detect_anomaly(False)
    lazy_specialization.wait()
    assert not torch.is_anomaly_enabled()


def test_four_sizes_at_most() -> None:
    compiled = hot(lambda x: (x * 2).cos())
    for count, rows in enumerate((3, 4, 5, 6), 1):
        for _ in range(CALLS):
            compiled(torch.randn(rows, 2))
        wait_for(compiled, count)
    for _ in range(3 * CALLS):
        x = torch.randn(7, 2)
        torch.testing.assert_close(compiled(x), (x * 2).cos())
    time.sleep(0.2)
    assert len(graph_of(compiled).specialized) == 4


def test_it_can_be_turned_off_and_asks_for_a_number() -> None:
    compiled = hot(lambda x: x * 2, calls=0)
    for _ in range(50):
        compiled(torch.randn(3, 2))
    time.sleep(0.2)
    assert not graph_of(compiled).specialized
    for wrong in (-1, 1.5, True):
        with pytest.raises((TypeError, ValueError), match="hot_calls"):
            hot(lambda x: x, calls=wrong)


def test_modes_of_the_program_see_no_compile() -> None:
    seen: list[str] = []

    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    compiled = hot(lambda x: (x * 2).sin())
    compiled(torch.randn(3, 2))
    with Names():
        for _ in range(3 * CALLS):
            compiled(torch.randn(3, 2))
    time.sleep(0.2)
    assert not graph_of(compiled).specialized
    for _ in range(CALLS):
        compiled(torch.randn(3, 2))
    wait_for(compiled)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)])
def test_it_is_compiled_as_the_call_has_it(mode: Any) -> None:
    layer = nn.Linear(8, 8)
    compiled = hot(lambda x: layer(x).relu())
    with mode():
        for _ in range(CALLS):
            want = compiled(torch.ones(5, 8))
        wait_for(compiled)
        got = compiled(torch.ones(5, 8))
    assert (got.dtype, got.requires_grad, got.is_inference()) == (want.dtype, want.requires_grad, want.is_inference())
    torch.testing.assert_close(got, want)


def test_inputs_that_are_written_to() -> None:
    def step(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        total.add_(x.sum(0))
        return x.mean(0)

    compiled, total, want = hot(step), torch.zeros(4), torch.zeros(4)
    for n in range(2 * CALLS):
        if n == CALLS:
            wait_for(compiled)
        x = torch.randn(6, 4)
        torch.testing.assert_close(compiled(x, total), step(x, want))
        torch.testing.assert_close(total, want)


def test_threads_that_call_meanwhile() -> None:
    compiled, wrong = hot(shaped), list[str]()

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for n in range(60):
            x = torch.randn(2 + n % 6, 8, generator=generator)
            if not torch.allclose(compiled(x), shaped(x), atol=1e-5):
                wrong.append(f"{seed}: {n}")

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


ENDS = """
import os, sys, torch, torchglass as tg
layers = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()) for _ in range(6)])
compiled = tg.compile(layers, dynamic=True, options={"hot_calls": 2})
for _ in range(3):
    compiled(torch.ones(3, 8))  # no backward: of CUDA builds a fork may not follow one
"""
CHILD = """
child = os.fork()
for _ in range(4):
    compiled(torch.ones(5, 8))
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


BACKWARD = "for _ in range(4): compiled(torch.ones(5, 8)).sum().backward()"


@pytest.mark.parametrize(
    "then",
    [
        "",
        BACKWARD,
        pytest.param(CHILD, marks=pytest.mark.slow),
        pytest.param("import threading; threading.Event().wait(0.1)", marks=pytest.mark.slow),
        pytest.param("raise SystemExit(0)", marks=pytest.mark.slow),
    ],
)
def test_a_program_that_ends_amid_it(then: str) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", ENDS + then]  # of a fork that others may see
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_what_it_makes_is_dropped_before_the_program_may_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's destructors run Python, in which an interpreter that ends would end the thread, and abort."""
    program, made, late, new = threading.get_ident(), list[Any](), list[str](), FakeTensor.__new__

    def dropped(_: Any) -> None:
        if threading.get_ident() != program and not lazy_specialization._turn.busy.locked():
            late.extend(traceback.format_stack())

    def noted(*args: Any, **kwargs: Any) -> Any:
        fake = new(*args, **kwargs)
        if threading.get_ident() != program:
            made.append(weakref.ref(fake, dropped))
        return fake

    monkeypatch.setattr(FakeTensor, "__new__", noted)
    compiled = hot(lambda x: torch.cat([x, x]).softmax(0)[: x.shape[0]] @ x.t())
    for _ in range(CALLS):
        compiled(torch.randn(5, 8, requires_grad=True))
    wait_for(compiled)
    assert made and not late, "".join(late)


# --- the dispatch itself ----------------------------------------------------------------------------------------------
def test_the_dispatch_counts_and_chooses() -> None:
    told: list[tuple[int, ...]] = []
    takes = [False, True, True]

    def notice(dispatch: SizeDispatch, sizes: tuple[int, ...]) -> bool:
        told.append(sizes)
        return takes[len(told) - 1]

    dispatch = SizeDispatch(lambda *inputs: "open", ((0, 1), (1, 0)), 3, notice)
    x, y = torch.ones(2, 5), torch.ones(4)
    assert [dispatch(x, y) for _ in range(9)] == ["open"] * 9
    assert told == [(5, 4)] * 2  # the first time they were not taken
    dispatch.add((5, 4), lambda *inputs: "alone")
    assert (dispatch(x, y), dispatch(x, torch.ones(6)), dispatch.taken) == ("alone", "open", 1)
    dispatch.end()
    assert [dispatch(x, torch.ones(6)) for _ in range(9)] == ["open"] * 9 and len(told) == 2


def test_the_dispatch_leaves_alone_what_tells_no_sizes() -> None:
    dispatch = SizeDispatch(lambda *inputs: len(inputs), ((0, 1),), 1, lambda *_: True)
    for inputs in [(), (3,), (torch.ones(2),), ("x", torch.ones(2, 2))]:
        assert dispatch(*inputs) == len(inputs)


def test_the_dispatch_forgets_rare_sizes_and_raises_what_is_raised() -> None:
    told: list[tuple[int, ...]] = []
    dispatch = SizeDispatch(lambda x: None, ((0, 0),), 3, lambda _, sizes: told.append(sizes) or True)
    for rows in range(100):
        dispatch(torch.ones(rows))
        dispatch(torch.ones(1000)) if rows % 7 == 0 else None
    assert told == [(1000,)]

    for rows in range(100):
        dispatch(torch.ones(rows))
    for _ in range(9):
        dispatch(torch.ones(1000))
    assert told == [(1000,)]  # what was taken is not told again, though others were counted since

    def refuse(*_: Any) -> bool:
        raise KeyError("no")

    with pytest.raises(KeyError):
        SizeDispatch(lambda x: None, ((0, 0),), 1, refuse)(torch.ones(2))


@pytest.mark.parametrize("places", [((0,),), ((-1, 0),), (3,), (("x", 0),)])
def test_the_dispatch_refuses_places_that_are_none(places: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        SizeDispatch(print, places, 1, print)
    with pytest.raises(ValueError, match="one for each place"):
        SizeDispatch(print, ((0, 0),), 1, print).add((1, 2), print)
