"""Folders that would grow for ever: what is too old or too much in, what was deleted out. Looked at once an hour.

    if due(folder):
        delete_surplus([(modified(path), bytes_below(path), path) for path in ...], 30, 2 << 30, delete)

Never raises: it is a courtesy, and another process may delete at the same time.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

PRUNE_EVERY = 3600.0  # seconds: each process would look at everything
PRUNED = ".pruned"
DAY = 86400


def due(folder: Path) -> bool:
    """Whether no process pruned within the hour; notes that this one does."""
    with contextlib.suppress(OSError):
        stamp = folder / PRUNED
        if stamp.exists() and 0 <= time.time() - stamp.stat().st_mtime < PRUNE_EVERY:
            return False
        stamp.touch(mode=0o600)
    return True


def go_on_next_time(folder: Path) -> None:
    """There was no time for all of it: the next process has some."""
    with contextlib.suppress(OSError):
        (folder / PRUNED).unlink(missing_ok=True)


def modified(path: Path) -> float:
    """Since when it is as it is; what is gone is newer than everything."""
    try:
        return path.lstat().st_mtime
    except OSError:
        return math.inf


def bytes_below(folder: Path) -> int:
    """Of all files in a folder and its sub-folders."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_size
    return total


def delete_surplus(
    rows: Iterable[tuple[float, int, Path]], max_age_days: float, max_bytes: int, delete: Callable[[Path], bool]
) -> list[Path]:
    """Delete what is older than ``max_age_days``, then the oldest until ``max_bytes`` are left. ``rows``: time, bytes
    and path of each; ``delete`` says whether it could. What was deleted.
    """
    rows = sorted(rows)
    total, deleted = sum(size for _, size, _ in rows), []
    for since, size, path in rows:
        if (time.time() - since > max_age_days * DAY or total > max_bytes) and delete(path):
            total -= size
            deleted.append(path)
    return deleted
