"""Compiling without torch._dynamo: a stand-in for it, and what else every compile switches and puts back."""

from __future__ import annotations

import functools
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import Any, TypeVar

import torch

from .. import _native
from ..process import interrupts
from ..process.collector import Paused
from ..process.locks import fork_safe_lock, forks_wait_for, threads_at_work
from .modes import ProcessState, ThreadState, anomalies

# FakeTensorMode reads three settings of torch._dynamo.config, and PyTorch's reference implementations of operators wrap
# themselves with torch._dynamo.disable at their first call. Either loads all of torch._dynamo: 1.2 s of every first
# compile, for settings that have their defaults. While we compile, a stand-in answers these and loads the real package
# for anything else. Without it everything works and starts 1.2 s later. Tried: 2.13.
_DYNAMO = "torch._dynamo"

T = TypeVar("T")


class _StandIn(ModuleType):
    """A module with a few known names. Any other name loads the real module in its place and comes from there."""

    def __init__(self, name: str, **known: Any) -> None:
        super().__init__(name)
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Any:
        if name == "__path__" or not name.startswith("__"):
            _remove_stand_in()
            return getattr(importlib.import_module(self.__name__), name)
        raise AttributeError(name)


def _disable_later(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """``torch._dynamo.disable`` by the stand-in: the function itself, until the real package is loaded.

    PyTorch keeps what this returns for good, so it must turn into the real thing by itself.
    """

    def call(*call_args: Any, **call_kwargs: Any) -> Any:
        module = sys.modules.get(_DYNAMO)
        if module is None or isinstance(module, _StandIn):
            return function(*call_args, **call_kwargs)
        real = module.disable(function, *args, **kwargs)
        function.__dynamo_disable = real  # type: ignore[attr-defined]
        return real(*call_args, **call_kwargs)

    return call


_config = _StandIn(
    f"{_DYNAMO}.config",
    fake_tensor_cache_enabled=True,
    fake_tensor_cache_crosscheck_enabled=False,
    _custom_ops_profile=None,
)
_package = _StandIn(_DYNAMO, config=_config, disable=_disable_later)
_STAND_INS = {_DYNAMO: _package, f"{_DYNAMO}.config": _config}


def _remove_stand_in() -> None:
    for name, module in _STAND_INS.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
    if torch.__dict__.get("_dynamo") is _package:
        del torch.__dict__["_dynamo"]


class Compiling:
    """What compiles switch in the process and in their thread, and that it is put back, whatever ends them.

    While any thread compiles, torch._dynamo stays unloaded, and autograd's anomaly detection is off, which would read
    the data of fake tensors. The cyclic collector waits. Signals wait: interrupts.py. Their handlers see all as the
    program has it.
    """

    def __init__(self) -> None:
        self._moment = fork_safe_lock()
        self._turn = forks_wait_for(fork_safe_lock())  # of who is alone
        self._threads = threads_at_work
        self._without_collections = Paused()
        self._before: ProcessState | None = None  # while a thread is alone
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget_other_threads)

    def is_at_work(self) -> bool:
        """Whether the current thread compiles."""
        return threading.get_ident() in self._threads

    def undisturbed(self, call: Callable[[], T]) -> T:
        """One compile, of any thread, within ``interrupts.whole``."""
        thread = threading.get_ident()
        if thread in self._threads:
            return call()
        before, failed = ThreadState(), True

        def at_work() -> T:
            nonlocal failed
            self._begin(thread)
            interrupts.handlers_run_in(functools.partial(self._of_program, before))
            try:
                result = call()
            finally:
                _native.meet_exception()  # of this compile, not of a later one
            failed = False
            return result

        def undo() -> None:
            interrupts.handlers_run_in(nullcontext)
            self._end(thread)
            if failed:
                before.restore(sys.exc_info()[1])

        return interrupts.undone(at_work, undo)

    def alone(self, call: Callable[[], T]) -> T:
        """What switches things for the whole process, as running a program on fake tensors does: one thread at a time.
        Locks of ours that a thread in here waits for must be none that another holds while it waits to be here.
        """
        with self._turn:
            if self._before is not None:
                return call()
            before, failed = ProcessState(), True

            def at_work() -> T:
                nonlocal failed
                self._before = before
                result = call()
                failed = False
                return result

            def undo() -> None:
                if failed:
                    before.restore()
                self._before = None

            return interrupts.undone(at_work, undo)

    @contextmanager
    def _of_program(self, before: ThreadState) -> Iterator[None]:
        """Amid a compile of this thread what it found, for code of the program's."""
        switched = self._before if self._turn._is_owned() else None
        compilers, of_process = ThreadState(), ProcessState()
        with anomalies.as_before():
            try:
                if switched is not None:
                    switched.restore_shown()
                before.restore()
                yield
            finally:
                compilers.restore()
                if switched is not None:
                    of_process.restore_shown()

    def _begin(self, thread: int) -> None:
        with self._moment:
            if not self._threads:
                self._without_collections.__enter__()
                anomalies.off()
                if _DYNAMO not in sys.modules:
                    sys.modules.update(_STAND_INS)
                    torch.__dict__["_dynamo"] = _package
            self._threads.add(thread)

    def _end(self, thread: int) -> None:
        with self._moment:
            self._threads.discard(thread)
            if self._threads:
                return
            _remove_stand_in()
            anomalies.back()
            self._without_collections.__exit__()

    def _forget_other_threads(self) -> None:
        """In a forked child: what they were about is undone."""
        thread = threading.get_ident()
        self._threads &= {thread}
        if self._before is not None and not self._turn._is_owned():
            self._before.restore()
            self._before = None
        if not self._threads:
            self._end(thread)
