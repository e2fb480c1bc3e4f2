"""Finds a kept entry for a missed call: a function and the values of its parameters in, an entry and its table out.

    found = Restored(function, options).entry_for(arguments, declared, callees, continuation)

Candidates are those of the same key, the oldest first. Each is looked at once per process until its guards hold for a
call; what is damaged, or relies on something that is another here, is left alone, and the log says why.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import itertools
import logging
import marshal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any, overload

from .. import _native
from ..options import CompileOptions
from ..process import fallbacks
from ..records.breaks import GraphBreak, Resume
from ..records.compilation import EntryRecord, GraphRecord, Keeping
from ..records.declared_sizes import DeclaredSizes
from ..records.guards import Guard
from ..records.kept_graph import NotKept
from ..records.origin import Origin
from ..records.packed import Later
from ..records.sources import Source
from ..runtime.call_original import call_original
from ..runtime.entry_load import load_entry
from ..runtime.store import Artifact, current_store
from . import folder, key, shipped, told
from .answers import compared
from .folder import Damaged, Kept
from .graph import AskedForFunction, CompileKept, graph_call
from .kept_sizes import Specialized
from .modules import module_digest
from .objects import found
from .roots import is_wanted, root
from .table import table_for
from .told_guards import guards_of
from .values import decoded

ITSELF = {"itself": None}
HOW_TO_EDIT = "Edit what is compiled in a folder that TORCHGLASS_DIR names"
log = logging.getLogger("torchglass.cache")


class KeptGuards(Sequence[Guard]):
    """The guards of a restored entry, read when somebody asks why it does not fit."""

    def __init__(self, text: str) -> None:
        self._text = text  # whatever becomes of the file

    @functools.cached_property
    def _guards(self) -> list[Guard]:
        with contextlib.suppress(ValueError, TypeError, AttributeError, LookupError):
            return guards_of(self._text)
        return []

    @overload
    def __getitem__(self, index: int) -> Guard: ...
    @overload
    def __getitem__(self, index: slice) -> list[Guard]: ...
    def __getitem__(self, index: Any) -> Any:
        return self._guards[index]

    def __len__(self) -> int:
        return len(self._guards)

    def __iter__(self) -> Iterator[Guard]:
        return iter(self._guards)


@dataclass(frozen=True)
class Found:
    """An entry from the folder: its table, which holds for the call, the function to run, and what it tells."""

    table: _native.GuardTable
    entry: Callable[..., Any]
    fetched: tuple[Any, ...]
    guards: KeptGuards
    graphs: tuple[GraphRecord, ...]
    breaks: tuple[GraphBreak, ...]
    text: str
    fixed: tuple[tuple[Source, str, Origin], ...]
    kept: Kept


@dataclass
class Candidates:
    """The kept entries that a function has not taken yet."""

    function: FunctionType
    options: CompileOptions
    compile_kept: CompileKept
    taken: set[Path] = field(default_factory=set)

    def entry_for(
        self, arguments: tuple[Any, ...], declared: DeclaredSizes, names: dict[str, Any],
        continuation: Callable[[Resume], Any],
    ) -> Found | None:  # fmt: skip
        """The first that fits. ``names`` are what entries of this process have in their globals beside what is kept,
        ``continuation`` makes the function that goes on after a break. Never raises.
        """
        if not is_wanted(self.options, current_store()):
            return None
        base = root()
        if base is None and not shipped.loaded:
            return None
        try:
            program, machine = key.program(self.function, self.options, declared), key.of_machine()
        except NotKept:
            return None
        place = None if base is None else folder.place(base.path, self.function.__qualname__, program, machine)
        users = [] if place is None else [(path, Kept) for path in folder.entries(place)]
        for path, how in itertools.chain(users, shipped.candidates(self.function, program, machine)):
            if path in self.taken:
                continue
            found = self._tried(path, how, lambda kept: self._made(kept, arguments, names, continuation))
            if found is not None:
                if place is not None:
                    shipped.adopt(found.kept, place, program, machine)
                return found
        return None

    def _tried(self, path: Path, how: type[Kept], make: Callable[[Kept], Found | str]) -> Found | None:
        """An entry, if it fits: what is damaged or cannot be used is not tried again."""
        try:
            one = make(how(path))
        except Damaged as error:
            aside = folder.set_aside(path) if how.is_users else path
            log.info("the entry in %s is damaged%s: %s", path, "" if aside == path else ", and set aside", error)
            if error.edited:
                fallbacks.say(f"an edit of a kept entry does not run: {error}; it is in {aside}. {HOW_TO_EDIT}")
        except NotKept as error:
            log.info("the entry in %s is not used: %s", path, error)
        except Exception as error:  # a defect of ours, or a file that somebody made: it is compiled
            log.warning("the entry in %s cannot be used: %s: %s", path, type(error).__name__, error, exc_info=error)
        else:
            if isinstance(one, str):
                log.debug("the entry in %s does not fit: %s", path, one)
                return None
            if how.is_users:
                folder.used(path)
            self.taken.add(path)
            return one
        self.taken.add(path)
        return None

    def _made(
        self, kept: Kept, arguments: tuple[Any, ...], names: dict[str, Any], continuation: Callable[[Resume], Any]
    ) -> Found | str:
        table = table_for(kept.json(folder.TABLE), self.function, arguments)
        if isinstance(table, str):
            return table
        fetched = table.check(arguments)
        if fetched is None:
            return "its guards do not hold"
        facts = kept.json(folder.ENTRY)
        _ask_again(facts)
        read = {name: value for name, value in facts["names"].items() if value != ITSELF}
        named = {**dict.fromkeys(facts["names"], self.function), **{n: decoded(v) for n, v in read.items()}, **names}
        records: tuple[GraphRecord, ...] = ()
        whole = True
        if facts["graph"]:
            specialized: Specialized = []
            named["graph_0"], whole = graph_call(kept, self.compile_kept, specialized)
            saved: Any = Later(functools.partial(_saved, kept))
            sides = told.Sides(kept)
            records = (GraphRecord("graph_0", sides, saved, facts["graph"], specialized=specialized),)
        for row in facts["resumes"]:
            named[row["name"]] = continuation(_resume(row))
        text = kept.text("transformed.py")
        artifact = Artifact(kept.path / "transformed.py", text)
        entry = load_entry(artifact, named, tuple(facts["written"]), facts["may_fail"])
        if not whole:
            entry = _or_function(entry, self.function)
        breaks = tuple(GraphBreak(reason, decoded(o), hint, raises) for reason, o, hint, raises in facts["breaks"])
        fixed = tuple((decoded(source), why, decoded(origin)) for source, why, origin in facts["fixed"])
        return Found(table, entry, fetched, KeptGuards(kept.text(folder.GUARDS)), records, breaks, text, fixed, kept)


def _ask_again(facts: dict[str, Any]) -> None:
    """What no guard holds is as it was. Raises NotKept."""
    for name, digest in facts["modules"].items():
        if module_digest(name) != digest:
            raise NotKept(f"{name} has changed")
    for module, name, value in facts["data"]:
        if not _native.same_constant(vars(found([module])).get(name), decoded(value)):
            raise NotKept(f"{module}.{name} has another value")
    for path, args, kwargs, *result in facts["answers"]:
        answer = found(path)(*decoded(args), **decoded(kwargs))
        if compared(answer) != result:
            raise NotKept(f"{'.'.join(path)} gives another answer")


def _or_function(entry: Callable[..., Any], function: FunctionType) -> Callable[..., Any]:
    """An entry whose graph cannot run as it was captured: where that is needed the function runs."""

    def call(*arguments: Any) -> Any:
        try:
            return entry(*arguments)
        except AskedForFunction:
            return call_original(function, arguments[:-1])

    return call


def _resume(row: dict[str, Any]) -> Resume:
    code = marshal.loads(base64.b64decode(row["code"]))
    parameters, varying = tuple(row["parameters"]), tuple(row["varying"])
    return Resume(row["name"], decoded(row["key"]), code, parameters, row["line"], row["plain"], varying)


def _saved(kept: Kept) -> tuple[Any, ...]:
    """What a graph saves for its backward."""
    with contextlib.suppress(Damaged):
        partition = kept.json("graph_0/graph.json")["partition"]
        return () if partition is None else decoded(partition["saved"])
    return ()


def record_of(found: Found, index: int, resume_of: str | None) -> EntryRecord:
    """What is known of a restored entry."""
    keeping = Keeping(found.kept.path, found=True)
    return EntryRecord(
        index, found.guards, "", found.text, found.graphs, found.breaks, resume_of=resume_of, keeping=keeping
    )
