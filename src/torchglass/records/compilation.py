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

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .capture import GraphBreak
from .guards import Guard
from .origin import UNKNOWN, Origin


@dataclass(frozen=True)
class Record:
    """One run of a stage: its name, seconds, what went in and what came out."""

    stage: str
    seconds: float
    input: Any = None
    output: Any = None


@dataclass(frozen=True)
class Recompile:
    """A call that fitted no entry: the first guard of the newest entry that failed, and the value before
    and now.
    """

    guard: Guard | None
    old: Any = None
    new: Any = None
    entry: int | None = None


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
    ``SavedTensor`` rows, the forward's and (after the first backward) the backward's.
    """

    name: str
    captured_text: str = ""
    joint_text: str = ""
    forward_text: str = ""
    backward_text: str = ""
    kernels: tuple[Any, ...] = ()
    decisions: tuple[Any, ...] = ()
    saved: tuple[Any, ...] = ()
    node_count: int = 0
    seconds_by_stage: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class EntryRecord:
    """One compiled variant of a function and the conditions under which it runs.

    ``resume_of`` is the name of the function that a resume function continues, None for others. ``graphs``
    is a tuple of the graphs that the transformed code calls, in order.
    """

    index: int
    guards: tuple[Guard, ...] = ()
    guards_text: str = ""
    transformed_text: str = ""
    graphs: tuple[GraphRecord, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    seconds_by_stage: dict[str, float] = field(default_factory=dict)
    resume_of: str | None = None


@dataclass
class FunctionRecord:
    """All that happened to one function. ``folder`` is where its artifacts are, None if they went nowhere.

    ``source_text`` of a resume function is its decompiled text; '' for the user's own functions.
    """

    name: str
    origin: Origin = UNKNOWN
    folder: Path | None = None
    entries: list[EntryRecord] = field(default_factory=list)
    recompiles: list[Recompile] = field(default_factory=list)
    fallbacks: list[Fallback] = field(default_factory=list)
    resumes: list[FunctionRecord] = field(default_factory=list)
    source_text: str = ""

    def walk(self) -> Iterator[FunctionRecord]:
        """This function, then its resume functions, theirs and so on."""
        yield self
        for resume in self.resumes:
            yield from resume.walk()
