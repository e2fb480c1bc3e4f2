"""Signals held back while the main thread compiles, and let through where nothing is half done.

    hold()              # from here on handlers run in check(), inside waiting(...), or afterwards
    check()             # in loops of the stages
    waiting(wait)       # for the C compiler: handlers run at once
    let_go(); deliver()
    whole(call)         # all of that around a call

Python runs a signal's handler between any two instructions of the main thread, and what it raises (KeyboardInterrupt,
a time limit's error) would leave torch's modes, imports and C++ code half way. What a handler raises here is raised in
the end by who compiles; on the way there it is no ``Exception``, so nobody takes it for an error of the compiler. A
second signal of one kind is let through wherever it comes, except amid our imports: then only what the outermost level
puts back is put back. So a handler may run while anything is half done and any lock held by its own thread: what it
calls that is not compiled yet runs as it is, and it sees PyTorch as the program left it (``handlers_run_in``).

Threads of ours that compile beside the program end in check() as well, once the program does (``end_threads``).

A child that another thread forks has the program's handlers: nobody compiles in it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import FrameType
from typing import Any, TypeVar

from .locks import importing

T = TypeVar("T")

pending: dict[int, None] = {}
"""Signals that came and wait, in order."""

may_be_ended: set[int] = set()
"""Threads of ours that compile what no call of the program waits for."""

_ending = False  # whether those are to end
_handlers: dict[int, Any] = {}  # of the program, while they are held back
_at_once = False  # whether the main thread waits
_handling = False  # whether the main thread is in a handler that a compile was interrupted for
_around: Callable[[], AbstractContextManager[None]] = nullcontext


class Interrupted(BaseException):
    """A handler of the program raised ``error``, or the program ends."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


def undone(call: Callable[[], T], undo: Callable[[], None]) -> T:
    """``call()``, and ``undo()`` after it. Twice: an exception from outside (a signal, a thread) may strike it."""
    try:
        try:
            return call()
        finally:
            undo()
    finally:
        undo()


def whole(call: Callable[[], T]) -> T:
    """``call()``, with what a handler raised meanwhile raised after it."""
    if _handlers and _in_main_thread():
        return call()

    def held() -> T:
        hold()
        return call()

    try:
        return undone(held, let_go)
    except Interrupted as interrupted:
        raise interrupted.error from None
    finally:
        deliver()


def hold() -> None:
    """From now on signals with a handler in Python wait; in other threads than the main one there are none to come."""
    if _handlers or not _in_main_thread():
        return
    found = {number: signal.getsignal(number) for number in _NUMBERS}
    _handlers.update((number, handler) for number, handler in found.items() if callable(handler))
    for number in list(_handlers):
        signal.signal(number, _note)


def handlers_run_in(around: Callable[[], AbstractContextManager[None]]) -> None:
    """From now on a compile of the main thread puts this around the handlers of the program."""
    global _around
    if _in_main_thread():
        _around = around


def is_handling() -> bool:
    """Whether this thread runs a handler amid a compile of its own, which may be anywhere."""
    return _handling and _in_main_thread()


def let_go() -> None:
    """The program's handlers are in place again."""
    global _handling
    if not _handlers or not _in_main_thread():
        return
    _handling = False  # what a second handler raised may have kept the first one's from being noted as over
    for number, handler in list(_handlers.items()):
        if signal.getsignal(number) is _note:
            signal.signal(number, handler)
    _handlers.clear()


def check() -> None:
    """Nothing is half done here: the handlers of signals that came may raise, and a thread may end with the program."""
    if _ending and threading.get_ident() in may_be_ended:
        raise Interrupted(SystemExit())
    if pending and _in_main_thread():
        while pending:
            _handle(next(iter(pending)), sys._getframe())


def waiting(wait: Callable[[], T]) -> T:
    """``wait()``, which signals interrupt."""
    global _at_once
    if not _in_main_thread():
        return wait()
    before = _at_once
    try:
        _at_once = True
        check()
        return wait()
    finally:
        _at_once = before


def deliver() -> None:
    """After ``let_go``: the handlers of signals that still wait."""
    if pending and not _handlers and _in_main_thread():
        while pending:
            number = next(iter(pending))
            del pending[number]
            _call(signal.getsignal(number), number, sys._getframe())


def end_threads() -> None:
    """From now on those that ``may_be_ended`` raise what is no ``Exception`` where they check."""
    global _ending
    _ending = True


def is_raised_by_handler(error: BaseException) -> bool:
    """Whether the handler of a signal raised this: one lies on the way to it."""
    handlers = {_code_of(handler) for handler in map(signal.getsignal, _NUMBERS) if callable(handler)}
    return any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__))


def _code_of(handler: Any) -> Any:
    """The code of what is called; None where that is not written in Python."""
    while isinstance(handler, partial):
        handler = handler.func
    if hasattr(handler, "__code__"):
        return handler.__code__
    return getattr(getattr(type(handler), "__call__", None), "__code__", None)  # noqa: B004, the method is looked for


def _note(number: int, frame: FrameType | None) -> None:
    # a handler that asks for what a half loaded module is to have would not find it
    if _at_once or (number in pending and not importing._is_owned()):
        _handle(number, frame)
    else:
        pending[number] = None


def _handle(number: int, frame: FrameType | None) -> None:
    global _handling
    pending.pop(number, None)
    before = _handling
    try:
        _handling = True
        with _around():
            _call(_handlers.get(number), number, frame)
    except BaseException as error:
        raise Interrupted(error) from error
    finally:
        _handling = before


def _call(handler: Any, number: int, frame: FrameType | None) -> None:
    if callable(handler):
        handler(number, frame)


def _in_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


_NUMBERS = sorted(signal.valid_signals())
_main_thread = threading.main_thread().ident


def _forget_main_thread() -> None:
    """In a child: if another thread forked it, nothing that the main thread was about goes on. Other threads do not."""
    global _at_once, _main_thread
    may_be_ended.clear()
    if _main_thread == threading.get_ident():
        return
    _main_thread = threading.get_ident()
    _at_once = False
    let_go()
    handlers_run_in(nullcontext)
    pending.clear()  # these came to the parent


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_main_thread)
