"""Graphs for sizes that many calls had in an earlier process: found by calls that have them, once each.

    graph_0/kept_sizes_8_512/graph_0/graph.json ...        compiled for s0=8, s1=512 (lazy_specialization.py)

Nothing of one is read before a few calls have had its sizes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import torch_compat
from .._native import SizeDispatch
from ..runtime.graph_calls import GraphCall
from .folder import Kept

PREFIX = "kept_sizes_"
AFTER = 4  # calls: whoever has many sizes is asked less often
log = logging.getLogger("torchglass.cache")


def folder_name(sizes: Sequence[int]) -> str:
    """The folder beside a graph's files of what was compiled for these sizes."""
    return PREFIX + "_".join(map(str, sizes))


def by_kept_sizes(
    call: GraphCall, kept: Kept, places: Sequence[Sequence[int]], load: Callable[[Kept], GraphCall]
) -> GraphCall:
    """``call``, or what was kept for a call's sizes. ``places``: which of them are open, as SizeDispatch takes them."""
    there = _there(kept.path / "graph_0") if places else {}
    if not there:
        return call
    return SizeDispatch(call, tuple((index, dim) for index, dim in places), AFTER, _KeptSizes(there, type(kept), load))


def _there(folder: Path) -> dict[tuple[int, ...], Path]:
    found = {}
    for path in sorted(folder.glob(f"{PREFIX}*")):
        numbers = path.name.removeprefix(PREFIX).split("_")
        if all(map(str.isdecimal, numbers)):
            found[tuple(map(int, numbers))] = path
    return found


@dataclass
class _KeptSizes:
    """Takes the sizes for which there is something."""

    there: dict[tuple[int, ...], Path]
    how: type[Kept]
    load: Callable[[Kept], GraphCall]

    def __call__(self, dispatch: SizeDispatch, sizes: tuple[int, ...]) -> bool:
        if sizes not in self.there or torch_compat.has_modes():
            return False
        path = self.there.pop(sizes)
        try:
            dispatch.add(sizes, self.load(self.how(path)))
            log.info("calls of sizes %s run what was kept in %s", sizes, path)
        except Exception as error:  # damaged, or deleted meanwhile: the graph for all sizes goes on
            log.info("the graph in %s is not used: %s", path, error)
        if not self.there:
            dispatch.end()
        return True
