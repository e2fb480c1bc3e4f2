"""Locks that captured code takes.

What it read was read before, by the guards, so another thread could write in between: locks are captured where there is
no other thread, and entries rely on that. With others about, taking a lock breaks the graph.
"""

from __future__ import annotations

import threading
from typing import Any

from ...records.sources import Global
from ..errors import Unsupported
from ..protocol import Machine, Value
from ..values.constant import NONE, ConstantV
from ..values.effects_log import Locks
from ..values.sealing import refuse_when_sealed
from .registry import method

LOCKS = (type(threading.Lock()), type(threading.RLock()))
THREADS = Global("_active", "threading")


def _taken(m: Machine, lock: Any) -> int:
    """How often more the program has taken a lock here than given it back."""
    return sum(1 if taken else -1 for other, taken in m.state(Locks).steps if getattr(other, "real", None) is lock)


@method(*LOCKS, name="acquire")
@method(*LOCKS, name="__enter__")
def acquire(m: Machine, self: Any, *args: Value, **kwargs: Value) -> Value:
    if args or kwargs:
        raise Unsupported("`acquire` of a lock with arguments")
    if isinstance(self.real, LOCKS[0]) and _taken(m, self.real) > 0:
        raise Unsupported("taking a lock that is held")
    if threading.active_count() > 1:
        raise Unsupported("taking a lock while there are other threads", "take it outside the compiled function")
    m.guard(THREADS, "length", 1, "a lock was taken, which other threads may wait for")
    refuse_when_sealed(m)
    m.state(Locks).steps.append((self, True))
    return ConstantV(True)


@method(*LOCKS, name="release")
@method(*LOCKS, name="__exit__")
def release(m: Machine, self: Any, *error: Value) -> Value:
    if _taken(m, self.real) <= 0 and not _is_held(self.real):
        raise Unsupported("releasing a lock that is not held")
    refuse_when_sealed(m)
    m.state(Locks).steps.append((self, False))
    return NONE


def _is_held(lock: Any) -> bool:
    return bool(lock.locked() if isinstance(lock, LOCKS[0]) else lock._is_owned())
