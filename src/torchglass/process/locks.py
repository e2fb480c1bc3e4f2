"""Locks that a forked child finds open: in it, the thread that held one does not exist.

lock = fork_safe_lock()     # a threading.RLock; stays closed in the child if the forking thread holds it
forks_wait_for(lock)        # for what cannot be undone in a child: modules half imported by another thread
"""

from __future__ import annotations

import importlib._bootstrap
import os
import threading
import time
import weakref
from typing import Any

LONGEST = 10.0
"""Seconds that a fork waits at most."""

threads_at_work: set[int] = set()
"""The threads that compile now."""


def _wait_for_imports() -> None:
    """Until none of them but this one is amid an import, of PyTorch's parts that load late, say: in the child the
    module would stay half loaded and its lock closed.
    """
    until = time.monotonic() + LONGEST
    known: Any = importlib._bootstrap
    while (others := threads_at_work - {threading.get_ident()}) and time.monotonic() < until:
        locks = [reference() for reference in list(known._module_locks.values())]
        if all(lock is None or lock.owner not in others for lock in locks):
            return
        time.sleep(0.001)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait_for_imports)  # the first that is registered runs last, right before the fork

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def fork_safe_lock() -> Any:
    """A reentrant lock."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def forks_wait_for(lock: Any) -> Any:
    """Forks wait until no other thread holds ``lock``, for LONGEST at most: it may wait for this one."""
    taken: list[bool] = []

    def before() -> None:
        taken.append(lock.acquire(timeout=LONGEST))

    def after() -> None:
        if taken and taken.pop():  # empty if a module loaded, and came here, after the fork began
            lock.release()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=after, after_in_child=after)
    return lock


def _open_all() -> None:
    for lock in list(_locks):
        if not lock._is_owned():
            lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open_all)

importing = forks_wait_for(fork_safe_lock())
"""Held while modules of ours load."""
