"""What fusing and code generation hand on: fused kernels, the schedule with its memory plan, decisions, sources.

A ``FusedKernel`` is one nest: for every point of its row dimensions the steps run in turn, each over the row's inner
dimensions. A softmax over (512, 128)::

    kernel softmax rows [512] inner [128]:
        loop softmax_max over [512, reduce 128]: ...
        loop softmax_exp over [512, 128]: ...          softmax_exp is row-local: never in memory
        loop softmax_sum over [512, reduce 128]: ...
        loop softmax over [512, 128]: ...
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ..process.cached import cached_property
from .launch import LaunchPlan
from .loops import Buffer, ExternCall, Loop, LoopGraph, show
from .origin import UNKNOWN, Origin
from .sizes import Size, product


@dataclass(frozen=True)
class FusionDecision:
    """Whether two nodes became one kernel. ``rule`` is the fusion rule's name, ``why`` a clause for people."""

    first: str
    second: str
    fused: bool
    rule: str
    why: str
    bytes_saved: int = 0

    def __str__(self) -> str:
        verb = "fused" if self.fused else "kept apart"
        saved = f", saves {self.bytes_saved} bytes" if self.fused else ""
        return f"{self.first} + {self.second}: {verb} by {self.rule}: {self.why}{saved}"


@dataclass(frozen=True)
class FusedKernel:
    """Loops that run as one kernel over common dimensions.

    All ``loops`` are over the same ``dims`` (a size of 1 where a loop does not move along a dimension).
    ``inner`` marks the dimensions of one row. A loop may reduce all inner dimensions (a row reduction), row dimensions
    (a column reduction, whose result is read only by later kernels), or everything.
    ``local`` names buffers that live only within a row and need no memory. ``horizontal``: it runs in one call with the
    kernel before it, which it does not need; their buffers exist before and after both. ``strided``: rows lie across
    memory, each beside the next, so that neighbouring rows are walked together. ``inplace``: pairs of a buffer it
    writes and one it reads for the last time, which are one memory.
    """

    name: str
    dims: tuple[Size, ...]
    inner: tuple[bool, ...]
    loops: tuple[Loop, ...]
    local: frozenset[str] = frozenset()
    horizontal: bool = False
    strided: bool = False
    inplace: tuple[tuple[str, str], ...] = ()

    @property
    def rows(self) -> Size:
        return product(tuple(d for d, i in zip(self.dims, self.inner) if not i))

    @property
    def columns(self) -> Size:
        return product(tuple(d for d, i in zip(self.dims, self.inner) if i))

    @cached_property
    def writes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(b for loop in self.loops for b in loop.writes if b not in self.local))

    @cached_property
    def reads(self) -> tuple[str, ...]:
        made = {b for loop in self.loops for b in loop.writes}
        return tuple(dict.fromkeys(b for loop in self.loops for b in loop.reads if b not in made))

    @property
    def ops(self) -> tuple[str, ...]:
        return tuple(o for loop in self.loops for o in loop.ops)

    @property
    def origins(self) -> tuple[Origin, ...]:
        return tuple(dict.fromkeys(o for loop in self.loops for o in loop.origins if o is not UNKNOWN))

    def __str__(self) -> str:
        rows = [str(d) for d, i in zip(self.dims, self.inner) if not i]
        inner = [str(d) for d, i in zip(self.dims, self.inner) if i]
        head = f"kernel {self.name} rows [{', '.join(rows)}] inner [{', '.join(inner)}]"
        if self.local:
            head += f" local {', '.join(sorted(self.local))}"
        if self.horizontal:
            head += ", in one call with the one before"
        head += "".join(f", {written} in place of {read}" for written, read in self.inplace)
        return "\n".join((head + ":", *(f"    {line}" for loop in self.loops for line in str(loop).splitlines())))


@dataclass(frozen=True)
class Allocate:
    """Make ``buffer`` exist: fresh memory, the memory of a dead buffer (``reuse``) of the same bytes and dtype, that of
    a buffer which the next kernel reads for the last time (``inplace``), or a part of one that exists (``alias_of``).
    """

    buffer: str
    reuse: str | None = None
    alias_of: str | None = None
    inplace: str | None = None

    def __str__(self) -> str:
        if self.alias_of:
            return f"allocate {self.buffer} as alias of {self.alias_of}"
        if self.inplace:
            return f"allocate {self.buffer} in place of {self.inplace}"
        return f"allocate {self.buffer}" + (f" reusing {self.reuse}" if self.reuse else "")


@dataclass(frozen=True)
class Free:
    """The last reader of ``buffer`` has run."""

    buffer: str

    def __str__(self) -> str:
        return f"free {self.buffer}"


def device_of(kernel: FusedKernel, buffers: Mapping[str, Buffer]) -> str:
    """The device that a kernel's memory is on."""
    return next(buffers[name].device for name in (*kernel.writes, *kernel.reads))


Step: TypeAlias = "FusedKernel | ExternCall | Allocate | Free"


@dataclass(frozen=True)
class FusedGraph:
    """The schedule of one graph: kernels and extern calls in order, with where memory begins and ends."""

    graph: LoopGraph
    steps: tuple[Step, ...]
    decisions: tuple[FusionDecision, ...] = ()
    peak_bytes: int = 0

    @property
    def kernels(self) -> tuple[FusedKernel, ...]:
        return tuple(s for s in self.steps if isinstance(s, FusedKernel))

    @property
    def buffers(self) -> dict[str, Buffer]:
        return self.graph.buffers

    def __str__(self) -> str:
        lines = [
            f"fused {self.graph.name}({', '.join(self.graph.inputs)})  # peak {self.peak_bytes} bytes of temporaries"
        ]
        lines += [f"  {buffer}" for buffer in self.buffers.values()]
        for step in self.steps:
            lines += [f"  {line}" for line in str(step).splitlines()]
        lines += [f"return {', '.join(show(o) for o in self.graph.outputs)}", "", "# decisions"]
        lines += [f"#   {d}" for d in self.decisions]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class TuningConfig:
    """How a kernel runs where several ways give the same numbers.

    ``threads``: None for as many as PyTorch uses, and one for small problems. ``tile``: side of the blocks in which
    transposed reads go. ``row_block``: rows whose column sums are added up before they join the total.
    """

    threads: int | None = None
    tile: int = 64
    row_block: int = 16

    def __str__(self) -> str:
        threads = "default threads" if self.threads is None else f"{self.threads} thread{'s' * (self.threads > 1)}"
        return f"{threads}, tile {self.tile}, row block {self.row_block}"


@dataclass(frozen=True)
class Measurement:
    """A configuration that mode="max-autotune" measured, a ``TuningConfig`` or what is shown of a GPU's, and the
    microseconds of its fastest run, of a GPU's kernel the median.
    """

    choice: Any
    microseconds: float

    def __str__(self) -> str:
        return f"{self.choice}: {self.microseconds:.1f} us"


@dataclass(frozen=True)
class Candidates:
    """The C of all configurations of a graph's kernels: function of each, and the buffers to pass, by kernel."""

    text: str
    functions: dict[str, tuple[tuple[TuningConfig, str], ...]] = field(hash=False)
    arguments: dict[str, tuple[Buffer, ...]] = field(hash=False)


@dataclass(frozen=True)
class Kernel:
    """One generated kernel. Several steps of a graph may call it: equal kernels are printed once.

    ``calls`` counts them; ``loops`` and ``origins`` are those of all steps that call it. ``bytes``: what one call moves
    at least, each element that it reads or writes once; ``floor``: the microseconds that takes a GPU's memory, 0 where
    it is not known. ``tried``: what mode="max-autotune" measured, the choice that runs first.
    """

    name: str
    language: str
    source: str = field(repr=False)
    arguments: tuple[str, ...]
    loops: tuple[str, ...]
    ops: tuple[str, ...]
    origins: tuple[Origin, ...] = ()
    calls: int = 1
    tried: tuple[Measurement, ...] = ()
    bytes: int = 0
    floor: float = 0.0

    def called_for(self, again: FusedKernel) -> Kernel:
        """The same with one more call: it stands for the loops and lines of that step too."""
        loops = (*self.loops, *(loop.name for loop in again.loops))
        origins = tuple(dict.fromkeys((*self.origins, *again.origins)))
        return replace(self, calls=self.calls + 1, loops=loops, origins=origins)


@dataclass(frozen=True)
class KernelSources:
    """The texts of one graph: its kernels by language ("c", "triton"), the Python wrapper that calls them as ``plan``
    says, one record per kernel.
    """

    texts: Mapping[str, str] = field(hash=False)
    wrapper_text: str
    kernels: tuple[Kernel, ...]
    plan: LaunchPlan
