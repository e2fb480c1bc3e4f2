"""What is kept of a compiled graph for later processes: data and texts. ``GraphPipeline.kept`` makes it, ``cache``
writes it down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .partition import Partition
    from .side_call import SideCall


class NotKept(Exception):
    """Something that no later process can be told, or that is another one there; the message says what and why."""


@dataclass(frozen=True)
class KeptSide:
    """One side: its graph's text, and of one in kernels the wrapper's and the kernels' (by file name), and the files of
    what was compiled of those (by theirs). ``objects`` are what names in the graph's text stand for, ``handed`` those
    in the wrapper's. ``rows`` tell people of its kernels (``records.kernels.Kernel``).
    """

    name: str
    call: SideCall
    text: str
    objects: Mapping[str, Any] = field(default_factory=dict)
    wrapper: str = ""
    handed: Mapping[str, Any] = field(default_factory=dict)
    kernels: Mapping[str, str] = field(default_factory=dict)
    libraries: Mapping[str, Path] = field(default_factory=dict)
    rows: tuple[Any, ...] = ()


@dataclass(frozen=True)
class KeptGraph:
    """A graph that runs as captured if ``partition`` is None. ``objects`` are what names in the captured text stand
    for. ``enters_grad``: it was called where no gradients are recorded, and records its own; ``inference``: which of
    its results are inference tensors. ``places``: where its inputs tell the sizes that it leaves open, input and
    dimension of each, if it is worth compiling for sizes that many calls have.
    """

    captured: str
    objects: Mapping[str, Any] = field(default_factory=dict)
    partition: Partition | None = None
    forward: KeptSide | None = None
    backwards: tuple[tuple[Partition, KeptSide], ...] = ()
    enters_grad: bool = False
    inference: tuple[bool, ...] | None = None
    places: tuple[tuple[int, int], ...] = ()


@dataclass
class KeptEntry:
    """The entry to which what is compiled later is added, a backward or a graph for sizes that many calls have; none as
    long as it has not been kept.
    """

    path: Path | None = None
