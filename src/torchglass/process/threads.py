"""Threads of ours: a call in, which runs beside the program; nothing out that the program would see.

    begin(compile_c, path).result()     # beside this thread, or in it where none can be started any more
    start(show, line)                   # whether it runs: as the interpreter ends there are no new threads

They are none that ``threading`` knows: what a program does may depend on whether it has others (``capture.locks``), and
the interpreter does not wait for them when it ends. ``concurrent.futures`` starts none after the main thread's end, at
which other threads of the program, and what it has registered with ``atexit``, may still compile.
"""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


def begin(call: Callable[..., T], *args: Any) -> Future[T]:
    """``call(*args)``, whose result can be waited for."""
    made: Future[T] = Future()
    if not start(_keep_result, made, call, args):
        _keep_result(made, call, args)
    return made


def start(call: Callable[..., Any], *args: Any) -> bool:
    """Run ``call(*args)``, which nobody waits for. Whether there is a thread for it."""
    if sys.is_finalizing():  # a thread that is started now never gets the GIL
        return False
    lock, ran = _thread.allocate_lock(), list[bool]()
    lock.acquire()
    try:
        _thread.start_new_thread(_run, (_Begun(lock, ran), call, args))
    except RuntimeError:
        return False
    lock.acquire()
    return bool(ran)


class _Begun:
    """Tells who started a thread that it runs, or that it never will: CPython takes a thread that is not there yet for
    the one that starts it, and throws at it what another thread throws at that one (``PyThreadState_SetAsyncExc``).
    """

    def __init__(self, lock: _thread.LockType, ran: list[bool]) -> None:
        self.lock, self.ran = lock, ran

    def __del__(self) -> None:
        if not self.ran:
            self.lock.release()


def _run(begun: _Begun, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
    begun.ran.append(True)
    begun.lock.release()
    try:
        call(*args)
    finally:  # who asks for the current thread, as records of logs do, enters it
        getattr(threading, "_active", {}).pop(_thread.get_ident(), None)


def _keep_result(made: Future[T], call: Callable[..., T], args: tuple[Any, ...]) -> None:
    try:
        made.set_result(call(*args))
    except BaseException as error:
        made.set_exception(error)
