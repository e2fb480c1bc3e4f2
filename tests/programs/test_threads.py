"""Threads and forks: who waits for whom while something is compiled."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch.overrides import TorchFunctionMode

import torchglass as tg
from torchglass.process import threads
from torchglass.runtime import load


def in_a_thread(function: Callable[[], object], seconds: float = 60) -> None:
    """Run it in a thread that must come to an end."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it waits for the compile of another thread"


@contextmanager
def another_thread_at(
    function: Callable[[], object], entered: threading.Event, go_on: threading.Event
) -> Iterator[None]:
    """``function`` runs in another thread, which has come to set ``entered`` and waits for ``go_on``."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    assert entered.wait(60)
    try:
        yield
    finally:
        go_on.set()
        thread.join(60)


def test_calls_with_an_entry_wait_for_no_compile() -> None:
    def plain(x):
        return (x.sin() * 2).sum()

    def broken(x):
        y = x.sin()
        tg.graph_break()
        return y * 2

    def looped(x):
        def parts():
            yield x.sin()
            yield x.cos()

        return sum(parts())

    class Seen(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    compiled = [tg.compile(f) for f in (plain, broken, looped)]

    def calls(x):
        return [f(x).sum() for f in compiled]

    x = torch.randn(8, requires_grad=True)
    sum(calls(x)).backward()
    wanted = [f(x).sum() for f in (plain, broken, looped)]
    entered, go_on = threading.Event(), threading.Event()

    def slow_backend(gm, inputs):
        entered.set()
        go_on.wait(60)
        return gm.forward

    def again():
        assert all(map(torch.equal, calls(x), wanted))
        sum(calls(x)).backward()
        with Seen():  # compiled for no mode, and not to be compiled under one
            calls(x)

    slow = tg.compile(lambda x: x.sin(), backend=slow_backend)
    with another_thread_at(lambda: slow(x), entered, go_on):
        in_a_thread(again)


def test_two_functions_compile_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one waits for its C compiler."""
    entered, go_on = threading.Event(), threading.Event()
    compile_c = load.compile_c

    def slow(path, *rest):
        if "slow_one" in str(path):
            entered.set()
            go_on.wait(60)
        return compile_c(path, *rest)

    monkeypatch.setattr(load, "compile_c", slow)

    def slow_one(x):
        return x.relu() + 1

    def other(x):
        return (x.cos() * 3).sum()

    x = torch.randn(8, requires_grad=True)
    results = []
    compiled = tg.compile(other)
    with another_thread_at(lambda: results.append(tg.compile(slow_one)(x)), entered, go_on):
        in_a_thread(lambda: compiled(x).backward())
        torch.testing.assert_close(x.grad, torch.autograd.grad(other(x), x)[0])
        assert len(tg.explain(compiled).to_dict()["entries"]) == 1
    assert torch.equal(results[0], slow_one(x))


def test_forks_while_another_thread_compiles() -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-m", "tests.programs.forks", "4"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert run.returncode == 0 and not run.stderr, run.stdout + run.stderr


@pytest.mark.slow
def test_many_forks_while_another_thread_compiles() -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-m", "tests.programs.forks", "200"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert run.returncode == 0 and not run.stderr, run.stdout + run.stderr


IMPORTING = """
import os, signal, sys, threading, time
import torch, torchglass as tg
sys.path.insert(0, sys.argv[1])

def backend(gm, inputs):
    import loads_slowly
    return gm.forward

thread = threading.Thread(target=lambda: tg.compile(lambda x: x.sin(), backend=backend)(torch.ones(2)))
thread.start()
while "loads_slowly" not in sys.modules:
    time.sleep(0.01)
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    import loads_slowly
    os._exit(0 if loads_slowly.done else 1)
sys.exit(os.waitpid(pid, 0)[1])
"""


def test_a_fork_while_a_compile_imports(tmp_path) -> None:
    """In the child nobody would finish the module, or open its lock."""
    (tmp_path / "loads_slowly.py").write_text("import time\ntime.sleep(0.5)\ndone = True\n")
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", IMPORTING, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_daemon_threads_say_nothing_when_the_interpreter_ends() -> None:
    code = """
import atexit, threading, time, torch, torchglass as tg
begun, over = threading.Event(), threading.Event()
def work():
    i = 0
    while not over.is_set():
        i += 1
        tg.compile(eval(f"lambda x: x.cos() * {i}.5"))(torch.ones(3))
        begun.set()
thread = threading.Thread(target=work, daemon=True)
thread.start()
begun.wait()
@atexit.register  # no thread can be started any more, and that one goes on
def wait():
    time.sleep(1)
    over.set()
    thread.join()
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


LATE = """
import atexit, threading, torch, torchglass as tg

def function(x):
    return (x.sin() * {factor}).softmax(-1).sum()

def late(*_):
    if threading.current_thread() is not threading.main_thread():
        threading.main_thread().join()
    x = torch.ones(3, 4, requires_grad=True)
    compiled = tg.compile(function)
    compiled(x).backward()
    print(len(tg.explain(compiled).to_dict()["entries"]), x.grad.shape)

{start}
"""


@pytest.mark.parametrize("start", ["atexit.register(late)", "threading.Thread(target=late).start()"])
def test_compiles_after_the_main_threads_end(start: str, tmp_path: Path) -> None:
    code = LATE.format(start=start, factor=1 + 1 / len(start))
    env = os.environ | {"TORCHGLASS_DIR": str(tmp_path / "files")}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=False, env=env
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "1 torch.Size([3, 4])\n", "")


ALONE = """
import sys, threading, torch, torchglass as tg
from torchglass.inspector import progress, reports
progress.AFTER, reports.QUIET = 0.01, 60
sys.stderr.isatty = lambda: True
lock = threading.Lock()

def function(x):
    x = x.sin() * x.cos()
    with lock:
        x = x * 2
    return x + 1

compiled = tg.compile(function, fullgraph=True)
for size in (3, 4, 3):
    compiled(torch.ones(size))
print(len(tg.explain(compiled).to_dict()["entries"]), threading.active_count())
"""


def test_our_own_threads_are_none_of_the_programs(tmp_path: Path) -> None:
    """Those that show how far a compile is, run C compilers and write reports: code with a lock would be broken."""
    env = {k: v for k, v in os.environ.items() if k != "TORCHGLASS_QUIET"} | {"TORCHGLASS_DIR": str(tmp_path / "files")}
    command = [sys.executable, "-c", ALONE]
    run = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=env)
    assert (run.returncode, run.stdout) == (0, "2 1\n"), run.stderr
    assert "could not" not in run.stderr and "torchglass: function:" in run.stderr


def test_a_thread_that_is_struck_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython may throw at it what was meant for the thread that starts it: the call runs there then."""
    begin_thread = threads._thread.start_new_thread
    struck = lambda run, args: begin_thread(lambda *args: None, args)
    assert threads.begin(threading.get_ident).result() != threading.get_ident()
    on = threading.Event()
    assert threads.start(on.wait)  # which does not wait for its end
    on.set()
    monkeypatch.setattr(threads._thread, "start_new_thread", struck)
    assert not threads.start(print)
    assert threads.begin(threading.get_ident).result(timeout=60) == threading.get_ident()
