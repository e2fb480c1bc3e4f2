"""Shared libraries in this process: the bytes of one in, addresses of its functions out, unloaded with the last user.

A file says itself that it is whole: behind the library stand the key of what it was made of and a digest of both.
What is loaded are the bytes that were looked at, from a place that no other process can reach: a file that is mapped
and gets shorter kills the process that runs it, and so does one that ends before what its headers promise.

>>> sealed(b"...", "key")[:3], content_of(sealed(b"...", "key"), "key"), content_of(sealed(b"...", "key"), "other")
(b'...', b'...', None)
"""

from __future__ import annotations

import _ctypes
import ctypes
import hashlib
import itertools
import os
import struct
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import cache_folder

_MARK = b"\ntorchglass "
_DIGEST = hashlib.sha256().digest_size

# Of ELF files of 64 bits, least byte first, as the system's <elf.h> has them; of others the loader judges alone.
_ELF = b"\x7fELF\x02\x01"
_FILE_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")


def sealed(content: bytes, key: str) -> bytes:
    """A library as a file: what stands behind it is no part of the program to the loader."""
    whole = content + _MARK + key.encode()
    return whole + hashlib.sha256(whole).digest()


def content_of(file: bytes, key: str) -> bytes | None:
    """The library in a file; None unless it is whole and was made of what ``key`` stands for."""
    whole, found = file[:-_DIGEST], file[-_DIGEST:]
    end = _MARK + key.encode()
    if not whole.endswith(end) or hashlib.sha256(whole).digest() != found:
        return None
    return whole[: -len(end)]


def is_cut_off(content: bytes) -> bool:
    """Whether a library ends before its headers say: a compiler may leave half of one, on a full disk, and call it
    done. The loader maps what is not there, and the process ends.
    """
    if not content.startswith(_ELF):
        return False
    try:
        _, _, _, _, programs, sections, _, _, _, program_count, section_size, section_count, _ = (
            _FILE_HEADER.unpack_from(content)
        )
        ends = [sections + section_size * section_count]
        for i in range(program_count):
            _, _, offset, _, _, size, _, _ = _PROGRAM_HEADER.unpack_from(content, programs + i * _PROGRAM_HEADER.size)
            ends.append(offset + size)
    except struct.error:
        return True
    return max(ends) > len(content)


class Library:
    """A library that is loaded, until nobody has this object any more. ``file``: where it lies sealed, if anywhere."""

    file: Path | None = None

    def __init__(self, content: bytes, path: Path | None = None) -> None:
        """``path``: load that file as it is, which debuggers find again. OSError if it cannot be loaded."""
        if is_cut_off(content):
            raise OSError("file too short")  # what the loader says of one without a header
        if path is not None:
            self._handle = _ctypes.dlopen(str(path), os.RTLD_NOW)
        else:
            self._handle = _loaded(content)
        # not as the interpreter ends: threads may be in it then
        weakref.finalize(self, _ctypes.dlclose, self._handle).atexit = False

    def address(self, symbol: str) -> int:
        """Where a function or variable lies. OSError if there is none."""
        return _ctypes.dlsym(self._handle, symbol)

    def integers(self, symbol: str, count: int) -> ctypes.Array[ctypes.c_int64]:
        """An array of the library's, which keeps it loaded."""
        array = (ctypes.c_int64 * count).from_address(self.address(symbol))
        array.library = self  # type: ignore[attr-defined]
        return array


def _loaded(content: bytes) -> int:
    """The handle of a private copy: in memory, or where the system does not let that run, in a file that is deleted."""
    for place in (_in_memory, _in_temporary_file):
        try:
            with place(content) as path:
                return _ctypes.dlopen(path, os.RTLD_NOW)
        except (OSError, AttributeError) as error:
            problem = error
    raise problem


_count = itertools.count(1)


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    handle = os.memfd_create("torchglass", os.MFD_CLOEXEC)
    try:
        with open(handle, "wb", closefd=False) as file:
            file.write(content)
        # the loader takes two files of one name for one, and numbers of descriptors come again
        steps = "".join("/." if bit == "1" else "//" for bit in f"{next(_count):b}")
        yield f"/proc/self/fd{steps}/{handle}"
    finally:
        os.close(handle)


@contextmanager
def _in_temporary_file(content: bytes) -> Iterator[str]:
    with cache_folder.work_folder() as folder:
        path = os.path.join(folder, "kernels.so")
        with open(path, "wb") as file:
            file.write(content)
        yield path
