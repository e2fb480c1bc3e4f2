"""Folders to ship: entries in, a folder out; and such a folder in, for the misses of this process.

    save(path, entries)     path/shipped.json  <function>-<digest>/program.json  machine.json  <entry>/...
    load(path)

It is read and never written. Where the processor has all instruction sets that the libraries were made for, they run as
they are; where only those differ, the kept C is compiled here, and the entry becomes one of the user's cache. Whatever
else differs makes other code, and the log says what it is.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

from ..records.kept_graph import NotKept
from ..runtime import cache_folder, files, toolchain
from . import folder
from .folder import Damaged, Kept
from .key import FORMAT, Key, of_machine

SHIPPED = "shipped.json"
IN_LIBRARIES = {"instructions", "level", "vector_bits", "sleeping"}
"""Facts of a processor that libraries hold, and no text that is wrong elsewhere: at most it is slower."""

log = logging.getLogger("torchglass.cache")
loaded: list[Path] = []


class Shipped(Kept):
    """An entry in such a folder."""

    is_users = False


class FromSource(Shipped):
    """One whose libraries this processor cannot run: they are compiled of the C beside them."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._made: dict[str, bytes] = {}

    def content(self, name: str) -> bytes:
        if not name.endswith(".so"):
            return super().content(name)
        if name not in self._made:
            self._made[name] = _compiled(self.path / name, self.text(f"{name.removesuffix('.so')}.c"))
        return self._made[name]


def _compiled(path: Path, text: str) -> bytes:
    try:
        with cache_folder.work_folder() as place:
            library = toolchain.compile_c(Path(place, f"{path.stem}.c"), text=text)
            assert library.file is not None
            return library.file.read_bytes()
    except (toolchain.ToolchainError, OSError, AssertionError) as error:
        raise NotKept(f"its libraries are for another processor, and cannot be compiled here: {error}") from None


# --- out --------------------------------------------------------------------------------------------------------------
def save(path: Path, entries: Iterable[Path]) -> None:
    """Copy entries, with the backwards that were added to them. OSError where that is impossible, or where one is gone
    or is not what was written.
    """
    cache_folder.make(path)
    try:
        for entry in entries:
            _save(entry, path / entry.parent.name)
    except Damaged as error:
        raise OSError(f"an entry cannot be saved: {error}") from None
    for place, _, _ in os.walk(path):
        os.chmod(place, 0o755)  # for those that it is shipped to
    files.write_atomically(path / SHIPPED, json.dumps({"format": FORMAT, "torchglass": _package()}) + "\n")


def _save(entry: Path, place: Path) -> None:
    _copy(Kept(entry), place, entry.name)
    for added in sorted((entry / "graph_0").glob("kept_*")):
        _copy(Kept(added), place / entry.name / "graph_0", added.name)
    for name in folder.KEYS:
        files.write_atomically(place / name, files.read(entry.parent / name) or b"{}")


def _copy(kept: Kept, place: Path, name: str) -> None:
    folder.write(place, {file: kept.content(file) for file in kept.names()}, name)


@functools.cache
def _package() -> str:
    """Our version and a digest of our texts: entries call what these define."""
    from .. import __version__

    home, said = Path(__file__).parents[1], hashlib.sha256()
    for file in sorted(path for path in home.rglob("*") if path.suffix in (".py", ".h")):
        said.update(f"{file.relative_to(home)}\n".encode() + file.read_bytes())
    return f"{__version__} {said.hexdigest()[:12]}"


# --- in ---------------------------------------------------------------------------------------------------------------
def load(path: Path) -> str:
    """Look for entries in this folder, too; "", or why none of them can be used. Raises ValueError for a folder that
    is none of these, or that others may write.
    """
    try:
        cache_folder.check(path)
        cache_folder.check_parents(path)
        about = json.loads(files.read(path / SHIPPED) or b"null")
    except (OSError, ValueError) as error:
        raise ValueError(f"path must be a folder that tg.save has left, and that only you can write: {error}") from None
    if not isinstance(about, dict):
        raise ValueError(f"path must be a folder that tg.save has left, with a {SHIPPED} in it, not {path}")
    if about != {"format": FORMAT, "torchglass": _package()}:
        return f"it was saved by torchglass {about.get('torchglass')}, and this is {_package()}"
    if path not in loaded:
        loaded.append(path)
    differ = [_of_machine(place, of_machine(), {"gpu"}) for place in sorted(path.glob("*-*"))]  # CUDA starts later
    return differ[0] if differ and all(differ) else ""


def candidates(function: FunctionType, program: Key, machine: Key) -> Iterator[tuple[Path, type[Shipped]]]:
    """The entries that may fit, and how each is read."""
    for base in loaded:
        for place in sorted(base.glob(f"{folder.prefix(function.__qualname__)}-*")):
            differ = _differences(_key(place, 0), program, {"torchglass"}) or _of_machine(place, machine)
            if differ:
                log.info("the entries in %s are not used: %s", place, differ)
                continue
            sets = _key(place, 1)["cpu"]["instructions"], machine["cpu"]["instructions"]
            yield from ((path, Shipped if {*sets[0]} <= {*sets[1]} else FromSource) for path in folder.entries(place))


def _of_machine(place: Path, machine: Key, but: Collection[str] = ()) -> str:
    """The facts in which the machine of a key differs from this one, but for what compiling its C anew mends."""
    theirs = _key(place, 1)
    parts = _differences(theirs, machine, {"cpu", *but}), _differences(theirs.get("cpu"), machine["cpu"], IN_LIBRARIES)
    return "; ".join(filter(None, parts))


def _key(place: Path, number: int) -> Key:
    """One of the tables of a key; {} for what is none."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(files.read(place / folder.KEYS[number]) or b"{}")
        if isinstance(found, dict):
            return found
    return {}


def _differences(theirs: Any, ours: Key, but: Collection[str]) -> str:
    theirs = theirs if isinstance(theirs, dict) else {}
    ours = json.loads(json.dumps(ours))  # as a file says it
    names = [name for name in sorted({*theirs, *ours} - {*but}) if theirs.get(name) != ours.get(name)]
    return "; ".join(f"{n} was {json.dumps(theirs.get(n))} and is {json.dumps(ours.get(n))}" for n in names)


def adopt(kept: Kept, place: Path, program: Key, machine: Key) -> None:
    """What was compiled of an entry's sources is kept as one of the user's."""
    if isinstance(kept, FromSource):
        try:
            folder.write(place, {name: kept.content(name) for name in kept.names()})
            folder.write_keys(place, program, machine)
        except (OSError, Damaged) as error:
            log.info("what was compiled of %s is not kept in %s: %s", kept.path, place, error)
