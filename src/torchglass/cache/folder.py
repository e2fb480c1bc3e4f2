"""Kept entries on disk: one folder for a key, in it one for each entry, written whole or not at all.

    <root>/<function>-<digest of its key>/program.json  machine.json
                                          <time>-<digest>/entry.json  table.json  guards.json  transformed.py
                                                          graph_0/graph.json  captured.py  forward.py  ...

A new entry is written beside its place and renamed, so that readers, who take no lock, see all of it or nothing. Every
file's digest stands in ``digests.json``: a file that is damaged, or edited, costs a compile, and the entry is set aside
as ``damaged-<entry>``. Digests are no signatures: whoever may
write there may run code, and so a folder that another user may write, or put in its place, is not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..runtime import cache_folder, files, pruning
from ..runtime.store import file_name
from .key import Key, digest

DIGESTS, ENTRY, TABLE, GUARDS = "digests.json", "entry.json", "table.json", "guards.json"
KEYS = ("program.json", "machine.json")
UNFINISHED, DAMAGED = ".unfinished-", "damaged-"
MAX_AGE_DAYS = 30.0  # since an entry was used
MAX_BYTES = 2 << 30
ABANDONED = 3600.0  # seconds after which nobody finishes an entry


class Damaged(Exception):
    """A kept file is not what was written. ``edited``: it reads as if a person had changed it."""

    def __init__(self, message: str, edited: bool = False) -> None:
        super().__init__(message)
        self.edited = edited


def place(base: Path, function: str, program: Key, machine: Key) -> Path:
    """The folder of a key."""
    return base / f"{prefix(function)}-{digest(program, machine)}"


def prefix(function: str) -> str:
    """How the folders of a function's keys begin."""
    return file_name(function)


def entries(folder: Path) -> list[Path]:
    """The entries of a key, the oldest first."""
    try:
        cache_folder.check(folder)
        return sorted(path for path in folder.iterdir() if path.name[0].isdigit() and not path.is_symlink())
    except OSError:
        return []


# --- reading ----------------------------------------------------------------------------------------------------------
class Kept:
    """The files of one entry, each looked at before it is used."""

    is_users = True  # and may be added to, and deleted

    def __init__(self, path: Path) -> None:
        """Raises Damaged."""
        self.path = path
        self._digests: dict[str, str] = _json(_content(path / DIGESTS), path / DIGESTS)

    def content(self, name: str) -> bytes:
        """A file's bytes. Raises Damaged for one that is not there, or is another one than was written."""
        content = _content(self.path / name)
        if hashlib.sha256(content).hexdigest() != self._digests.get(name):
            raise Damaged(f"{self.path / name} is not what was written", _reads_as_edited(name, content))
        return content

    def text(self, name: str) -> str:
        return self.content(name).decode("utf-8", "surrogateescape")

    def json(self, name: str) -> Any:
        return _json(self.content(name), self.path / name)

    def names(self) -> list[str]:
        """The files' names, relative to the entry."""
        return list(self._digests)


def _reads_as_edited(name: str, content: bytes) -> bool:
    """Whether it is source whose last line is whole: what is cut off or zeroed seldom is."""
    return name.endswith((".py", ".c")) and content.endswith(b"\n") and b"\0" not in content


def _content(path: Path) -> bytes:
    try:
        content = files.read(path, follow=False)
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error}") from None
    if content is None:
        raise Damaged(f"there is no {path}")
    return content


def _json(content: bytes, path: Path) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise Damaged(f"{path} is no JSON") from None


# --- writing ----------------------------------------------------------------------------------------------------------
def write(folder: Path, contents: Mapping[str, str | bytes], name: str | None = None) -> Path:
    """Leave files as an entry in ``folder``, as ``name`` there if one is given; its path, or that of the same
    entry that is there already. OSError where that is impossible.
    """
    made = {
        key: text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
        for key, text in contents.items()
    }
    digests = {key: hashlib.sha256(content).hexdigest() for key, content in made.items()}
    whole = hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()[:16]
    if name is None:
        same = next((path for path in entries(folder) if path.name.endswith(whole)), None)
        if same is not None:
            return same
        name = f"{time.time_ns():019d}-{whole}"
    cache_folder.make(folder, 0o700)
    unfinished = folder / f"{UNFINISHED}{os.getpid()}-{secrets.token_hex(4)}"
    try:
        for key, content in made.items():
            _write(unfinished / key, content)
        _write(unfinished / DIGESTS, json.dumps(digests, indent=1).encode())
        os.rename(unfinished, folder / name)
        return folder / name
    except OSError:
        shutil.rmtree(unfinished, ignore_errors=True)
        if (folder / name).exists():
            return folder / name
        raise


def _write(path: Path, content: bytes) -> None:
    cache_folder.make(path.parent, 0o700)
    with open(path, "xb") as file:
        file.write(content)


def used(path: Path) -> None:
    """Note that an entry is used: the one that was not for the longest time is deleted first."""
    with contextlib.suppress(OSError):
        os.utime(path)


def prune_now_and_then(base: Path) -> None:
    """``prune``, unless a process did within the hour."""
    with contextlib.suppress(OSError):
        if pruning.due(base):
            prune(base)


def prune(base: Path, max_age_days: float = MAX_AGE_DAYS, max_bytes: int = MAX_BYTES) -> list[Path]:
    """Delete entries that were not used for ``max_age_days``, then those not used for the longest until ``max_bytes``
    are left, and what was left unfinished. What was deleted. A process that is reading one compiles instead.
    """
    rows = []
    for place in [path for path in base.iterdir() if path.is_dir() and not path.is_symlink()]:
        for path in place.glob(f"{UNFINISHED}*"):
            if time.time() - pruning.modified(path) > ABANDONED:
                shutil.rmtree(path, ignore_errors=True)
        rows += [(pruning.modified(path), pruning.bytes_below(path), path) for path in _with_damaged(place)]
    deleted = pruning.delete_surplus(rows, max_age_days, max_bytes, delete)
    for place in {path.parent for path in deleted}:
        if not _with_damaged(place):
            shutil.rmtree(place, ignore_errors=True)
    return deleted


def _with_damaged(place: Path) -> list[Path]:
    return [*entries(place), *place.glob(f"{DAMAGED}*")]


def delete(path: Path) -> bool:
    """All of it at once, for those who look for entries. Whether it is gone."""
    aside = path.with_name(f"{UNFINISHED}{os.getpid()}-{secrets.token_hex(4)}")
    try:
        os.rename(path, aside)
    except OSError:
        return not path.exists()
    shutil.rmtree(aside, ignore_errors=True)
    return True


def set_aside(path: Path) -> Path:
    """Take a damaged entry out of the way of those who look for entries: perhaps a person has edited it. Where it is
    now.
    """
    aside = path.with_name(f"{DAMAGED}{path.name}")
    try:
        os.rename(path, aside)
    except OSError:  # of a folder that is read-only, or another process was first
        return path
    used(aside)
    return aside


def write_keys(folder: Path, program: Key, machine: Key) -> None:
    """Both keys, for people and ``why-miss``."""
    for name, key in zip(KEYS, (program, machine)):
        text = json.dumps(key, indent=1, sort_keys=True) + "\n"
        with contextlib.suppress(OSError):
            if files.read_text(folder / name) != text:
                files.write_atomically(folder / name, text)
