"""Files that are run: read only where no other user could have written them, written whole or not at all.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "a.py"
>>> write_atomically(path, b"x = 1"), read(path), read_text(path.with_name("b.py"))
(None, b'x = 1', None)
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from . import cache_folder


def read(path: Path, follow: bool = True) -> bytes | None:
    """What a file has; None if there is none. OSError if another user may have written it, and for a symbolic link that
    is not to be followed.
    """
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        handle = os.open(path, flags if follow else flags | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return None
    try:  # a folder would keep `handle` open: `fdopen` refuses it before it is the file's to close
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise cache_folder.FolderRefused(f"{path} is not a file")
        cache_folder.check_status(path, status)
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(handle)


def read_text(path: Path) -> str | None:
    """A file's text, to the byte."""
    content = read(path)
    return None if content is None else content.decode("utf-8", "surrogateescape")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write so that a reader (another process, the C compiler) sees the old content or the new, never a part, and what
    somebody has mapped into memory stays as it is.
    """
    content = content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape")
    cache_folder.make(path.parent)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644 & ~_UMASK)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def below(folder: Path) -> Iterator[Path]:
    """The files in a folder and its sub-folders. What vanishes meanwhile, or must not be read, is left out."""
    for root, _, names in os.walk(folder):
        yield from (Path(root, name) for name in names)


def _umask() -> int:
    """The process's umask, read once at import: reading it means setting it, which is not safe among threads."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


_UMASK = _umask()
