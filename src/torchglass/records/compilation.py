"""What one function's compilation left behind, for people: read by ``inspector/``, written by ``pipeline``.

A function has entries; an entry has guards, graphs and graph breaks; a graph has the texts of its stages,
its kernels and what was decided about them. Resume functions are functions in their own right and hang
below theirs:

    FunctionRecord toy_example
      EntryRecord 0: guards, graph_0, a break at line 12
      FunctionRecord resume_at_8
        EntryRecord 0: ...

Functions get entries while a program runs, so their record is the only one here that is not frozen; the lists of a
graph's grow by a backward when it is first needed. What the inspector asks for is derived from them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .breaks import GraphBreak
from .guards import Guard
from .origin import UNKNOWN, Origin
from .packed import PackedField
from .segments import SegmentRecord


@dataclass(frozen=True)
class Event:
    """One run of a stage: when it began (``time.perf_counter``), how long it took."""

    stage: str
    begin: float
    seconds: float


@dataclass(frozen=True)
class NodeRow:
    """One node of a graph as its file shows it: ``line`` is where ``statement`` stands there, 0 for an input.

    ``shape`` is the value as a comment says it (``float32[4, 8]``), ``inputs`` are the names it reads.
    """

    name: str
    op: str
    statement: str
    inputs: tuple[str, ...]
    shape: str
    line: int
    origin: Origin = UNKNOWN


class ReprText(str):
    """The text of an object that a record must not keep alive, shown without quotes."""

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Recompile:
    """A call that fitted no entry: the first guard that failed of the entry that came nearest, and the value before and
    now. ``others``: the same of the other entries, the next nearest first. ``advice``: what becomes of a size that
    changed, or which line keeps it a number.
    """

    guard: Guard | None
    old: Any = None
    new: Any = None
    entry: int | None = None
    others: tuple[Recompile, ...] = ()
    advice: str = ""


@dataclass(frozen=True)
class Fallback:
    """Something that runs eagerly instead: the reason, where, and from which stage it came."""

    reason: str
    origin: Origin = UNKNOWN
    stage: str = ""


@dataclass(frozen=True)
class SideRecord:
    """What the stages left of one side of a graph: captured, joint, forward, backward, or backward_2 for gradients that
    arrive otherwise, and of each sub-graph that is compiled by itself.

    ``text`` is the graph's file as on disk, ``nodes`` its rows. Of a side in kernels there are the ``FusedGraph``, the
    ``Kernel`` rows and the texts of its ``files``; ``call`` refers to what its wrapper starts them from, for as long as
    that is in use, ``replayed`` to what replays them as a CUDA graph. ``fallback`` says why PyTorch's operators run it
    instead, ``segment`` which part of a backward it is, where that is cut. Texts and rows are packed.
    """

    name: str
    text: PackedField[str] = PackedField("")
    nodes: PackedField[tuple[NodeRow, ...]] = PackedField(())
    fused: PackedField[Any] = PackedField(None)
    kernels: PackedField[tuple[Any, ...]] = PackedField(())
    files: PackedField[tuple[tuple[str, str], ...]] = PackedField(())
    fallback: str = ""
    call: weakref.ref[Any] | None = field(default=None, repr=False, compare=False)
    replayed: weakref.ref[Any] | None = field(default=None, repr=False, compare=False)
    segment: SegmentRecord | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class GraphRecord:
    """One graph of an entry. ``sides``, and with them ``events``, grow when a backward is compiled, at the first one.

    ``objects`` are what the globals of captured.py stand for that no text can say. ``shared`` is what graphs of the
    same content have in common, for as long as one of them is there. ``specialized`` are the graphs for sizes that many
    calls have, with these (``s0=8, s1=512``): it grows as calls come.
    """

    name: str
    sides: Sequence[SideRecord] = ()
    saved: PackedField[tuple[Any, ...]] = PackedField(())
    node_count: int = 0
    events: list[Event] = field(default_factory=list)
    objects: dict[str, Any] = field(default_factory=dict, repr=False)
    shared: Any = field(default=None, repr=False)
    specialized: list[tuple[str, GraphRecord]] = field(default_factory=list, repr=False)

    @property
    def files(self) -> dict[str, str]:
        """The texts by file name."""
        graphs = {f"{side.name}.py": text for side in self.sides if (text := side.text)}
        return graphs | {name: text for side in self.sides for name, text in side.files}

    @property
    def nodes(self) -> dict[str, tuple[NodeRow, ...]]:
        """The rows of each graph, by its side."""
        return {side.name: rows for side in self.sides if (rows := side.nodes)}

    @property
    def fused(self) -> dict[str, Any]:
        """The loops of each side in kernels."""
        return {side.name: fused for side in self.sides if (fused := side.fused) is not None}

    @property
    def kernels(self) -> tuple[Any, ...]:
        """Those of all sides."""
        return tuple(kernel for side in self.sides for kernel in side.kernels)

    @property
    def decisions(self) -> tuple[Any, ...]:
        """What was fused and what was not, of all sides."""
        return tuple(decision for fused in self.fused.values() for decision in fused.decisions)

    @property
    def fallbacks(self) -> dict[str, str]:
        """Why operators run a side, where they do."""
        return {side.name: side.fallback for side in self.sides if side.fallback}

    @property
    def seconds_by_stage(self) -> dict[str, float]:
        return seconds_by_stage(self.events)


@dataclass(frozen=True)
class Compilation:
    """A compiled graph: what runs it, and what its stages left for people."""

    call: Callable[..., Any]
    record: GraphRecord


@dataclass(frozen=True)
class Keeping:
    """Whether an entry outlives the process: the folder that it was kept in, or ``found`` in, or why it is in none;
    nothing of it where none was to be kept.
    """

    path: Path | None = None
    why_not: str = ""
    found: bool = False

    def __str__(self) -> str:
        """What a person may wonder about; that one is kept is nothing to be told."""
        if self.found:
            return f"compiled by an earlier process, and found in {self.path}"
        return self.why_not and f"not kept for later processes: {self.why_not}"


@dataclass(frozen=True, repr=False)
class EntryRecord:
    """One compiled variant of a function and the conditions under which it runs.

    ``resume_of`` is the name of the function that a resume function continues, None for others. ``graphs``
    is a tuple of the graphs that the transformed code calls, in order. ``names`` are the objects that free names of
    the transformed code stand for, ``expected`` those that guards.py calls ``E[0]``, ``E[1]``, ... ``events`` are those
    of no graph.
    """

    index: int
    guards: Sequence[Guard] = ()
    guards_text: PackedField[str] = PackedField("")
    transformed_text: PackedField[str] = PackedField("")
    graphs: tuple[GraphRecord, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    events: list[Event] = field(default_factory=list)
    resume_of: str | None = None
    names: dict[str, Any] = field(default_factory=dict)
    expected: tuple[Any, ...] = ()
    keeping: Keeping = Keeping()

    def __repr__(self) -> str:
        return f"<entry {self.index}: {len(self.guards)} guards, {len(self.graphs)} graphs>"

    @property
    def timeline(self) -> list[Event]:
        """When each stage ran, those of the graphs too."""
        events = [*self.events, *(event for graph in self.graphs for event in graph.events)]
        return sorted(events, key=lambda event: event.begin)

    @property
    def seconds_by_stage(self) -> dict[str, float]:
        return seconds_by_stage(self.timeline)


def seconds_by_stage(events: Iterable[Event]) -> dict[str, float]:
    """Seconds of each stage, in the order in which they first ran."""
    seconds: dict[str, float] = {}
    for event in events:
        seconds[event.stage] = seconds.get(event.stage, 0.0) + event.seconds
    return seconds


@dataclass(repr=False)
class FunctionRecord:
    """All that happened to one function. ``folder`` is where its artifacts are, None if they went nowhere.

    ``called`` are functions that became compiled functions of their own because they were called from code between
    the graphs. ``source`` is what a resume function continues with, as Python: text, or what makes it when it is read.
    ``function`` is the Python function itself (of a resume function the one that enters in the middle), ``continued``
    the record of the function that a resume function continues: it has them all, since each may go on in any other.
    """

    name: str
    origin: Origin = UNKNOWN
    folder: Path | None = None
    entries: list[EntryRecord] = field(default_factory=list)
    recompiles: list[Recompile] = field(default_factory=list)
    fallbacks: list[Fallback] = field(default_factory=list)
    resumes: list[FunctionRecord] = field(default_factory=list)
    called: list[FunctionRecord] = field(default_factory=list)
    source: str | Callable[[], str] = ""
    function: Callable[..., Any] | None = None
    continued: FunctionRecord | None = None

    def __repr__(self) -> str:
        return f"<record of {self.name}, {self.origin}: {self.entries}>"

    @property
    def source_text(self) -> str:
        """The text of a resume function; '' for the user's own functions."""
        if not isinstance(self.source, str):
            self.source = self.source()
        return self.source

    def goes_on_in(self) -> list[FunctionRecord]:
        """The resume functions that its entries may call."""
        return self.resumes if self.continued is None else self.continued.resumes

    def walk(self) -> Iterator[FunctionRecord]:
        """This function, its resume functions, and likewise the functions it called."""
        yield self
        for record in (*self.resumes, *self.called):
            yield from record.walk()
