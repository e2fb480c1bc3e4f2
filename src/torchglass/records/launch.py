"""The plan of a graph's calls: what ``codegen.launch_plan`` decides, and ``codegen.wrapper`` prints as the file that
runs. Each row is a line or two of it, and says all that stands there::

    plan forward(w, b, x)
      alloc addmm: float32[512, 64] strides [64, 1]
      call torch.addmm(b, x, w[64, 64]@[1, 64]+0) out addmm  # addmm   model.py:12
      alloc gelu: float32[512, 64] strides [64, 1]
      launch kernel_0(addmm, gelu)  # gelu   model.py:12
      return gelu
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from .loops import Buffer, show
from .sizes import Size

RESERVED = frozenset(
    ["args", "attention", "call", "demo", "device", "empty", "ensure_layout", "example_constant", "failed", "globals"]
    + ["index_error", "inf", "kernels", "math", "nan", "operator", "Path", "reinterpret", "reserve_philox", "torch"]
    + ["triton", "tl", "INPUTS", "_"]
)
"""Names that a wrapper uses itself: no buffer is called so."""


def unreserved(name: str, taken: Container[str]) -> str:
    """A name for a buffer, numbered where it is taken or reserved."""
    unique, n = name, 0
    while unique in taken or unique in RESERVED:
        n += 1
        unique = f"{name}_{n}"
    return unique


FILES = {"c": "{}_kernels.c", "triton": "{}_kernels.py"}
"""The file of a graph's kernels, by their language."""

MOST_NUMBERS = 1000  # of a constant in a wrapper's text


def is_written_out(value: torch.Tensor) -> bool:
    """Whether the wrapper holds a constant's numbers; larger ones are handed to it when it is loaded."""
    return value.numel() <= MOST_NUMBERS and value.layout == torch.strided and value.is_contiguous()


# -- arguments -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Reinterpret:
    """The memory of ``buffer`` under another layout. ``relative``: the offset counts from where the tensor begins in
    its storage, which is not known of inputs, constants and what calls return.
    """

    buffer: str
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    offset: Size = 0
    relative: bool = False

    def __str__(self) -> str:
        begins = "its offset + " if self.relative else ""
        return f"{self.buffer}{list(self.shape)}@{list(self.strides)}+{begins}{self.offset}"


# -- rows that run before all others ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class ReadDevice:
    """``name`` is the GPU that the input ``source`` is on, or where there is none, the device of this name."""

    name: str
    device: str
    source: str | None = None

    def __str__(self) -> str:
        return f"device {self.name} is {f'that of {self.source}' if self.source else self.device}"


@dataclass(frozen=True)
class ReadSize:
    """A size that the graph leaves open: ``source.shape[dim]``, or ``source.stride()[dim]``."""

    name: str
    source: str
    dim: int
    stride: bool = False

    def __str__(self) -> str:
        return f"size {self.name} is {'stride' if self.stride else 'size'} {self.dim} of {self.source}"


@dataclass(frozen=True)
class MoveConstant:
    """A constant of the CPU goes where the graph runs."""

    name: str
    device: str

    def __str__(self) -> str:
        return f"move {self.name} to {self.device}"


# -- memory ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Alloc:
    """Memory for a buffer, on its device."""

    buffer: Buffer

    def __str__(self) -> str:
        return f"alloc {described(self.buffer)}"


@dataclass(frozen=True)
class Alias:
    """A buffer that is another one's memory. ``why``: for people. ``frees``: a buffer whose name ends with this."""

    name: str
    memory: str | Reinterpret
    why: str
    frees: str | None = None

    def __str__(self) -> str:
        return f"alias {self.name} = {self.memory}  # {self.why}"


@dataclass(frozen=True)
class Release:
    """Buffers that nothing reads any more."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"release {', '.join(self.names)}"


# -- calls -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Launch:
    """A call of a kernel with buffers and sizes. ``points``: along each axis of a GPU's grid, which is as many programs
    as have them all.
    """

    kernel: str
    buffers: tuple[str, ...]
    sizes: tuple[str, ...] = ()
    points: tuple[Size, ...] = ()
    note: str = ""

    @property
    def arguments(self) -> str:
        """What it is called with, as text."""
        points = "" if not self.points else f"{self.points[0]}" if len(self.points) == 1 else show_tuple(self.points)
        return ", ".join((*self.buffers, *self.sizes, *([f"points={points}"] if points else [])))

    def __str__(self) -> str:
        return f"launch {self.kernel}({self.arguments}){_comment(self.note)}"


@dataclass(frozen=True)
class LaunchGroup:
    """Kernels that run in one call: ``function``, whose arguments are theirs in turn."""

    function: str
    launches: tuple[Launch, ...]

    def __str__(self) -> str:
        return f"group {self.function}: {', '.join(f'{one.kernel}({one.arguments})' for one in self.launches)}"


@dataclass(frozen=True)
class CheckFailures:
    """Raise what eager would if the kernel before has met an index out of range."""

    def __str__(self) -> str:
        return "check failures"


@dataclass(frozen=True)
class Extern:
    """``results = function(*args, **kwargs)``. ``unpack``: it returns a tuple; ``out``: it is given the results."""

    function: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    results: tuple[str | None, ...]
    unpack: bool = False
    out: bool = False
    note: str = ""

    def __str__(self) -> str:
        arguments = ", ".join((*map(show, self.args), *(f"{name}={show(value)}" for name, value in self.kwargs)))
        results = ", ".join(name or "_" for name in self.results) if any(self.results) else ""
        left = f"{results} = " if results and not self.out else ""
        return f"call {left}{self.function}({arguments}){f' out {results}' if self.out else ''}{_comment(self.note)}"


@dataclass(frozen=True)
class EnsureLayout:
    """What a call returned, or a sub-graph was given, copied if it does not lie as the graph was compiled for."""

    buffer: Buffer

    def __str__(self) -> str:
        return f"ensure layout {described(self.buffer)}"


@dataclass(frozen=True)
class Copy:
    """From device to device, converted to the dtype of ``name``. One to the CPU waits for the GPU, as what follows may
    read the numbers; ``waits`` says whether the others do.
    """

    name: str
    source: str | Reinterpret
    waits: bool = True
    note: str = ""

    def __str__(self) -> str:
        return f"copy {self.source} to {self.name}{'' if self.waits else ' without waiting'}{_comment(self.note)}"


@dataclass(frozen=True)
class Return:
    """The results."""

    values: tuple[Any, ...]

    def __str__(self) -> str:
        return f"return {', '.join(map(show, self.values))}"


Head: TypeAlias = "ReadDevice | ReadSize | EnsureLayout | MoveConstant"
Row: TypeAlias = (
    "Alloc | Alias | Release | Launch | LaunchGroup | CheckFailures | Extern | ReadSize | EnsureLayout | Copy | Return"
)


@dataclass(frozen=True)
class LaunchPlan:
    """All that a wrapper says. ``inputs`` are tensors' buffers, or names of other values.

    ``kernels``: the functions it takes of each language's file; ``operators``: the short names that PyTorch's get;
    ``packed``: the kinds of frozen weights; ``graphs``: sub-graphs, ``constants``: tensors, ``generators``: what random
    numbers come from. ``sizes``: those left open. ``devices``: the names of the GPUs.
    """

    name: str
    inputs: tuple[Buffer | str, ...]
    head: tuple[Head, ...]
    rows: tuple[Row, ...]
    kernels: Mapping[str, tuple[str, ...]] = field(hash=False)
    operators: Mapping[str, str] = field(hash=False)
    packed: Mapping[str, str] = field(hash=False)
    graphs: tuple[str, ...]
    constants: Mapping[str, torch.Tensor] = field(hash=False)
    generators: Mapping[str, torch.Generator] = field(hash=False)
    sizes: tuple[str, ...]
    devices: Mapping[str, str] = field(hash=False)

    @property
    def checks(self) -> bool:
        """Whether a kernel may meet an index out of range."""
        return any(isinstance(row, CheckFailures) for row in self.rows)

    @property
    def handed(self) -> dict[str, Any]:
        """What who loads the wrapper sets in it."""
        return {n: value for n, value in self.constants.items() if not is_written_out(value)} | dict(self.generators)

    def __str__(self) -> str:
        names = [buffer.name if isinstance(buffer, Buffer) else buffer for buffer in self.inputs]
        lines = [f"plan {self.name}({', '.join(names)})"]
        lines += [f"  {language} kernels: {', '.join(functions)}" for language, functions in self.kernels.items()]
        lines += [f"  {name} is {full}" for name, full in self.operators.items()]
        lines += [f"  {name} packs weights: {kind}" for name, kind in self.packed.items()]
        lines += [f"  {name} is a sub-graph" for name in self.graphs]
        lines += [f"  {name} is a constant {value.dtype} {list(value.shape)}" for name, value in self.constants.items()]
        lines += [f"  {name} is a generator" for name in self.generators]
        return "\n".join((*lines, *(f"  {row}" for row in (*self.head, *self.rows)))) + "\n"


def described(buffer: Buffer) -> str:
    """A buffer's layout, and where it is if that is not the CPU."""
    where = "" if buffer.device == "cpu" else f" on {buffer.device}"
    return f"{buffer.name}: {buffer.dtype}{list(buffer.shape)} strides {list(buffer.strides)}{where}"


def show_tuple(values: Iterable[Any]) -> str:
    """A tuple as Python has it."""
    shown = [str(value) for value in values]
    return f"({', '.join(shown)}{',' if len(shown) == 1 else ''})"


def _comment(note: str) -> str:
    return f"  # {note}" if note else ""
