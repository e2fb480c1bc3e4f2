"""What the printer of a language makes of a graph's kernels: their file, and how each of them is started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..records.kernels import FusedKernel, Kernel
from ..records.launch import Launch
from ..records.schedule import ScheduledGraph
from ..records.sizes import Size


@dataclass(frozen=True)
class Together:
    """Kernels that run in one call: the function, whose arguments are theirs in turn."""

    function: str
    kernels: tuple[str, ...]


@dataclass(frozen=True)
class Printed:
    """The text of a language's file and its kernels. ``launches``: by the names of the graph's kernels."""

    language: str
    text: str
    kernels: tuple[Kernel, ...]
    launches: Mapping[str, Launch]
    groups: Sequence[Together] = ()


def about(kernel: FusedKernel, rows: Iterable[Size], columns: Iterable[Size]) -> list[str]:
    """What a kernel fuses, for the reader of its text."""
    ops = ", ".join(dict.fromkeys(op.removeprefix("aten.") for op in kernel.ops))
    shape = f"rows [{', '.join(map(str, rows))}], of [{', '.join(map(str, columns))}]"
    return [ops, shape, *map(str, kernel.origins[:12])]


def counted(scheduled: ScheduledGraph, printed: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """The printed kernels, each standing for the loops of all steps that call it."""
    found = list(printed)
    first: set[int] = set()
    for kernel in scheduled.fused.kernels:
        place = scheduled.calls[kernel.name].schedule
        if place in first:
            found[place] = found[place].called_for(kernel)
        first.add(place)
    return tuple(found)
