"""What is kept of a compiled graph for later processes: data and texts. ``GraphPipeline.kept`` makes it, ``cache``
writes it down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # which a process that finds an entry does without
    from .compilation import NodeRow
    from .kernels import FusedGraph, Kernel
    from .partition import Partition
    from .side_call import Layout, SideCall


class NotKept(Exception):
    """Something that no later process can be told, or that is another one there; the message says what and why."""


@dataclass(frozen=True)
class KeptKernels:
    """A graph in kernels: the wrapper's text and the kernels' (by file name), and the files of what was compiled of
    those (by theirs). ``handed`` are what names in the wrapper's text stand for, ``called`` the graphs that it calls.
    ``fused`` and ``rows`` tell people of it.
    """

    name: str
    wrapper: str
    handed: Mapping[str, Any]
    kernels: Mapping[str, str]
    libraries: Mapping[str, Path]
    called: Mapping[str, KeptKernels]
    fused: FusedGraph
    rows: tuple[Kernel, ...]


@dataclass(frozen=True)
class KeptSide:
    """One side: its graph's text, the objects that names in it stand for, and its kernels, if it runs in such.
    ``nodes`` tell people of it; there are none of one that is not compiled yet.
    """

    name: str
    call: SideCall
    text: str
    objects: Mapping[str, Any] = field(default_factory=dict)
    nodes: tuple[NodeRow, ...] = ()
    kernels: KeptKernels | None = None


@dataclass(frozen=True)
class OpenInput:
    """How an input of a graph with open sizes lies, and whether it gets a gradient."""

    layout: Layout
    device: str
    requires_grad: bool


@dataclass(frozen=True)
class OpenSizes:
    """The sizes that a graph leaves open, if it is worth compiling for those that many calls have: their names, and
    where inputs tell them, input and dimension of each. ``inputs``: all that the graph takes, none where there is more
    to it than its text says.
    """

    names: tuple[str, ...] = ()
    places: tuple[tuple[int, int], ...] = ()
    inputs: tuple[OpenInput, ...] = ()


@dataclass(frozen=True)
class KeptGraph:
    """A graph that runs as captured if ``partition`` is None. ``objects`` are what names in the captured text stand
    for. ``enters_grad``: it was called where no gradients are recorded, and records its own; ``inference``: which of
    its results are inference tensors. ``nodes`` of the captured graph and ``joint``, forward and backward as one text,
    tell people of it.
    """

    captured: str
    objects: Mapping[str, Any] = field(default_factory=dict)
    nodes: tuple[NodeRow, ...] = ()
    joint: str = ""
    partition: Partition | None = None
    forward: KeptSide | None = None
    backwards: tuple[tuple[Partition, KeptSide], ...] = ()
    enters_grad: bool = False
    inference: tuple[bool, ...] | None = None
    open_sizes: OpenSizes = OpenSizes()


@dataclass
class KeptEntry:
    """The entry to which what is compiled later is added, a backward or a graph for sizes that many calls have; none as
    long as it has not been kept.
    """

    path: Path | None = None
