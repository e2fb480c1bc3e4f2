"""Who else uses a folder now: a function's folder in, whether another process that lives writes and runs files there.

    here = at(root)
    here.join(root / "f")        # this process runs files of f from now on
    here.others(root / "f")      # does another one?

A process shows that it lives by a lock on ``<root>/.processes/<pid>-<random>``, which ends with it, and each function's
folder lists in ``.processes`` those that use it. Call both under the folder's lock.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from . import cache_folder, files
from .cache_folder import fcntl

PROCESSES = ".processes"


@functools.cache
def at(root: Path) -> Neighbours:
    """The processes at a root; one object in a process, whose name is one."""
    return Neighbours(root)


class Neighbours:
    """The processes at one root, as this one sees them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._process = 0  # whose name it is: a forked child takes one of its own
        self._name = ""
        self._joined: set[Path] = set()

    def join(self, folder: Path) -> None:
        """Enter this process among those that use ``folder``."""
        if fcntl is None or (self._process == os.getpid() and folder in self._joined):
            return
        name = self._own_name()
        kept = [other for other in _listed(folder) if other == name or self._lives(other)]
        if name not in kept:
            files.write_atomically(folder / PROCESSES, "".join(f"{one}\n" for one in (*kept, name)))
        self._joined.add(folder)

    def others(self, folder: Path) -> bool:
        """Whether another process that lives uses ``folder``."""
        own = self._name if self._process == os.getpid() else ""
        return fcntl is not None and any(name != own and self._lives(name) for name in _listed(folder))

    def _own_name(self) -> str:
        if self._process != os.getpid():
            self._joined.clear()
            self._name, self._process = self._entered(), os.getpid()
        return self._name

    def _entered(self) -> str:
        """The name of a new file, locked until this process (and any it forks) ends."""
        folder = self.root / PROCESSES
        cache_folder.make(folder)
        for other in list(folder.iterdir()):
            if not self._lives(other.name):
                other.unlink(missing_ok=True)
        while True:
            path = folder / f"{os.getpid()}-{secrets.token_hex(8)}"
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(handle, fcntl.LOCK_EX)
            if path.exists():  # nobody found it unlocked, as that of a dead process
                atexit.register(_leave, path, os.getpid())
                return path.name
            os.close(handle)

    def _lives(self, name: str) -> bool:
        try:
            handle = os.open(self.root / PROCESSES / name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)  # askers are not in each other's way
            fcntl.flock(handle, fcntl.LOCK_UN)
        except OSError:
            return True
        finally:
            os.close(handle)
        return False


def _listed(folder: Path) -> Iterator[str]:
    """The names in a folder's list; of a damaged one those that can be names. What is no file lists nobody."""
    with contextlib.suppress(OSError):
        text = files.read_text(folder / PROCESSES) or ""
        yield from (name for name in text.split("\n") if name and name.replace("-", "").isalnum())


def _leave(path: Path, process: int) -> None:
    if os.getpid() == process:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
