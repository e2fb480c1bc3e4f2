"""Locks that captured code takes, and hooks that it registers."""

from __future__ import annotations

import sys
import threading

import pytest
import torch
from torch import nn

import torchglass as tg

LOCK, AGAIN = threading.Lock(), threading.RLock()


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Threads that other tests in this process have left do not count."""
    this = threading.current_thread()
    monkeypatch.setattr(threading, "_active", {this.ident: this})


class Installing(nn.Module):
    """Registers hooks in its first call, behind a lock, as transformers' models do for their hidden states."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.installed, self.states = False, []

    def forward(self, x):
        if not self.installed:
            with LOCK:
                if not self.installed:
                    for layer in (self.first, self.second):
                        layer.register_forward_hook(lambda module, args, output: self.states.append(output))
                    self.installed = True
        self.states.clear()
        return self.second(self.first(x)), list(self.states)


class Once(nn.Module):
    """Registers a hook for the time of one call of a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        handle = self.layer.register_forward_hook(lambda module, args, output: output * 2)
        y = self.layer(x)
        handle.remove()
        return y + self.layer(x)


def test_hooks_registered_in_the_first_call():
    module = Installing()
    count = torch.utils.hooks.RemovableHandle.next_id
    compiled = tg.compile(module, backend="eager", fullgraph=True)
    x = torch.ones(2, 3)
    for _ in range(3):
        _, states = compiled(x)
        torch.testing.assert_close(states, module(x)[1])
    assert len(module.first._forward_hooks) == 1
    assert torch.utils.hooks.RemovableHandle.next_id == count + 2
    assert len(tg.explain(compiled).entries) == 2 and not LOCK.locked()


def test_hooks_registered_at_every_call():
    module = Once()
    compiled = tg.compile(module, backend="eager")
    x = torch.ones(2, 3)
    for _ in range(6):
        count = torch.utils.hooks.RemovableHandle.next_id
        torch.testing.assert_close(compiled(x), module(x))
        assert torch.utils.hooks.RemovableHandle.next_id == count + 2
    assert not module.layer._forward_hooks
    assert len(tg.explain(compiled).entries) <= 3


def test_handles_outlive_the_call():
    def function(layer, x):
        return layer.register_forward_pre_hook(lambda module, args: (args[0] + 1,)), layer(x)

    layer, x = nn.Linear(3, 3), torch.ones(3)
    plain = layer(x)
    handle, y = tg.compile(function, backend="eager", fullgraph=True)(layer, x)
    torch.testing.assert_close((y, layer(x)), (layer.forward(x + 1),) * 2)
    handle.remove()
    assert torch.equal(layer(x), plain)


def test_what_is_written_under_a_lock():
    class Holder:
        count = 0

    holder = Holder()

    def function(x):
        with LOCK:
            holder.count += 1
            with AGAIN, AGAIN:
                y = x + 1
        return y * 2

    compiled = tg.compile(function, backend="eager", fullgraph=True)
    for _ in range(4):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 4.0))
    assert not LOCK.locked() and holder.count == 4


@pytest.mark.parametrize("release", [True, False])
def test_a_break_while_a_lock_is_held(release):
    held = []

    def function(x):
        LOCK.acquire()
        y = x + 1
        tg.graph_break()
        held.append(LOCK.locked())
        y = y * 2
        if release:
            LOCK.release()
        return y

    def within(x):
        with LOCK:
            y = x + 1
            tg.graph_break()
            held.append(LOCK.locked())
            return y * 2

    for program in (function, within):
        compiled = tg.compile(program, backend="eager")
        for _ in range(2):
            assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 4.0))
            if program is function and not release:
                LOCK.release()
            assert not LOCK.locked()
    assert held == [True] * 4


def test_locks_taken_and_given_back_wrongly():
    def twice(x):
        assert LOCK.acquire(False)
        return x + 1, LOCK.acquire(blocking=False)

    def too_often(x):
        y = x + 1
        try:
            LOCK.release()
        except RuntimeError as error:
            return y, str(error)

    x = torch.ones(2)
    assert tg.compile(twice, backend="eager")(x)[1] is False
    LOCK.release()
    assert tg.compile(too_often, backend="eager")(x)[1] == "release unlocked lock"


def test_many_threads_at_one_lock():
    """A counter behind a lock: no count is lost, as in eager."""
    counts = {"calls": 0}

    def function(x):
        with LOCK:
            counts["calls"] += 1
        return x + 1

    compiled = tg.compile(function, backend="eager")
    for _ in range(3):
        compiled(torch.ones(2))
    assert not tg.explain(compiled).breaks()

    threads = [threading.Thread(target=lambda: [compiled(torch.ones(2)) for _ in range(100)]) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    assert counts["calls"] == 403 and not LOCK.locked()
    assert "other threads" in tg.explain(compiled).breaks()[0].reason
