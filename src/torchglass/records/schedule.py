"""What ``schedule`` hands on: how each different kernel of a graph runs on its target.

A softmax over (512, 128) on a CPU::

    kernel_0: softmax
      rows i0 < 512 parallel; columns i1 < 128 vector
      pass 0: softmax_max
      pass 1: softmax_exp, softmax_sum
      pass 2: softmax
      row arrays: softmax_exp

Both printers print from this record: what runs beside what, and what waits for what, is decided before them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..process.cached import cached_property
from .kernels import FusedGraph, FusedKernel
from .loops import Buffer, Loop
from .sizes import Size, divides, product, symbols


@dataclass(frozen=True)
class RowPass:
    """One walk along a row, by names of loops: ``full`` move along it, ``row`` follow once for the row."""

    full: tuple[str, ...] = ()
    row: tuple[str, ...] = ()


@dataclass(frozen=True)
class CpuMapping:
    """``work``: an estimate of simple operations; ``parallel``: they are enough for threads to share them.

    ``lanes``: how many rows are walked at once, where they lie across memory; else 0. ``tiled``: a row dimension that
    some reads walk element by element while the inner loop makes them jump: both may go in blocks.
    """

    work: float
    parallel: bool
    lanes: int = 0
    tiled: int | None = None

    def __str__(self) -> str:
        lines = [f"{'threads share' if self.parallel else 'one thread does'} about {self.work:.0f} operations"]
        lines += [f"panels of {self.lanes} rows, which lie across memory"] if self.lanes else []
        lines += (
            [f"blocks of i{self.tiled} and the last dimension, where all is one pass"] if self.tiled is not None else []
        )
        return "\n".join(lines)


@dataclass(frozen=True)
class TileAxis:
    """An axis of the tile of points that a program of a GPU computes on: ``size`` points of the dimensions ``dims``.

    ``kind``: "parallel", each program has a ``block`` of the points; "vector", every program has all of them, within
    one block; "serial", it has all of them and walks block after block.
    """

    name: str
    dims: tuple[int, ...]
    size: Size
    block: int
    kind: str

    @property
    def constant(self) -> str:
        """What its block is called in the kernel."""
        return f"{self.name.upper()}BLOCK"

    @property
    def blocks(self) -> Size:
        return (self.size + (self.block - 1)) // self.block

    @property
    def is_ragged(self) -> bool:
        """Whether the last block may hang over the end."""
        return self.size != self.block if self.kind == "vector" else not divides(self.block, self.size)

    def __str__(self) -> str:
        dims = ", ".join(f"i{k}" for k in self.dims)
        return f"{self.name} = [{dims}] {self.kind}: {self.size} in blocks of {self.block}"


@dataclass(frozen=True)
class GpuMapping:
    """The axes of a program's tile, rows before columns, its warps, and the bits of counters and addresses.

    Parallel axes are named in the order of the grid's dimensions: the first has ``program_id(0)``. ``last_apart``: what
    a block does is written twice, without masks for whole ones, with them for the last. ``stages``: blocks of a serial
    axis of which a program has asked for the numbers, that it computes with included (software pipelining).
    ``registers``: the most of a thread, None for as many as it needs. ``packed``: a row's numbers of two bytes stay so
    until each pass converts them.
    """

    axes: tuple[TileAxis, ...]
    warps: int
    index_bits: int = 32
    last_apart: bool = False
    stages: int = 1
    registers: int | None = None
    packed: bool = False

    @property
    def parallel(self) -> tuple[TileAxis, ...]:
        """The axes that programs share."""
        return tuple(axis for axis in self.axes if axis.kind == "parallel")

    @property
    def grid(self) -> tuple[Size, ...]:
        """The programs of a launch, in each of its dimensions."""
        return tuple(axis.blocks for axis in self.parallel) or (1,)

    @property
    def walked(self) -> TileAxis | None:
        """The axis that a program walks block by block."""
        return next((axis for axis in self.axes if axis.kind == "serial"), None)

    @property
    def columns(self) -> TileAxis:
        """The axis of the innermost dimension, which is the tile's last."""
        return max(self.axes, key=lambda axis: max(axis.dims, default=-1))

    @property
    def looped(self) -> bool:
        """Whether a row does not fit a tile."""
        return self.walked is self.columns

    def __str__(self) -> str:
        programs = f"{' x '.join(map(str, self.grid))} programs of {self.warps} warps, {self.index_bits}-bit addresses"
        apart = ("the last program apart",) if self.last_apart else ()
        ahead = (f"{self.stages} blocks under way at a time",) if self.stages > 1 else ()
        limit = (f"at most {self.registers} registers of a thread",) if self.registers else ()
        packed = ("rows stay as they were read",) if self.packed else ()
        return "\n".join((*map(str, self.axes), programs, *apart, *ahead, *limit, *packed))


@dataclass(frozen=True)
class Nest:
    """``dims[:outer_rank]`` are the row dimensions, the rest one row's; both outermost first. Loops are over ``dims``.

    ``parallel_dims``: how many of the first rows' dimensions may run at once, the others in order. None: all of them.
    """

    kernel: FusedKernel
    dims: tuple[Size, ...]
    outer_rank: int
    loops: tuple[Loop, ...]
    parallel_dims: int | None = None

    @property
    def row_dims(self) -> tuple[Size, ...]:
        return self.dims[: self.outer_rank]

    @property
    def inner_dims(self) -> tuple[Size, ...]:
        return self.dims[self.outer_rank :]

    @property
    def columns(self) -> Size:
        return product(self.inner_dims)


@dataclass(frozen=True, kw_only=True)
class Schedule(Nest):
    """How a kernel runs: its nest, and what of it runs when.

    ``before`` are the loops once a row ahead of the passes, ``after`` those over single numbers that need the result of
    a reduction over all rows. ``row_arrays``: local buffers whose row is kept between passes; other local buffers are
    values of a point, computed again where a later pass needs them. ``mapping``: how this is laid on the target
    (``CpuMapping``, ``GpuMapping``). ``held``: what a program does instead where a row that is walked turns out to be
    one block.
    """

    name: str
    before: tuple[str, ...] = ()
    passes: tuple[RowPass, ...] = ()
    after: tuple[str, ...] = ()
    row_arrays: frozenset[str] = frozenset()
    mapping: Any = None
    held: Schedule | None = None

    @cached_property
    def by_name(self) -> dict[str, Loop]:
        return {loop.name: loop for loop in self.loops}

    @property
    def arguments(self) -> tuple[str, ...]:
        """The buffers that the kernel's function takes, in order."""
        return (*self.kernel.reads, *self.kernel.writes)

    @cached_property
    def scalars(self) -> dict[tuple[str, int], str]:
        """The numbers that calls returned and its loops use, by buffer and position, and their dtypes: on a GPU what
        the function takes last.
        """
        return {(o.buffer, o.position): o.dtype for loop in self.loops for o in loop.scalars}

    @property
    def pointers(self) -> tuple[str, ...]:
        """Those of the arguments that are memory."""
        handed = {buffer for buffer, _ in self.scalars}
        return tuple(name for name in self.arguments if name not in handed)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The sizes left open that its loops mention, which the function takes after the buffers."""
        return tuple(symbols((*self.dims, *(size for loop in self.loops for size in loop.mentioned))))

    def __str__(self) -> str:
        rows = ", ".join(f"i{k} < {d}" for k, d in enumerate(self.row_dims))
        inner = ", ".join(f"i{k} < {d}" for k, d in enumerate(self.inner_dims, self.outer_rank))
        lines = [f"{self.name}: {self.kernel.name}", f"  rows [{rows}] columns [{inner}]"]
        if self.parallel_dims is not None:
            lines.append(f"  in order but for the first {self.parallel_dims} dimensions")
        lines += [f"  before: {', '.join(self.before)}"] if self.before else []
        for n, one in enumerate(self.passes):
            then = f"; then once a row: {', '.join(one.row)}" if one.row else ""
            lines.append(f"  pass {n}: {', '.join(one.full)}{then}")
        lines += [f"  after all rows: {', '.join(self.after)}"] if self.after else []
        lines += [f"  row arrays: {', '.join(sorted(self.row_arrays))}"] if self.row_arrays else []
        lines += [f"  {line}" for line in str(self.mapping).splitlines()] if self.mapping is not None else []
        lines += ["  all in one pass where the row is one block"] if self.held is not None else []
        return "\n".join(lines)


@dataclass(frozen=True)
class KernelCall:
    """How a step of the graph calls a kernel: the place of its schedule, and the buffers to pass, in order."""

    schedule: int
    buffers: tuple[str, ...]


@dataclass(frozen=True)
class ScheduledGraph:
    """A fused graph, the schedule of each different kernel, and by the names of its kernels how they are called."""

    fused: FusedGraph
    schedules: tuple[Schedule, ...]
    calls: dict[str, KernelCall] = field(hash=False)

    @property
    def buffers(self) -> dict[str, Buffer]:
        return self.fused.buffers

    def __str__(self) -> str:
        names = {name: self.schedules[call.schedule].name for name, call in self.calls.items()}
        calls = [f"{name} = {names[name]}({', '.join(call.buffers)})" for name, call in self.calls.items()]
        return "\n\n".join((f"schedule {self.fused.graph.name}", *map(str, self.schedules), "\n".join(calls))) + "\n"
