"""Folders that are safe to run code from: a wished-for folder in, a usable one out.

Unasked, artifacts go to ``<user's cache>/torchglass/runs/<time>-<pid>``, one folder per run, mode 0700. Old
runs are deleted by age and size, never one whose process lives: it holds a lock on its folder. A folder
that another user owns or may write is refused, because what lies in it is executed; a private temporary
folder takes its place, and a warning says so.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from .. import fallbacks

try:
    import fcntl
except ImportError:  # not a Unix: no locks; then a run counts as alive for a day (see _alive)
    fcntl = None  # type: ignore[assignment]

MAX_AGE_DAYS = 14.0
MAX_BYTES = 1 << 30
PRUNE_EVERY = 3600.0  # seconds: measuring every file of a full folder takes some, and each process would
LOCK = ".lock"
PRUNED = ".pruned"

_held: list[int] = []


class FolderRefused(Exception):
    """The folder is not safe to run code from; the message says why and what to do."""


def asked(root: Path) -> Path:
    """The folder a person named, created if need be; a temporary one if it is not safe or cannot be
    written.
    """
    return _or_temporary(root)


def of_this_run() -> Path:
    """A new folder for this process in the user's cache folder, after pruning older runs there."""
    import platformdirs  # here, since who names a folder never needs it

    runs = Path(platformdirs.user_cache_dir("torchglass", appauthor=False)) / "runs"
    run = runs / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    made = _or_temporary(run, runs)
    if made == run:
        _hold(run)
        if _due(runs):
            prune(runs)
    return made


def _due(runs: Path) -> bool:
    """Whether no process pruned within the hour; notes that this one does."""
    with contextlib.suppress(OSError):
        stamp = runs / PRUNED
        if stamp.exists() and 0 <= time.time() - stamp.stat().st_mtime < PRUNE_EVERY:
            return False
        stamp.touch(mode=0o600)
    return True


def prune(runs: Path, max_age_days: float = MAX_AGE_DAYS, max_bytes: int = MAX_BYTES) -> list[Path]:
    """Delete runs older than ``max_age_days``, then the oldest until ``max_bytes`` are left; never a live
    one's.

    Returns what was deleted. Never raises: pruning is a courtesy, and another process may prune at the same
    time.
    """
    deleted: list[Path] = []
    with contextlib.suppress(OSError):
        rows = sorted((_modified(p), p) for p in runs.iterdir() if p.is_dir() and not p.is_symlink())
        sizes = {path: _bytes_in(path) for _, path in rows}
        total = sum(sizes.values())
        for modified, path in rows:
            too_old = time.time() - modified > max_age_days * 86400
            if (too_old or total > max_bytes) and not _alive(path, modified):
                shutil.rmtree(path, ignore_errors=True)
                total -= sizes[path]
                deleted.append(path)
    return deleted


def check(path: Path) -> None:
    """Raise FolderRefused if ``path`` is no folder, or another user owns it or may write to it."""
    status = path.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise FolderRefused(f"{path} is not a folder")
    if not hasattr(os, "geteuid"):
        return
    if status.st_uid != os.geteuid():
        raise FolderRefused(f"{path} belongs to user {status.st_uid}, not to you ({os.geteuid()})")
    others = status.st_mode & stat.S_IWOTH
    group = status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid)
    if others or group:
        raise FolderRefused(f"{path} may be written by other users; run: chmod go-w {path}")


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock among processes; created if missing."""
    if fcntl is None:
        folder.mkdir(parents=True, exist_ok=True)
        yield
        return
    handle = _open_lock(folder)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)  # a child forked meanwhile has the handle too, and would keep it locked
        os.close(handle)


def _or_temporary(path: Path, *parents: Path) -> Path:
    try:
        for folder in (*parents, path):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            check(folder)
        if not os.access(path, os.W_OK | os.X_OK):
            raise FolderRefused(f"{path} cannot be written")
        return path
    except (FolderRefused, OSError) as error:
        temporary = Path(tempfile.mkdtemp(prefix="torchglass-"))
        fallbacks.say(f"torchglass keeps its files in {temporary} for now: {error}", key=str(error))
        atexit.register(_delete_own, temporary, os.getpid())
        return temporary


def _delete_own(folder: Path, pid: int) -> None:
    if os.getpid() == pid:  # not in a forked child, whose parent still runs code from here
        shutil.rmtree(folder, ignore_errors=True)


def _is_private_group(gid: int) -> bool:
    """Whether the group is the caller's own: many systems give each user a group of one and a umask of
    002.
    """
    with contextlib.suppress(ImportError, KeyError):
        import grp
        import pwd

        user = pwd.getpwuid(os.geteuid())
        return gid == user.pw_gid and set(grp.getgrgid(gid).gr_mem) <= {user.pw_name}
    return False


def _open_lock(folder: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
    try:
        return os.open(folder / LOCK, flags, 0o600)
    except FileNotFoundError:
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder / LOCK, flags, 0o600)


def _hold(run: Path) -> None:
    """Mark the run as alive until this process (and any it forks) ends."""
    if fcntl is not None:
        handle = _open_lock(run)
        fcntl.flock(handle, fcntl.LOCK_SH)
        _held.append(handle)


def _alive(run: Path, modified: float) -> bool:
    if fcntl is None:
        return time.time() - modified < 86400
    try:
        handle = os.open(run / LOCK, os.O_RDWR)
    except OSError:
        # No lock yet: a run that is being made, unless it is old.
        return time.time() - modified < 3600
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def _modified(path: Path) -> float:
    return path.lstat().st_mtime


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.lstat().st_size
    return total
