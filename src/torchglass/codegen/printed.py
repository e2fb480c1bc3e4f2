"""What the printer of a language makes of a graph's kernels: their file, and how each of them is started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..records.kernels import FusedKernel, Kernel
from ..records.launch import Launch
from ..records.loops import Access, Buffer, Load, Loop, Store, item_bytes
from ..records.schedule import ScheduledGraph
from ..records.sizes import Size, hint, product


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
        else:
            found[place] = replace(found[place], bytes=moved_bytes(kernel, scheduled.buffers))
        first.add(place)
    return tuple(found)


def moved_bytes(kernel: FusedKernel, buffers: Mapping[str, Buffer]) -> int:
    """Bytes that a kernel reads and writes if it touches each element once, by the hints of sizes."""
    touched: dict[tuple[str, bool], dict[Access, int]] = {}
    for loop in kernel.loops:
        for op in loop.body:
            if isinstance(op, (Load, Store)) and op.access.buffer not in kernel.local:
                accesses = touched.setdefault((op.access.buffer, isinstance(op, Store)), {})
                accesses[op.access] = max(accesses.get(op.access, 0), _elements(op.access, loop))
    total = 0
    for (name, written), accesses in touched.items():
        if written or (name, True) not in touched:  # what the kernel itself wrote it need not read
            buffer = buffers[name]
            total += item_bytes(buffer.dtype) * min(hint(buffer.numel), sum(accesses.values()))
    return total


def _elements(access: Access, loop: Loop) -> int:
    """How many elements an access of a loop touches at most."""
    return hint(product(loop.dims)) if access.indirect else access.touched(loop.dims)
