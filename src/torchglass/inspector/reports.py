"""The files of a function's folder that are made for reading: a changed record in, the files out, not too often.

    changed(record, folder, asked=True)     # a folder that a person asked for: within a second or so
    changed(record, folder, asked=False)    # the cache folder: at the end of the process, and fewer files
    flush()                                 # now: prepare_debug ends, explain is called, the process exits

Putting them together takes tens of milliseconds for a model, which no call should pay: a thread does it when the
compiler has been quiet for a moment.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ..process import fallbacks, threads
from ..process.locks import fork_safe_lock, forks_wait_for
from ..records.compilation import FunctionRecord
from .show import on_the_stack

log = logging.getLogger("torchglass.inspector")

Write = Callable[[str, str], Any]
"""``(path below the function's folder, text)``: writes a file there."""

MOST_WAITING = 100
"""Records that wait are kept alive; a process that compiles without end writes them now and then."""

QUIET = 0.7
"""Seconds without a change after which the files of a folder that somebody looks at are written."""

_lock = fork_safe_lock()
_writing = forks_wait_for(fork_safe_lock())  # while files are written: whoever flushes or exits waits for the thread
_waiting: dict[int, tuple[int, Callable[[], FunctionRecord | None], Write, bool]] = {}
_due = 0.0  # when it has been quiet for so long
_watched = False  # whether a thread waits for that


def changed(record: FunctionRecord, write: Write, asked: bool) -> None:
    """The record of a function has something new: its files are written soon, or at the end of this process."""
    global _due, _watched
    _write_at_exit()
    with _lock:
        # nobody waits for the files of a function that is gone, and its record would keep what it worked on
        kept = (lambda: record) if asked else weakref.ref(record)
        _waiting[id(record)] = (os.getpid(), kept, write, asked)
        crowded = len(_waiting) > MOST_WAITING
        if asked:
            _due = time.monotonic() + QUIET
            _watched = _watched or threads.start(_watch)
    if crowded:
        flush()


def flush(record: FunctionRecord | None = None) -> None:
    """Write what waits: of this record, or of all."""
    with _writing:
        for row in _take(lambda waiting: record is None or waiting is record):
            _write(*row)


def _watch() -> None:
    """A thread that writes once it has been quiet."""
    global _watched
    while True:
        with _lock:
            left = _due - time.monotonic()
            if left <= 0:
                _watched = False
                break
        time.sleep(left)
    _when_quiet()


def _when_quiet() -> None:
    """Runs in a thread of its own. A record that grows just now is left for the next time."""
    with _writing:
        for waiting, write, asked in _take(lambda _: True, asked_only=True):
            try:
                for name, text_of in _files(waiting, asked):
                    write(name, text_of())
            except Exception:
                log.debug("the reports of %s were not written yet", waiting.name, exc_info=True)
                with _lock:
                    _waiting.setdefault(id(waiting), (os.getpid(), weakref.ref(waiting), write, asked))


def _take(
    wanted: Callable[[FunctionRecord], bool], asked_only: bool = False
) -> list[tuple[FunctionRecord, Write, bool]]:
    with _lock:
        rows = [(key, process, kept(), write, asked) for key, (process, kept, write, asked) in _waiting.items()]
        taken = [row for row in rows if row[2] is None or (wanted(row[2]) and (row[4] or not asked_only))]
        for row in taken:
            del _waiting[row[0]]
    # a forked child leaves its parent's files alone
    mine = [row for row in taken if row[1] == os.getpid()]
    return [(record, write, asked) for _, _, record, write, asked in mine if record is not None]


def _files(record: FunctionRecord, asked: bool) -> Iterator[tuple[str, Callable[[], str]]]:
    """Names and makers of the files, those that people open first at the front."""
    from .full_code import full_code  # here, since jinja2 is slow to load and most processes never need it
    from .readme import readme
    from .resumed import subfolder

    yield "README.md", lambda: readme(record, asked)
    yield "full_code.py", lambda: full_code(record)
    for function in record.walk():
        if function.source and function.folder is not None:
            yield f"{subfolder(record, function)}resume_function.py", lambda function=function: _readable(function)  # type: ignore[misc]
    if not asked:
        return
    from .draw import svg
    from .flow import flow
    from .report import report

    yield "report.html", lambda: report(record)
    yield "flow.svg", lambda: flow(record)
    for function in record.walk():
        for entry in function.entries:
            for graph in entry.graphs:
                folder = f"{subfolder(record, function)}entry_{entry.index}/{graph.name}/"
                for side, rows in graph.nodes.items():
                    yield f"{folder}{side}.svg", lambda rows=rows, side=side: svg(rows, side)  # type: ignore[misc]


def _readable(function: FunctionRecord) -> str:
    """A resume function's text, of which what runs is the bytecode."""
    return f"{on_the_stack(function)}{function.source_text}"


def _write(record: FunctionRecord, write: Write, asked: bool) -> None:
    """A report that fails must not harm the program it reports on."""
    for name, text_of in _files(record, asked):
        try:
            write(name, text_of())
        except Exception as error:
            fallbacks.say(f"{name} of `{record.name}` could not be written", record.origin, error=error)


def _forget_thread() -> None:
    global _watched
    _watched = False  # threads do not survive a fork


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_thread)


@functools.cache  # when there are folders to write to: those that are temporary are deleted after this
def _write_at_exit() -> None:
    atexit.register(_at_exit)


def _at_exit() -> None:
    with contextlib.suppress(Exception):
        flush()
