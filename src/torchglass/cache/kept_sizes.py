"""Graphs for sizes that many calls had in an earlier process: found by calls that have them, once each.

    graph_0/kept_sizes_8_512/graph_0/graph.json ...        compiled for s0=8, s1=512 (lazy_specialization.py)

Nothing of one is read before a few calls have had its sizes. What there is none for is compiled, as in a process that
compiled the graph itself, once enough calls have had its sizes; only then the compiler is loaded.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .. import torch_compat
from .._native import SizeDispatch
from ..records.compilation import GraphRecord
from ..records.kept_graph import OpenSizes
from ..records.size_places import shown
from ..runtime.graph_calls import GraphCall
from .folder import Kept
from .told import Sides

PREFIX = "kept_sizes_"
AFTER = 4  # calls: whoever has many sizes is asked less often
log = logging.getLogger("torchglass.cache")

Specialized = list[tuple[str, GraphRecord]]
"""What runs for some sizes in the place of a graph, with these as people read them."""

Notice = Callable[[SizeDispatch, tuple[int, ...]], bool]


def folder_name(sizes: Sequence[int]) -> str:
    """The folder beside a graph's files of what was compiled for these sizes."""
    return PREFIX + "_".join(map(str, sizes))


@dataclass
class KeptSizes:
    """Takes the sizes for which there is something in ``kept``, and has others compiled by what ``compiler`` gives (of
    the number of those that are there) once they are those of ``hot_calls`` calls; never if that is 0.
    """

    kept: Kept
    open_sizes: OpenSizes
    load: Callable[[Kept], GraphCall]
    hot_calls: int
    compiler: Callable[[int], Notice]
    specialized: Specialized
    there: dict[tuple[int, ...], Path] = field(default_factory=dict)
    calls: Counter[tuple[int, ...]] = field(default_factory=Counter)
    compile: Notice | None = None

    def around(self, call: GraphCall) -> GraphCall:
        """``call``, or what there is for a call's sizes."""
        places = self.open_sizes.places
        self.there = _there(self.kept.path / "graph_0") if places else {}
        return SizeDispatch(call, places, AFTER, self) if self.there or (places and self.hot_calls) else call

    def __call__(self, dispatch: SizeDispatch, sizes: tuple[int, ...]) -> bool:
        if torch_compat.has_modes():
            return False
        if sizes not in self.there:
            return self._compiles(dispatch, sizes)
        path = self.there.pop(sizes)
        try:
            kept = type(self.kept)(path)
            dispatch.add(sizes, self.load(kept))
            at = shown(dict(zip(self.open_sizes.names, sizes)))
            self.specialized.append((at, GraphRecord("graph_0", Sides(kept))))
            log.info("calls of sizes %s run what was kept in %s", sizes, path)
        except Exception as error:  # damaged, or deleted meanwhile: the graph for all sizes goes on
            log.info("the graph in %s is not used: %s", path, error)
        if not self.there and not self.hot_calls:
            dispatch.end()
        return True

    def _compiles(self, dispatch: SizeDispatch, sizes: tuple[int, ...]) -> bool:
        self.calls[sizes] += AFTER
        if not self.hot_calls or self.calls[sizes] < self.hot_calls:
            return False
        if self.compile is None:
            self.compile = self.compiler(len(self.there) + dispatch.taken)
        return self.compile(dispatch, sizes)


def _there(folder: Path) -> dict[tuple[int, ...], Path]:
    found = {}
    for path in sorted(folder.glob(f"{PREFIX}*")):
        numbers = path.name.removeprefix(PREFIX).split("_")
        if all(map(str.isdecimal, numbers)):
            found[tuple(map(int, numbers))] = path
    return found
