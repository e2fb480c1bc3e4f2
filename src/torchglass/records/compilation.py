"""What one function's compilation left behind, for people: read by ``inspector/``, written by ``pipeline``.

A function has entries; an entry has guards, graphs and graph breaks; a graph has the texts of its stages,
its kernels and what was decided about them. Resume functions are functions in their own right and hang
below theirs:

    FunctionRecord toy_example
      EntryRecord 0: guards, graph_0, a break at line 12
      FunctionRecord resume_at_8
        EntryRecord 0: ...

Entries and graphs grow while a program runs (a backward graph compiles at the first backward), so the two
records that collect them are the only ones here that are not frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .capture import GraphBreak
from .guards import Guard
from .origin import UNKNOWN, Origin
from .packed import PackedDict, PackedField


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
    now. ``others``: the same of the other entries, the next nearest first.
    """

    guard: Guard | None
    old: Any = None
    new: Any = None
    entry: int | None = None
    others: tuple[Recompile, ...] = ()


@dataclass(frozen=True)
class Fallback:
    """Something that runs eagerly instead: the reason, where, and from which stage it came."""

    reason: str
    origin: Origin = UNKNOWN
    stage: str = ""


@dataclass
class GraphRecord:
    """One graph of an entry. Texts are as on disk; '' where the backend stops earlier or it has not
    happened yet.

    ``kernels`` are ``records.kernels.Kernel``, ``decisions`` ``FusionDecision`` and ``saved``
    ``SavedTensor`` rows, the forward's and (after the first backward) the backward's. ``nodes`` has the rows of
    each graph by its name (captured, joint, forward, backward), ``fused`` the ``FusedGraph`` of forward and backward,
    ``sides`` the kernels of each, ``files`` the generated texts by file name. ``objects`` are what the globals of
    captured.py stand for that no text can say. ``fallbacks`` says of a side that does not run its kernels why PyTorch's
    operators run it. ``shared`` is what graphs of the same content have in common. Texts and rows are packed.
    """

    name: str
    captured_text: PackedField[str] = PackedField("")
    joint_text: PackedField[str] = PackedField("")
    forward_text: PackedField[str] = PackedField("")
    backward_text: PackedField[str] = PackedField("")
    kernels: PackedField[tuple[Any, ...]] = PackedField(())
    sides: PackedDict[tuple[Any, ...]] = field(default_factory=PackedDict)
    decisions: PackedField[tuple[Any, ...]] = PackedField(())
    saved: PackedField[tuple[Any, ...]] = PackedField(())
    node_count: int = 0
    seconds_by_stage: dict[str, float] = field(default_factory=dict)
    nodes: PackedDict[tuple[NodeRow, ...]] = field(default_factory=PackedDict)
    fused: PackedDict[Any] = field(default_factory=PackedDict)
    files: PackedDict[str] = field(default_factory=PackedDict)
    objects: dict[str, Any] = field(default_factory=dict, repr=False)
    fallbacks: dict[str, str] = field(default_factory=dict)
    shared: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class EntryRecord:
    """One compiled variant of a function and the conditions under which it runs.

    ``resume_of`` is the name of the function that a resume function continues, None for others. ``graphs``
    is a tuple of the graphs that the transformed code calls, in order. ``names`` are the objects that free names of
    the transformed code stand for, ``expected`` those that guards.py calls ``E[0]``, ``E[1]``, ...
    """

    index: int
    guards: tuple[Guard, ...] = ()
    guards_text: PackedField[str] = PackedField("")
    transformed_text: PackedField[str] = PackedField("")
    graphs: tuple[GraphRecord, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    seconds_by_stage: dict[str, float] = field(default_factory=dict)
    resume_of: str | None = None
    names: dict[str, Any] = field(default_factory=dict, repr=False)
    expected: tuple[Any, ...] = ()
    events: list[Event] = field(default_factory=list)


@dataclass
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
    source: str | Callable[[], str] = field(default="", repr=False)
    function: Callable[..., Any] | None = field(default=None, repr=False)
    continued: FunctionRecord | None = field(default=None, repr=False)

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
