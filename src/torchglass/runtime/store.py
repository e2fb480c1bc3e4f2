"""The artifact store: generated text in, files out; what runs is the text, and the files show it.

    >>> import tempfile
    >>> folder = ArtifactStore(Path(tempfile.mkdtemp())).folder("toy example")
    >>> artifact = folder.child("entry_0").write("transformed.py", "def f(x): return x + 1")
    >>> artifact.path.relative_to(folder.store.root).as_posix(), load_python(artifact).f(1)
    ('toy_example/entry_0/transformed.py', 2)

Each function's folder keeps a manifest with the hash of every text we generated, so that on the next run a
file that a person changed is told from one that we wrote: the change is *kept and runs* as long as we would
generate the same text again, and set aside as ``<file>.stale`` (with a notice) when we would not. Nothing
is pickled: texts, and JSON.

``write`` reads a file once, and what it returns is what is compiled and run, whatever becomes of the file. Processes
that write the same texts share a folder. One whose text differs from what another process that lives has there goes
on in a folder of its own, ``f@2`` beside ``f``, so that the files of each are what it runs. A folder that cannot be
written (a full disk) is said once, and texts run without files.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import linecache
import logging
import os
import re
import sys
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Literal

from ..process.locks import fork_safe_lock
from . import cache_folder, edit_errors, files, neighbours

log = logging.getLogger("torchglass.store")

MANIFEST = ".manifest.json"
OF_TORCH_COMPILE = "torch_compile"
"""The folder of what torch.compile compiles under ``prepare_debug``."""
ENVIRONMENT = "TORCHGLASS_DIR"

Role = Literal["runs", "unused", "read", "report"]
"""What a file is for: calls run what it says; they run another instead (``use``); people read it; it reports on a whole
function, of all processes.
"""

RUNS = ("kernels", "forward", "captured", "lines")
"""What calls may run of what is written: see ``use``."""


_OURS = " (as generated)"
"""Behind the name of a file whose edit is not used, in tracebacks through what runs."""


@dataclass(frozen=True)
class Artifact:
    """A file of the store and the text in it, which is a person's if ``edited``: ``generated`` is then ours.

    ``kept``: the file is there, in a folder that is safe.
    """

    path: Path
    text: str
    edited: bool = False
    generated: str = ""
    kept: bool = True
    store: ArtifactStore | None = field(default=None, compare=False, repr=False)

    @property
    def filename(self) -> str:
        return self.path.name.removesuffix(_OURS)

    @property
    def content(self) -> tuple[Path, str, bool]:
        """Its name, its text, and whether what is made of it may lie beside it."""
        return self.path, self.text, self.kept

    def as_generated(self, error: BaseException) -> Artifact:
        """What we generated, to run in place of an edit that fails with ``error``, which is said once."""
        if self.store is not None:
            told = edit_errors.told(error, self.path)
            self.store.notice(self.path, f"the edited file cannot be used, what was generated runs: {told}")
        path = self.path.with_name(self.path.name + _OURS)
        _show(path, self.generated)
        return Artifact(path, self.generated, kept=False)


@dataclass(frozen=True)
class Folder:
    """A folder of the store: ``parts`` are the function's folder and what lies below it."""

    store: ArtifactStore
    parts: tuple[str, ...]

    @property
    def path(self) -> Path:
        """Where it is now: a process may have to go on elsewhere, and a forked one goes on in its own folder."""
        return self.top.joinpath(*self.parts[1:])

    @property
    def top(self) -> Path:
        """The folder of the function it belongs to, which has the manifest."""
        return self.store.place(self.parts[0])

    @property
    def name(self) -> str:
        return self.parts[-1]

    @property
    def function_name(self) -> str:
        return self.parts[0]

    def child(self, name: str) -> Folder:
        """The folder ``name`` in this one, e.g. ``entry_0``, ``graph_0``, ``resume_at_8``."""
        return Folder(self.store, (*self.parts, file_name(name)))

    def write(self, filename: str, text: str, role: Role = "runs") -> Artifact:
        """Leave ``text`` in ``filename`` and return what is to run: ``text``, or a person's edit of the
        same text.

        A file that holds ``text`` already is not touched. Where nothing can be written the text runs all the same.
        """
        try:
            with self.store.lock:
                return self._written(filename, text, role)
        except OSError as error:
            self.store.say_unwritable(self.parts[0], error)
            path = self.path / filename
            if role in ("runs", "unused"):
                _show(path, text)
            return Artifact(path, text, kept=False)

    def _written(self, filename: str, text: str, role: Role) -> Artifact:
        artifact = None
        while artifact is None:
            path, top = self.path / filename, self.top
            self.store.check(path.parent, top)
            with _locked_manifest(top) as manifest:
                shared = self.store.neighbours
                if shared is not None:
                    shared.join(top)
                disputed = shared is not None and role != "report" and shared.others(top)
                artifact = self._left(path, path.relative_to(top).as_posix(), text, role, manifest, disputed)
            if artifact is None:
                self.store.go_on_elsewhere(self.parts[0])
        if role != "report":
            self.store.wrote(self.parts[0], path.relative_to(top))
        return artifact

    def _left(
        self, path: Path, key: str, text: str, role: Role, manifest: _Manifest, disputed: bool
    ) -> Artifact | None:
        """The file, as it is to be, and its row in the manifest; None if another process runs another text of it."""
        found, ours, notice = files.read_text(path), digest(text), self.store.notice
        generated, *replaced = manifest.get(key, "").split()[:2] or [""]
        if found is None or found == text:
            if found is None:
                _write(path, text, key, manifest)
            manifest[key] = ours
            return Artifact(path, text)
        edited = digest(found) not in (generated, *replaced)
        if edited and generated == ours and not _is_damaged(found, text):
            if role == "runs":
                notice(path, "using the edited file")
                return Artifact(path, found, edited=True, generated=text, store=self.store)
            why = f"runs={self.store.runs!r} was asked for" if role == "unused" else "this file is for reading"
            notice(path, f"your edit changes nothing: {why}")
            return Artifact(path, text)
        if disputed and generated != ours:
            return None
        aside = _set_aside(path, found) if edited else None
        _write(path, text, key, manifest, found)
        if aside is not None and generated == ours:
            notice(path, f"the file was damaged and is made anew; what was left of it is {aside.name}")
        elif aside is not None:
            notice(path, f"the generated code has changed; your edit was set aside as {aside.name}")
        return Artifact(path, text)


def _write(path: Path, text: str, key: str, manifest: _Manifest, replaced: str | None = None) -> None:
    """The file and its row in the manifest, that first."""
    ours = digest(text)
    manifest[key] = ours if replaced is None else f"{ours} {digest(replaced)}"
    manifest.save()
    files.write_atomically(path, text)
    manifest[key] = ours


def _is_damaged(found: str, text: str) -> bool:
    """Whether no editor leaves this of ``text``: bytes that are no text, or its beginning without its end."""
    return text.startswith(found) or any(_NO_TEXT.match(c) and c not in text for c in set(found))


_NO_TEXT = re.compile("[\\x00-\\x08\\x0e-\\x1f\\x7f\\udc80-\\udcff]")


def _set_aside(path: Path, found: str) -> Path:
    """Keep what a person wrote beside the file, and what was kept there before."""
    for number in itertools.count(1):
        aside = path.with_name(f"{path.name}.stale{'' if number == 1 else f'.{number}'}")
        before = files.read_text(aside)
        if before is None:
            files.write_atomically(aside, found)
        if before is None or before == found:
            return aside
    raise AssertionError


class ArtifactStore:
    """A folder of artifacts: one sub-folder per function, the same names from run to run.

    ``asked``: a person named the folder, other processes may use it, and people look into it at any moment. Without
    ``root`` it is the cache folder of this run, and a forked child's is one of its own.
    """

    def __init__(self, root: Path | str | None, asked: bool = True) -> None:
        self._root = None if root is None else Path(root).absolute()
        self.asked = asked
        self.runs = "kernels"  # which files calls run that are compiled now: see ``use``
        self.lock = fork_safe_lock()
        self.neighbours = neighbours.at(self._root) if self._root is not None else None
        self._taken: dict[str, list[tuple[object, str, object]]] = {}
        self._given: set[str] = set()
        self._places: dict[str, str] = {}  # functions whose files go elsewhere in this process
        self._files: dict[str, dict[Path, None]] = {}  # what this process runs and shows, by function
        self._checked: set[Path] = set()
        self._noticed: set[tuple[Path, str]] = set()
        self._unwritable = False
        self._given_up: set[str] = set()  # functions whose folder another process keeps locked
        _stores.add(self)

    @property
    def root(self) -> Path:
        with self.lock:
            if self._root is None:
                self._root = cache_folder.of_this_run()
            return self._root

    def after_fork(self) -> None:
        """In the child: a folder that nobody named is the parent's."""
        if self.neighbours is None:
            self._root = None
            self._checked.clear()

    def folder(self, function_name: str, owner: object | None = None, code: CodeType | None = None) -> Folder:
        """The folder of a compiled function: ``<name>``, then ``<name>_2``, ... for other owners of the
        same name.

        The number is the order of first use, so that a program that does the same finds its folders (and
        edits) again. ``owner`` is whatever stands for one compiled function, compared by identity and not
        kept alive; None means "the function of that name". The folder of an owner that is gone goes to another one of
        the same ``code``: programs that compile a lambda in a loop stay at one.
        """
        name = file_name(function_name)
        with self.lock:
            users = self._taken.setdefault(name, [])
            found = next((place for user, place, _ in users if _same(user, owner)), None)
            if found is None and code is not None:
                row = next((row for row in users if _is_gone(row[0]) and _same(row[2], code)), None)
                if row is not None:
                    users.remove(row)
                    found = row[1]
                    users.append((_reference(owner), found, row[2]))
            if found is None:
                numbers = itertools.count(len(users) + 1)
                candidates = (name if n == 1 else f"{name}_{n}" for n in numbers)
                found = next(place for place in candidates if place not in self._given)
                self._given.add(found)
                users.append((_reference(owner), found, _reference(code)))
        return Folder(self, (found,))

    def place(self, name: str) -> Path:
        """Where this process leaves the files of a function."""
        return self.root / self._places.get(name, name)

    def wrote(self, name: str, path: Path) -> None:
        """This process shows what it runs in the file ``path`` of a function's folder."""
        if self.neighbours is not None:
            self._files.setdefault(name, {})[path] = None

    def go_on_elsewhere(self, name: str) -> None:
        """Move to a folder that no other process uses, with what this one has left so far."""
        before = self.place(name)
        for number in itertools.count(2):
            top = self.root / f"{name}@{number}"
            self.check(top, top)
            with _locked_manifest(top) as manifest:
                assert self.neighbours is not None
                if self.neighbours.others(top):
                    continue
                self.neighbours.join(top)
                rows = _Manifest(before)
                for path in self._files.get(name, ()):
                    _copied(before / path, top / path, path.as_posix(), rows, manifest)
            self._places[name] = top.name
            self.notice(before, f"another process runs other files there; those of this one are in {top.name}")
            return

    def check(self, folder: Path, top: Path) -> None:
        """Make a folder, and FolderRefused if another user may write in it or in those from ``top`` to it."""
        if top.name in self._given_up:
            raise TimeoutError(f"{top} is locked")
        if folder in self._checked and folder.is_dir():
            return
        cache_folder.make(folder)
        for one in (folder, *folder.parents):
            cache_folder.check(one)
            if one.is_symlink():
                cache_folder.check_parents(one)
            if one == top:
                break
        self._checked.add(folder)

    def say_unwritable(self, name: str, error: OSError) -> None:
        """A folder that cannot be used is said once, and compiling goes on."""
        if isinstance(error, TimeoutError):
            self._given_up.add(self.place(name).name)
        if not self._unwritable:
            self._unwritable = True
            log.warning("files in %s cannot be written; what is compiled runs without them: %s", self.root, error)

    def notice(self, path: Path, message: str) -> None:
        """Tell the person, once for each file: in the log and as a line on stderr."""
        if (path, message) in self._noticed:
            return
        self._noticed.add((path, message))
        log.info("%s: %s", path, message)
        with contextlib.suppress(OSError, ValueError, AttributeError):  # a program without a stderr
            print(f"torchglass: {path}: {message}", file=sys.stderr)

    def forget_edits(self) -> list[Path]:
        """Delete every file a person changed, every ``.stale`` one and what was compiled of them; they are generated
        anew. What was deleted.
        """
        gone: list[Path] = []
        with self.lock:
            for manifest_path in sorted(self.root.glob(f"*/{MANIFEST}")):
                top = manifest_path.parent
                with _locked_manifest(top) as manifest:
                    for key, generated in manifest.items():
                        found = files.read_text(top / key)
                        if found is not None and digest(found) not in generated.split():
                            gone.append(top / key)
                gone += sorted({*top.rglob("*.stale"), *top.rglob("*.stale.*")})
                gone += _libraries_of_edits(top)
            for path in gone:
                path.unlink(missing_ok=True)
        return gone


def _libraries_of_edits(top: Path) -> list[Path]:
    """Libraries of files that have several, one for each of their texts. None says which is of the generated one, and
    whoever misses one compiles it again.
    """
    of_source: dict[Path, list[Path]] = {}
    for path in sorted(top.rglob("*.so")):
        of_source.setdefault(path.with_name(path.name.partition(".")[0]), []).append(path)
    return [path for several in of_source.values() if len(several) > 1 for path in several]


def may_be_artifacts(root: Path) -> bool:
    """Whether artifacts may lie in a folder: it has some, is empty, or is not there yet."""
    if not root.exists():
        return True
    ours = (neighbours.PROCESSES, OF_TORCH_COMPILE)
    found = list(root.iterdir()) if root.is_dir() else [root]
    return not found or any(path.name in ours or (path / MANIFEST).is_file() for path in found)


def _copied(source: Path, path: Path, key: str, rows: Mapping[str, str], manifest: dict[str, str]) -> None:
    """A file that this process runs, in its new folder as in the old one."""
    text, there = files.read_text(source), files.read_text(path)
    if text is None or text == there:
        return
    if there is not None and digest(there) != manifest.get(key):
        _set_aside(path, there)
    files.write_atomically(path, text)
    manifest[key] = rows.get(key, digest(text))


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


def _is_gone(reference: object) -> bool:
    return isinstance(reference, weakref.ref) and reference() is None


def load_python(
    artifact: Artifact | Path, names: Mapping[str, Any] | None = None, after: Mapping[str, Any] | None = None
) -> ModuleType:
    """Run the text and return it as a module, with ``names`` in its globals before it starts, and ``after`` then.

    Code objects carry the real file name, so tracebacks show its lines and breakpoints in it are hit. The
    module is not entered in ``sys.modules``. An error in the file is raised as it is: it names file and line; in place
    of a person's edit that cannot be loaded, or names what there is not, what was generated is run.
    """
    if isinstance(artifact, Path):
        return _module(artifact, artifact.read_text(encoding="utf-8"), names, after)
    if artifact.edited:
        try:
            module = _module(artifact.path, artifact.text, names, after)
            edit_errors.check_names(module, artifact.path)
            return module
        except Exception as error:
            artifact = artifact.as_generated(error)
    return _module(artifact.path, artifact.text, names, after)


def _module(
    path: Path, text: str, names: Mapping[str, Any] | None = None, after: Mapping[str, Any] | None = None
) -> ModuleType:
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    vars(module).update(names or {})
    exec(compile(text, str(path), "exec", dont_inherit=True), vars(module))
    vars(module).update(after or {})
    return module


def _show(path: Path, text: str) -> None:
    """Let tracebacks show the lines of a text that is in no file."""
    linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))


_asked_for: list[ArtifactStore] = []
_by_root: dict[str, ArtifactStore] = {}
_stores: weakref.WeakSet[ArtifactStore] = weakref.WeakSet()
_guard = fork_safe_lock()


def _after_fork() -> None:
    for store in list(_stores):
        store.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def current_store() -> ArtifactStore:
    """Where artifacts go now: the innermost :func:`use`, else ``$TORCHGLASS_DIR``, else this run's cache
    folder.
    """
    with _guard:
        if _asked_for:
            return _asked_for[-1]
        asked = os.environ.get(ENVIRONMENT)
        return _store_at(os.path.abspath(asked) if asked else "")


def _store_at(root: str) -> ArtifactStore:
    if root not in _by_root:
        _by_root[root] = ArtifactStore(cache_folder.asked(Path(root)) if root else None, asked=bool(root))
    return _by_root[root]


@contextlib.contextmanager
def use(root: Path | str, runs: str = "kernels") -> Iterator[ArtifactStore]:
    """Send the artifacts of everything compiled inside to ``root``.

    ``runs``, one of ``RUNS``, names the files that its calls run: "kernels" (the wrapper and what it calls), "forward"
    (forward.py and backward.py), "captured" (captured.py), or "lines": after a graph break the user's own lines. All of
    them are written in any case.

    For the whole process, not for one thread: backward graphs compile on autograd's threads.
    """
    with _guard:
        store = _store_at(os.path.abspath(root))
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


class _Manifest(dict[str, str]):
    """File to hash of its generated text. A manifest that is none counts as empty: edits are then set aside as stale,
    never lost.
    """

    def __init__(self, top: Path) -> None:
        text = files.read_text(top / MANIFEST)
        try:
            rows = json.loads(text) if text else {}
        except (ValueError, RecursionError):
            rows = {}
        rows = rows if isinstance(rows, dict) else {}
        super().__init__((key, value) for key, value in rows.items() if isinstance(value, str))
        self._path, self._saved = top / MANIFEST, dict(self)

    def save(self) -> None:
        """Write it if it has changed."""
        if self != self._saved:
            files.write_atomically(self._path, json.dumps(self, indent=1, sort_keys=True) + "\n")
            self._saved = dict(self)


@contextlib.contextmanager
def _locked_manifest(top: Path) -> Iterator[_Manifest]:
    """The manifest of a function's folder, saved at the end. Processes that share a folder take turns."""
    with cache_folder.locked(top):
        manifest = _Manifest(top)
        try:
            yield manifest
        finally:
            manifest.save()
