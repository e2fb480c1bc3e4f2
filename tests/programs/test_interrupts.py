"""Exceptions from outside while something compiles leave torch, the process and the function as they were."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest
import torch
from tests.programs import interrupts

import torchglass as tg
from torchglass.autodiff.joint import Tracer
from torchglass.runtime.compilers import Compilers
from torchglass.torch_compat import new_fake_mode


@pytest.mark.parametrize("kind", ["struck", "signals"])
def test_compiles_that_are_struck(kind: str) -> None:
    _runs(kind, 8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["struck", "signals"])
def test_compiles_that_are_struck_at_many_points(kind: str) -> None:
    _runs(kind, 2000)


def _runs(kind: str, count: int) -> None:
    command = [sys.executable, "-m", "tests.programs.interrupts", kind, str(count)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120 + 10 * count, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_time_limit_is_raised_and_not_taken_for_a_failed_compile() -> None:
    """Its handler raises an ``Exception``; that of the program ends the call and nothing else."""
    calls = []

    def backend(gm, inputs):
        calls.append(len(gm.graph.nodes))
        if len(calls) == 1:
            signal.raise_signal(signal.SIGUSR1)
            calls.append(0)  # the handler waits
        return gm.forward

    def limit(number, frame):
        raise TimeoutError("too long")

    compiled = tg.compile(lambda x: x.sin() + 1, backend=backend)
    x, before = torch.ones(3), signal.signal(signal.SIGUSR1, limit)
    try:
        with pytest.raises(TimeoutError, match="too long"):
            compiled(x)
        assert signal.getsignal(signal.SIGUSR1) is limit
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert torch.equal(compiled(x), x.sin() + 1) and calls[1] == 0 and len(calls) == 3


def test_handlers_that_do_not_raise_run_and_the_compile_goes_on() -> None:
    seen = []

    def backend(gm, inputs):
        signal.raise_signal(signal.SIGUSR1)
        return gm.forward

    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        compiled = tg.compile(lambda x: x.sin() + 1, backend=backend)
        compiled(torch.ones(3))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [signal.SIGUSR1] and len(tg.explain(compiled).to_dict()["entries"]) == 1


class Handled:
    """``handler`` is what SIGUSR1 runs."""

    def __init__(self, handler) -> None:
        self.handler = handler

    def __enter__(self) -> None:
        self.before = signal.signal(signal.SIGUSR1, lambda number, frame: self.handler())

    def __exit__(self, *exception: object) -> None:
        signal.signal(signal.SIGUSR1, self.before)


def test_a_child_of_another_thread_has_the_programs_handlers() -> None:
    codes = []

    def fork() -> None:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.raise_signal(signal.SIGUSR1)  # exits with 42
                status = 2
            finally:
                os._exit(status)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    def backend(gm, inputs):
        signal.raise_signal(signal.SIGUSR2)  # waits, for the parent
        with warnings.catch_warnings(action="ignore"):
            thread = threading.Thread(target=fork)
            thread.start()
            thread.join()
        return gm.forward

    def inherited(number, frame) -> None:
        codes.append(os.getpid())

    before = signal.signal(signal.SIGUSR2, inherited)
    try:
        with Handled(lambda: os._exit(42 if os.getpid() != parent else 43)):
            parent = os.getpid()
            tg.compile(lambda x: x.sin() + 1, backend=backend)(torch.ones(3))
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert codes == [42, parent]


def test_what_a_handler_calls_amid_a_compile_runs_as_it_is() -> None:
    """The second signal is handled wherever it comes, and whoever compiles may hold what is needed for it."""
    inner, x, seen = tg.compile(lambda x: x.cos() * 3), torch.ones(3), []

    def handler() -> None:
        seen.append(inner(x))

    def backend(gm, inputs):
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR1)
        return gm.forward

    with Handled(handler):
        tg.compile(lambda x: x.sin() + 1, backend=backend)(x)
    assert len(seen) == 1 and torch.equal(seen[0], x.cos() * 3)
    assert tg.explain(inner).to_dict()["entries"] == []
    inner(x)
    assert len(tg.explain(inner).to_dict()["entries"]) == 1


def test_a_backward_that_a_handler_runs_amid_a_compile() -> None:
    x, w = torch.ones(3), torch.ones(3, requires_grad=True)
    result = tg.compile(lambda w: (w.sin() * w).sum())(w)

    def backend(gm, inputs):
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR1)
        return gm.forward

    with Handled(lambda: result.backward()):
        tg.compile(lambda x: x.sin() + 1, backend=backend)(x)
    torch.testing.assert_close(w.grad, w.detach().cos() + w.detach().sin())


def test_handlers_see_what_the_program_has_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the compiler lets them run it has fake tensors, modes and ``no_grad`` of its own around it."""
    layer, seen = torch.nn.Linear(3, 3), []
    enter = Tracer._enter

    def state() -> object:
        return (
            tg._native.global_state(),
            torch._C._len_torch_dispatch_stack(),
            torch.is_anomaly_enabled(),
            warnings.filters,
        )

    def handler() -> None:
        layer(torch.ones(2, 3)).sum().backward()
        seen.append(state())

    def struck(self, node) -> None:
        inside = state()
        signal.raise_signal(signal.SIGUSR1)
        enter(self, node)
        assert state() == inside != seen[-1]

    monkeypatch.setattr(Tracer, "_enter", struck)
    with Handled(handler), torch.autograd.set_detect_anomaly(True, check_nan=False), torch.autocast("cpu"):
        before, w = state(), torch.ones(3, requires_grad=True)
        tg.compile(lambda w: (w.sin() @ w).cos(), fullgraph=True)(w)
        assert state() == before and seen and all(one == before for one in seen)


@pytest.mark.parametrize("loads", ["torchglass.pipeline", "torchglass.entry_pipeline"])
def test_a_handler_that_asks_for_what_loads(loads: str) -> None:
    code = f"""
import signal, sys, torch, torchglass as tg
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {loads!r}:
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGUSR1)
signal.signal(signal.SIGUSR1, lambda number, frame: print(tg.compile(lambda x: x + 1)(torch.ones(1))))
sys.meta_path.insert(0, Finder())
print(tg.compile(lambda x: x + 2)(torch.ones(1)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (run.stdout, run.stderr) == ("tensor([2.])\ntensor([3.])\n", "")


@pytest.mark.parametrize("answers", ["--version", "nothing"])
def test_the_c_compiler_is_ended(tmp_path, answers: str) -> None:
    """Ctrl-C while it works, and while it is asked for its version."""
    script = tmp_path / "cc"
    script.write_text(f"#!/bin/sh\n[ $1 = {answers} ] && exit\necho $$ >> {tmp_path}/pids\nexec sleep 100\n")
    script.chmod(0o755)
    code = (
        "import signal, torch, torchglass as tg\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background jobs ignore it
        "try:\n    tg.compile(lambda x: x.sin() + 1)(torch.ones(3))\nexcept KeyboardInterrupt:\n    print('ended')"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | {"CC": str(script)}, stdout=subprocess.PIPE, text=True
    )
    while not (tmp_path / "pids").exists():
        time.sleep(0.1)
        assert run.poll() is None
    run.send_signal(signal.SIGINT)
    begin = time.monotonic()
    assert run.communicate(timeout=60)[0] == "ended\n" and time.monotonic() - begin < 30
    for pid in (tmp_path / "pids").read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_a_compiler_that_starts_while_all_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    compilers, popen = Compilers(), subprocess.Popen

    def started(*args, **kwargs):
        process = popen(*args, **kwargs)
        compilers.stop()  # as another thread may
        return process

    monkeypatch.setattr(subprocess, "Popen", started)
    assert compilers.start(["sleep", "100"]).wait(timeout=20) == -signal.SIGKILL


def test_the_state_is_compared() -> None:
    """The program of the tests above sees what is left behind."""
    torch.ones(1, device="meta") + 1  # modules that load late
    with new_fake_mode():
        torch.ones(1) + 1
    before = interrupts.state()
    with torch.autograd.set_grad_enabled(not torch.is_grad_enabled()):
        assert interrupts.state() != before
    with new_fake_mode():
        assert interrupts.state() != before
    assert interrupts.state() == before


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])
def test_a_time_limit_while_a_graph_runs(backend: str) -> None:
    """What a handler raises is no failure of the graph, whose function would run again to its end."""

    class Limit(Exception):
        pass

    class Handler:
        def __call__(self, number, frame):
            raise Limit

    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(40):
            x = (x @ x).tanh()
        return x

    x = torch.randn(400, 400)
    compiled = tg.compile(program, backend=backend)
    compiled(x)
    begin = time.perf_counter()
    compiled(x)
    whole = time.perf_counter() - begin
    before = signal.signal(signal.SIGALRM, Handler())
    try:
        for part in (0.3, 0.5):
            with pytest.raises(Limit):
                signal.setitimer(signal.ITIMER_REAL, whole * part)
                for _ in range(20):
                    compiled(x)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_exception_of_another_thread_while_a_graph_runs() -> None:
    class Limit(Exception):
        pass

    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(40):
            x = (x @ x).tanh()
        return x

    def send(thread: int) -> None:
        time.sleep(0.1)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Limit))

    x = torch.randn(400, 400)
    compiled = tg.compile(program, backend="eager")
    compiled(x)
    for _ in range(5):
        sender = threading.Thread(target=send, args=(threading.get_ident(),))
        with pytest.raises(Limit):
            sender.start()
            for _ in range(100):
                compiled(x)
        sender.join()
