"""Compiles that are struck by an exception from outside at a chosen or a random moment: used by test_interrupts.py.

python -m tests.programs.interrupts struck 2000     # at sampled calls of Python functions, as another thread would
python -m tests.programs.interrupts signals 500     # KeyboardInterrupt at random moments
"""

import ctypes
import functools
import gc
import os
import random
import signal
import sys
import threading
import time
import warnings

import torch

import torchglass as tg
from torchglass.process import locks

OURS = os.path.join(os.path.dirname(tg.__file__), "")


class Struck(BaseException):
    """What comes from outside."""


def program():
    """A function with a graph break and gradients, and what eager gives."""

    def function(x, w):
        y = torch.relu(x @ w).sin() + x.t() * 2
        with torch.no_grad():
            scale = y.abs().max()
        tg.graph_break()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = y @ w
        return (y / scale).sum() + z.float().view(-1)[:4].prod()

    x, w = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    return function, (x, w), torch.autograd.grad(function(x, w), (x, w))


def state():
    """What a compile must leave as it was."""
    dispatch = torch.utils._python_dispatch
    return (
        tg._native.global_state(),
        torch._C._len_torch_dispatch_stack(),
        dispatch.is_in_torch_dispatch_mode(),
        torch.is_anomaly_enabled(),
        torch._C._is_view_replay_enabled(),
        torch.is_autocast_cache_enabled(),
        torch._C._functorch.peek_interpreter_stack(),
        torch._C._autograd._top_saved_tensors_default_hooks(True),
        gc.isenabled(),
        gc.get_threshold(),
        gc.get_freeze_count() > 1000,
        sys.getrecursionlimit(),
        warnings.filters,
        [signal.getsignal(n) for n in signal.valid_signals()],
        [(n, m) for n, m in sys.modules.items() if n.startswith("torch._dynamo")],
        "_dynamo" in torch.__dict__,
    )


def gradients(compiled, inputs):
    return torch.autograd.grad(compiled(*inputs), inputs)


def torch_works(function, compiled, inputs, wanted, before, anew):
    """Torch does what it did, nobody holds a lock, and the function can be compiled: at once, and ``anew``."""
    after = state()
    assert after == before, [(a, b) for a, b in zip(before, after) if a != b]
    assert torch.equal((torch.ones(3) + 1).sum(), torch.tensor(6.0))
    for again in (compiled, compiled, *([tg.compile(function)] if anew else [])):
        for got, want in zip(gradients(again, inputs), wanted, strict=True):
            torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
    held = []
    thread = threading.Thread(target=lambda: held.extend(lock for lock in list(locks._locks) if not opens(lock)))
    thread.start()
    thread.join()
    assert not held, "a lock is held"


def opens(lock):
    """Whether the current thread can take it, after a moment: reports are written beside us."""
    return lock.acquire(timeout=20) and lock.release() is None


def strike_at(n, call):
    """``call()``, into which an exception is thrown at the n-th call of a function of ours, as another thread would do.
    How many calls there were. PyTorch's C++ ends the process if a few of the functions that it calls raise.
    """
    thread, seen = threading.get_ident(), 0

    def watch(frame, event, argument):
        nonlocal seen
        seen += frame.f_code.co_filename.startswith(OURS)
        if 0 < n == seen:
            sys.settrace(None)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Struck))

    sys.settrace(watch)
    try:
        call()
        for _ in range(10):
            time.time()
    finally:
        sys.settrace(None)
    return seen


def struck(samples, seed=0):
    function, inputs, wanted = program()
    gradients(tg.compile(function), inputs)  # modules that load at the first compile are loaded
    calls = strike_at(0, lambda: gradients(tg.compile(function), inputs))
    draw, hits = random.Random(seed), 0
    for n in sorted(draw.sample(range(1, calls), samples)):
        compiled, before = tg.compile(function), state()
        try:
            strike_at(n, functools.partial(gradients, compiled, inputs))
        except Struck:
            hits += 1
        try:
            torch_works(function, compiled, inputs, wanted, before, anew=n % 16 == 0)
        except BaseException as error:
            raise AssertionError(f"after a strike at call {n} of {calls}") from error
    return hits


def signals(samples, seed=0):
    function, inputs, wanted = program()
    gradients(tg.compile(function), inputs)
    begin = time.perf_counter()
    gradients(tg.compile(function), inputs)
    seconds = time.perf_counter() - begin
    draw, hits = random.Random(seed), 0
    for _ in range(samples):
        compiled, before = tg.compile(function), state()
        timer = threading.Timer(draw.random() * seconds, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            gradients(compiled, inputs)
            timer.join()
            time.sleep(0)
        except KeyboardInterrupt:
            hits += 1
        torch_works(function, compiled, inputs, wanted, before, anew=draw.random() < 0.1)
    return hits


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ResourceWarning)
    count = int(sys.argv[2])
    hits = {"struck": struck, "signals": signals}[sys.argv[1]](count)
    print(f"{hits} of {count} met a compile")
