"""The artifact store: generated text in, files out; and those files are what runs.

    >>> import tempfile
    >>> folder = ArtifactStore(Path(tempfile.mkdtemp())).folder("toy example")
    >>> artifact = folder.child("entry_0").write("transformed.py", "def f(x): return x + 1")
    >>> artifact.path.relative_to(folder.store.root).as_posix(), load_python(artifact).f(1)
    ('toy_example/entry_0/transformed.py', 2)

Each function's folder keeps a manifest with the hash of every text we generated, so that on the next run a
file that a person changed is told from one that we wrote: the change is *kept and runs* as long as we would
generate the same text again, and set aside as ``<file>.stale`` (with a notice) when we would not. Nothing
is pickled: texts, and JSON.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import logging
import os
import re
import sys
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ..locks import fork_safe_lock
from . import cache_folder

log = logging.getLogger("torchglass.store")

MANIFEST = ".manifest.json"
ENVIRONMENT = "TORCHGLASS_DIR"


RUNS = ("kernels", "forward", "captured", "lines")
"""What calls may run of what is written: see ``use``."""


@dataclass(frozen=True)
class Artifact:
    """A file of the store and the text in it, which is a person's if ``edited``."""

    path: Path
    text: str
    edited: bool = False


@dataclass(frozen=True)
class Folder:
    """A folder of the store. ``top`` is the folder of the function it belongs to, which has the manifest."""

    store: ArtifactStore
    path: Path
    top: Path

    @property
    def name(self) -> str:
        return self.path.name

    def child(self, name: str) -> Folder:
        """The folder ``name`` in this one, e.g. ``entry_0``, ``graph_0``, ``resume_at_8``."""
        return Folder(self.store, self.path / file_name(name), self.top)

    def write(self, filename: str, text: str) -> Artifact:
        """Leave ``text`` in ``filename`` and return what is to run: ``text``, or a person's edit of the
        same text.

        A file that holds ``text`` already is not touched. OSError if the folder cannot be written.
        """
        path = self.path / filename
        key = path.relative_to(self.top).as_posix()
        with self.store.lock, _locked_manifest(self.top) as manifest:
            generated = manifest.get(key)
            manifest[key] = digest(text)
            found = _read(path)
            if found == text:
                return Artifact(path, text)
            if found is None or digest(found) == generated:
                write_atomically(path, text)
                return Artifact(path, text)
            if digest(text) == generated:
                self.store.notice(path, "using the edited file")
                return Artifact(path, found, edited=True)
            stale = path.with_name(path.name + ".stale")
            write_atomically(stale, found)
            write_atomically(path, text)
        self.store.notice(path, f"the generated code has changed; your edit was set aside as {stale.name}")
        return Artifact(path, text)


class ArtifactStore:
    """A folder of artifacts: one sub-folder per function, the same names from run to run.

    ``asked``: a person named the folder, and may look into it at any moment.
    """

    def __init__(self, root: Path | str, asked: bool = True) -> None:
        self.root = Path(root).absolute()
        self.asked = asked
        self.runs = "kernels"  # which files calls run that are compiled now: see ``use``
        self.lock = fork_safe_lock()
        self._taken: dict[str, list[tuple[object, str]]] = {}
        self._given: set[str] = set()
        self._noticed: set[tuple[Path, str]] = set()

    def folder(self, function_name: str, owner: object | None = None) -> Folder:
        """The folder of a compiled function: ``<name>``, then ``<name>_2``, ... for other owners of the
        same name.

        The number is the order of first use, so that a program that does the same finds its folders (and
        edits) again. ``owner`` is whatever stands for one compiled function, compared by identity and not
        kept alive; None means "the function of that name".
        """
        name = file_name(function_name)
        with self.lock:
            users = self._taken.setdefault(name, [])
            found = next((place for user, place in users if _same(user, owner)), None)
            if found is None:
                numbers = itertools.count(len(users) + 1)
                candidates = (name if n == 1 else f"{name}_{n}" for n in numbers)
                found = next(place for place in candidates if place not in self._given)
                self._given.add(found)
                users.append((_reference(owner), found))
        path = self.root / found
        return Folder(self, path, path)

    def forget_edits(self) -> list[Path]:
        """Delete every file a person changed and every ``.stale`` one; they are generated anew. What was
        deleted.
        """
        gone: list[Path] = []
        with self.lock:
            for manifest_path in sorted(self.root.glob(f"*/{MANIFEST}")):
                top = manifest_path.parent
                with _locked_manifest(top) as manifest:
                    for key, generated in manifest.items():
                        found = _read(top / key)
                        if found is not None and digest(found) != generated:
                            gone.append(top / key)
                gone += sorted(top.rglob("*.stale"))
            for path in gone:
                path.unlink(missing_ok=True)
        return gone

    def notice(self, path: Path, message: str) -> None:
        """Tell the person, once for each file: in the log and as a line on stderr."""
        if (path, message) in self._noticed:
            return
        self._noticed.add((path, message))
        log.info("%s: %s", path, message)
        print(f"torchglass: {path}: {message}", file=sys.stderr)


def _reference(owner: object) -> object:
    """A weak reference where there can be one: the store outlives what it stores for."""
    try:
        return weakref.ref(owner)
    except TypeError:
        return owner


def _same(reference: object, owner: object) -> bool:
    """Whether the reference is to ``owner``. A number whose owner has died is not given away again."""
    target = reference() if isinstance(reference, weakref.ref) else reference
    return target is owner and (owner is not None or not isinstance(reference, weakref.ref))


def load_python(artifact: Artifact | Path, names: Mapping[str, Any] | None = None) -> ModuleType:
    """Run the file and return it as a module, with ``names`` in its globals before it starts.

    Code objects carry the real file name, so tracebacks show its lines and breakpoints in it are hit. The
    module is not entered in ``sys.modules``. An error in the file (a broken edit) is raised as it is: it
    names file and line.
    """
    path = artifact.path if isinstance(artifact, Artifact) else artifact
    text = artifact.text if isinstance(artifact, Artifact) else path.read_text(encoding="utf-8")
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    vars(module).update(names or {})
    exec(compile(text, str(path), "exec", dont_inherit=True), vars(module))
    return module


_asked_for: list[ArtifactStore] = []
_by_root: dict[tuple[int, str], ArtifactStore] = {}
_guard = fork_safe_lock()


def current_store() -> ArtifactStore:
    """Where artifacts go now: the innermost :func:`use`, else ``$TORCHGLASS_DIR``, else this run's cache
    folder.
    """
    with _guard:
        if _asked_for:
            return _asked_for[-1]
        asked = os.environ.get(ENVIRONMENT)
        # A forked child gets a run folder of its own; a folder the user named is shared on purpose.
        key = (0, os.path.abspath(asked)) if asked else (os.getpid(), "")
        if key not in _by_root:
            root = cache_folder.asked(Path(asked)) if asked else cache_folder.of_this_run()
            _by_root[key] = ArtifactStore(root, asked=bool(asked))
        return _by_root[key]


@contextlib.contextmanager
def use(root: Path | str, runs: str = "kernels") -> Iterator[ArtifactStore]:
    """Send the artifacts of everything compiled inside to ``root``.

    ``runs``, one of ``RUNS``, names the files that its calls run: "kernels" (the wrapper and what it calls), "forward"
    (forward.py and backward.py), "captured" (captured.py), or "lines": after a graph break the user's own lines. All of
    them are written in any case.

    For the whole process, not for one thread: backward graphs compile on autograd's threads.
    """
    key = (0, os.path.abspath(root))
    with _guard:
        if key not in _by_root:
            _by_root[key] = ArtifactStore(cache_folder.asked(Path(root)))
        store = _by_root[key]
        _asked_for.append(store)
        before, store.runs = store.runs, runs
    try:
        yield store
    finally:
        with _guard:
            # The last one that is ours: other threads may have entered theirs meanwhile.
            store.runs = before
            position = len(_asked_for) - 1 - _asked_for[::-1].index(store)
            del _asked_for[position]


def file_name(name: str) -> str:
    """A name without blanks or brackets, safe in any shell: ``<lambda>`` is ``lambda``, ``A.forward`` stays.

    >>> file_name("<lambda>"), file_name("Net.forward"), file_name("../a b")
    ('lambda', 'Net.forward', 'a_b')
    """
    safe = re.sub(r"[^A-Za-z0-9_.\-]+", "_", name).strip("_.-") or "unnamed"
    # A long name keeps its start; the hash keeps two long ones apart.
    return safe if len(safe) <= 100 else f"{safe[:90]}_{digest(safe)[:8]}"


def digest(text: str) -> str:
    """The sha256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def write_atomically(path: Path, text: str) -> None:
    """Write so that a reader (another process, the C compiler) sees the old text or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)
        os.chmod(temporary, 0o666 & ~_UMASK)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _umask() -> int:
    """The process's umask, read once at import: reading it means setting it, which is not safe among
    threads.
    """
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


_UMASK = _umask()


def _read(path: Path) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def _locked_manifest(top: Path) -> Iterator[dict[str, str]]:
    """The manifest of a function's folder (file to hash of its generated text), saved at the end if it
    changed.

    Processes that share a folder take turns. A manifest that is no JSON counts as empty: edits are then set
    aside as stale, never lost.
    """
    path = top / MANIFEST
    with cache_folder.locked(top):
        text = _read(path)
        try:
            manifest = dict(json.loads(text)) if text else {}
        except ValueError:
            manifest = {}
        before = dict(manifest)
        try:
            yield manifest
        finally:
            if manifest != before:
                write_atomically(path, json.dumps(manifest, indent=1, sort_keys=True) + "\n")
