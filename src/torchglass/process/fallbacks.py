"""The one place from which the program hears that something runs otherwise than compiled: a warning in the log.

    fallbacks.say("`f` could not be compiled and runs eagerly: no such luck", origin)

Once for each reason and place, from the logger "torchglass". Never an exception, whatever filters, handlers and
formatters the program has: a program that runs eagerly is right, one that ends is not.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable
from contextlib import suppress

log = logging.getLogger("torchglass")

MOST = 10_000
"""So many reasons are remembered: programs that make functions without end stay flat."""

_said: dict[Hashable, None] = {}


def say(reason: str, origin: Hashable = None, more: str = "", key: Hashable = None, error: object = None) -> None:
    """Log ``reason``, the user's line and ``more``, unless the same reason (``key``) was told of before.

    ``error`` is an exception of ours to show with its traceback. Daemon threads that are still at work when the
    interpreter ends can start nothing any more, and say nothing.
    """
    if not threading.main_thread().is_alive() and threading.current_thread().daemon:
        return
    told = (reason, origin) if key is None else key
    if told in _said:
        return
    if len(_said) >= MOST:
        _said.clear()
    _said[told] = None
    place = ", ".join(part for part in (f"at {origin}" if origin else "", more) if part)
    with suppress(Exception):  # of a handler or filter of the program's
        log.warning("%s%s", reason, f" ({place})" if place else "", exc_info=error)  # type: ignore[arg-type]


def forget() -> None:
    """From here on everything is said once more."""
    _said.clear()
