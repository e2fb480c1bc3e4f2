"""Locks that captured code takes (``meanings/locks.py``): an entry holds them while it writes."""

from __future__ import annotations

from ..values.effects_log import Locks
from .emitter import Emitter


def held(e: Emitter, statements: list[str]) -> list[str]:
    """``statements`` with the program's locks held. Locks that it still holds at the end are taken before and kept;
    what it gave back though it had taken it before is released after.
    """
    within: list[str] = []
    kept: list[str] = []
    for lock, taken in e.m.state(Locks).steps:
        name = e.expr(lock)
        if taken:
            kept.append(name)
        elif name in kept:
            kept.remove(name)
            within += [name] if name not in within else []
        else:
            statements = [*statements, f"{name}.release()"]
    if within:
        statements = [f"with {', '.join(within)}:", *(f"    {line}" for line in statements or ["pass"])]
    return [*(f"{name}.acquire()" for name in kept), *statements]
