"""Folders that are safe to run code from: a wished-for folder in, a usable one out.

Unasked, artifacts go to ``<user's cache>/torchglass/runs/<time>-<pid>-<random>``, one folder per run, mode 0700. Old
runs are deleted by age and size, never one whose process lives: it holds a lock on its folder. A folder that another
user owns or may write, or may put another one in the place of (its parents count), is refused, because what lies in it
is executed; a private temporary folder takes its place, and a warning says so.

Compilers work in a temporary folder (``work_folder``), locked too: those that killed processes left are deleted.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import math
import os
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ..process import fallbacks
from . import pruning

try:
    import fcntl
except ImportError:  # not a Unix: no locks; then a run counts as alive for a day (see _alive)
    fcntl = None  # type: ignore[assignment]

MAX_AGE_DAYS = 14.0
MAX_BYTES = 1 << 30
PRUNE_AT_MOST = 0.5  # seconds of a process's first compile; the next process goes on
LOCK = ".lock"
UNHELD = ".lock.new"
MEASURED = ".bytes"  # how many a run had that has ended
WORK = "torchglass-cc-"
PATIENCE = 20.0  # seconds: whoever holds a folder's lock for longer is stopped or gone astray, and compiling goes on
NOWHERE = Path(os.devnull) / "torchglass"  # where nothing can be written: texts then run without files

_held: list[int] = []
_temporaries: list[tuple[Path, int]] = []  # and whose they are


class FolderRefused(OSError):
    """The folder is not safe to run code from; the message says why and what to do."""


def asked(root: Path) -> Path:
    """The folder a person named, created if need be; a temporary one if it is not safe or cannot be
    written.
    """
    return _or_temporary(root)


def of_user() -> Path:
    """Where the system wants the caches of a user: ours."""
    if sys.platform == "linux":  # as platformdirs says, which takes a tenth of what a process with kept entries takes
        named = os.environ.get("XDG_CACHE_HOME", "").strip()
        return Path(named or os.path.expanduser("~/.cache"), "torchglass")
    import platformdirs

    return Path(platformdirs.user_cache_dir("torchglass", appauthor=False))


def of_this_run() -> Path:
    """A new folder for this process in the user's cache folder, after pruning older runs there."""
    runs = of_user() / "runs"
    # processes of two containers that share the cache may have one number
    run = runs / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{secrets.token_hex(4)}"
    made = _or_temporary(run, runs)
    if made == run:
        with contextlib.suppress(OSError):  # a full disk
            _hold(run)
            if pruning.due(runs):
                end = time.perf_counter() + PRUNE_AT_MOST
                prune(runs, end=end)
                if time.perf_counter() > end:
                    pruning.go_on_next_time(runs)
    return made


def of_tuned() -> Path:
    """The folder of what max-autotune has measured, in the user's cache folder."""
    return _or_temporary(of_user() / "tuned")


@contextlib.contextmanager
def work_folder() -> Iterator[str]:
    """A folder for a moment. The first one of a process deletes those of processes that were killed."""
    _delete_left_work()
    with tempfile.TemporaryDirectory(prefix=WORK, ignore_cleanup_errors=True) as folder, _held_while(Path(folder)):
        yield folder


@functools.cache
def _delete_left_work() -> None:
    if fcntl is None:
        return
    with contextlib.suppress(OSError):
        for path in Path(tempfile.gettempdir()).glob(f"{WORK}*"):
            if (
                path.lstat().st_uid == os.geteuid()
                and not path.is_symlink()
                and not _alive(path, pruning.modified(path))
            ):
                shutil.rmtree(path, ignore_errors=True)


def prune(
    runs: Path, max_age_days: float = MAX_AGE_DAYS, max_bytes: int = MAX_BYTES, end: float = math.inf
) -> list[Path]:
    """Delete runs older than ``max_age_days``, then the oldest until ``max_bytes`` are left; never a live
    one's. What is not done at ``end``, in seconds of ``time.perf_counter``, is left.

    Returns what was deleted. Never raises: pruning is a courtesy, and another process may prune at the same
    time.
    """
    with contextlib.suppress(OSError):
        since = {path: pruning.modified(path) for path in runs.iterdir() if path.is_dir() and not path.is_symlink()}
        rows = [(modified, _bytes_in(path, modified, end), path) for path, modified in since.items()]

        def delete(run: Path) -> bool:
            return not _alive(run, since[run]) and _delete(run, since[run], end)

        return pruning.delete_surplus(rows, max_age_days, max_bytes, delete)
    return []


def _delete(run: Path, modified: float, end: float) -> bool:
    """Whether there was time for all of it. One of which a part is left is as old as it was."""
    for part in [one for one in run.iterdir() if one.name != LOCK]:
        if time.perf_counter() > end:
            os.utime(run, (modified, modified))
            return False
        with contextlib.suppress(OSError):  # what cannot be deleted keeps no other run
            shutil.rmtree(part, ignore_errors=True) if part.is_dir() and not part.is_symlink() else part.unlink()
    shutil.rmtree(run, ignore_errors=True)
    return True


def check(path: Path) -> None:
    """Raise FolderRefused if ``path`` is no folder, or another user than root owns it or may write to it."""
    status = path.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise FolderRefused(f"{path} is not a folder")
    check_status(path, status)


def check_status(path: Path, status: os.stat_result) -> None:
    """Raise FolderRefused if another user than root owns the file or folder of this status or may write to it."""
    if not hasattr(os, "geteuid"):
        return
    if status.st_uid not in (0, os.geteuid()):
        raise FolderRefused(f"{path} belongs to user {status.st_uid}, not to you ({os.geteuid()})")
    if _others_write(status):
        raise FolderRefused(f"{path} may be written by other users; run: chmod go-w {path}")


def check_parents(path: Path) -> None:
    """Raise FolderRefused if another user may put another folder in the place of ``path``.

    Parents belong to the caller or root, and others may not write there, or only as in /tmp, where nobody renames what
    is another's. Of a symbolic link both sides count.
    """
    if not hasattr(os, "geteuid"):
        return
    places = [Path(os.path.abspath(path)), Path(os.path.realpath(path))]
    for place in dict.fromkeys(parent for one in places for parent in one.parents):
        status = place.stat()
        if status.st_uid not in _trusted():
            raise FolderRefused(f"{place}, in which {path.name} lies, belongs to user {status.st_uid}")
        if _others_write(status) and not status.st_mode & stat.S_ISVTX:
            raise FolderRefused(f"{place}, in which {path.name} lies, may be written by other users")


def _trusted() -> set[int]:
    """Who may own parents. Inside a user namespace files of root outside show as the overflow user's."""
    owners = {0, os.geteuid()}
    with contextlib.suppress(OSError, ValueError):
        _, _, count = map(int, Path("/proc/self/uid_map").read_text().split())
        if count < 2**32 - 1:
            owners.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    return owners


def _others_write(status: os.stat_result) -> bool:
    group = status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid)
    return bool(status.st_mode & stat.S_IWOTH or group)


def make(folder: Path, mode: int = 0o755) -> None:
    """The folder and those it lies in, which others may not write to, whatever the umask."""
    missing = [folder]
    while not missing[-1].parent.is_dir():
        missing.append(missing[-1].parent)
    for one in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(one, mode)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock among processes; created if missing. TimeoutError if another keeps it."""
    if fcntl is None:
        make(folder)
        yield
        return
    handle = _open_lock(folder)
    try:
        _wait_for(handle, folder)
        yield
    finally:
        # a child forked meanwhile has the handle too: closing alone would leave the folder locked
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _wait_for(handle: int, folder: Path) -> None:
    end = time.monotonic() + PATIENCE
    pause = 0.0005
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise TimeoutError(f"another process keeps {folder / LOCK} locked") from None
        time.sleep(pause)
        pause = min(pause * 1.5, 0.02)


def _or_temporary(path: Path, *parents: Path) -> Path:
    try:
        for folder in (*parents, path):
            make(folder, 0o700)
            check(folder)
        check_parents(path)
        if not os.access(path, os.W_OK | os.X_OK):
            raise FolderRefused(f"{path} cannot be written")
        return path
    except OSError as error:
        return _temporary(error)


def _temporary(error: Exception) -> Path:
    try:
        temporary = Path(tempfile.mkdtemp(prefix="torchglass-"))
    except OSError:  # a full disk
        temporary = NOWHERE
    else:
        _temporaries.append((temporary, os.getpid()))
    fallbacks.say(f"torchglass keeps its files in {temporary} for now: {error}", key=str(error))
    return temporary


@atexit.register  # as this module loads: what writes into them as the process ends is registered later, and runs before
def _delete_temporaries() -> None:
    for folder, pid in _temporaries:
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


def _open_lock(folder: Path, name: str = LOCK) -> int:
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
    try:
        return os.open(folder / name, flags, 0o600)
    except FileNotFoundError:
        make(folder)
        return os.open(folder / name, flags, 0o600)


def _hold(run: Path) -> None:
    """Mark the run as alive until this process (and any it forks) ends."""
    if fcntl is not None:
        _held.append(_shared_lock(run))


def _shared_lock(folder: Path) -> int:
    """The lock of a new folder, named once it is held: who can take it thinks that its process is gone."""
    handle = _open_lock(folder, UNHELD)
    fcntl.flock(handle, fcntl.LOCK_SH)
    os.rename(folder / UNHELD, folder / LOCK)
    return handle


@contextlib.contextmanager
def _held_while(folder: Path) -> Iterator[None]:
    """Marked as alive inside."""
    handle = None if fcntl is None else _shared_lock(folder)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


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


def _bytes_in(run: Path, modified: float, end: float) -> int:
    """As measured before, or now; none where there is no time for that."""
    with contextlib.suppress(OSError, ValueError):
        return int((run / MEASURED).read_text())
    if time.perf_counter() > end:
        return 0
    total = pruning.bytes_below(run)
    if not _alive(run, modified):
        with contextlib.suppress(OSError):
            (run / MEASURED).write_text(str(total))
            os.utime(run, (modified, modified))
    return total
