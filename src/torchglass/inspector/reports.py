"""README.md and full_code.py are written when they can be read: a changed record in, the two files out, not
too often.

    changed(record, folder.write, at_once=True)     # a folder that a person asked for: they may look any
    moment changed(record, folder.write, at_once=False)    # the cache folder: at the end of the process is
    soon enough

Putting the two together takes tens of milliseconds for a model, which no first call should pay unasked.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Callable
from typing import Any

from ..records.compilation import FunctionRecord

log = logging.getLogger("torchglass.inspector")

Write = Callable[[str, str], Any]
"""``(filename, text)``: writes into the function's folder."""

MOST_WAITING = 100
"""Records that wait are kept alive; a process that compiles without end writes them now and then."""

_lock = threading.RLock()
_waiting: dict[int, tuple[int, FunctionRecord, Write]] = {}


def changed(record: FunctionRecord, write: Write, at_once: bool) -> None:
    """The record of a function has something new. Write its two files now, or at the end of this process."""
    if at_once:
        _write(record, write)
        return
    with _lock:
        _waiting[id(record)] = (os.getpid(), record, write)
        crowded = len(_waiting) > MOST_WAITING
    if crowded:
        flush()


def flush(record: FunctionRecord | None = None) -> None:
    """Write what waits: of this record, or of all."""
    with _lock:
        keys = list(_waiting) if record is None else [id(record)]
        rows = [_waiting.pop(key) for key in keys if key in _waiting]
    for process, waiting, write in rows:
        if process == os.getpid():  # a forked child leaves its parent's files alone
            _write(waiting, write)


def _write(record: FunctionRecord, write: Write) -> None:
    """A report that fails must not harm the program it reports on."""
    from .full_code import full_code  # here, since jinja2 is slow to load and most processes never need it
    from .readme import readme

    for name, text_of in (("README.md", readme), ("full_code.py", full_code)):
        try:
            write(name, text_of(record))
        except Exception:
            log.warning("%s of %s could not be written", name, record.name, exc_info=True)


@atexit.register
def _at_exit() -> None:
    with contextlib.suppress(Exception):
        flush()
