"""What loops come to, by PyTorch's operators: the text of ``forward.fused`` and numbers in memory in, numbers out.

    program = read(text)                                                       # of forward.fused
    memory = Memory({"x": torch.randn(51200), "softmax": torch.empty(51200)})  # of the kernel's buffers, flat
    evaluate(program.kernels["softmax"], memory, {"s0": 512})

A kernel's loops run in turn, each operation for all points at once. Addresses and sizes in the text are Python. What
lives within a row is not rounded to what memory would hold, as in kernels. This knows nothing of schedules and of
generated code, so it is what both can be held against.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, nan
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..records.index_errors import OF_CPUS_ALONE

Sizes = Mapping[str, int]
"""The values of sizes that a graph leaves open, by their names."""


# -- the table -------------------------------------------------------------------------------------------------------
def _div(a: Tensor, b: Tensor) -> Tensor:
    return torch.div(a, b, rounding_mode=None if a.is_floating_point() else "trunc")


def _bound(index: Tensor, size: Tensor, error: Tensor, dim: Tensor) -> Tensor:
    """The index. Raises IndexError where it is out of range, but for what a GPU lets pass: there it is 0."""
    within = (index >= 0) & (index < size)
    if int(error.flatten()[0]) not in OF_CPUS_ALONE and not bool(within.all()):
        raise IndexError("an index out of range")
    return torch.where(within, index, 0)


SAME_NAME = (
    "add sub mul fmod minimum maximum pow atan2 eq ne lt le gt ge copysign hypot nextafter neg abs exp exp2 expm1 log "
    "log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc sigmoid floor "
    "ceil trunc round isnan isinf lgamma sign where"
)
OPERATIONS: dict[str, Callable[..., Tensor]] = {
    **{name: getattr(torch, name) for name in SAME_NAME.split()},
    "div": _div,
    "floordiv": torch.floor_divide,
    "mod": torch.remainder,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "not": torch.bitwise_not,
    "shl": torch.bitwise_left_shift,
    "shr": torch.bitwise_right_shift,
    "ndtr": torch.special.ndtr,
    "cast": lambda a: a,  # as every result it is converted to the dtype that the text says
    "fma": lambda a, b, c: a * b + c,
    "bound": _bound,
}
"""A row for each of ``records.loops.OPS``."""

REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "sum": torch.sum, "prod": torch.prod, "max": torch.amax, "min": torch.amin, "any": torch.any, "all": torch.all,
}  # fmt: skip
OF_NOTHING = {"max": -inf, "min": inf}
"""What torch's reductions refuse to say: the extremes of no elements, which softmax takes."""
SCANS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "sum": torch.cumsum,
    "prod": torch.cumprod,
    "max": lambda value, dim: torch.cummax(value, dim).values,
    "min": lambda value, dim: torch.cummin(value, dim).values,
    "logaddexp": torch.logcumsumexp,
}


# -- the text --------------------------------------------------------------------------------------------------------
class Declared(NamedTuple):
    """A buffer as the text declares it; shape and strides may be of sizes left open."""

    dtype: str
    shape: str
    strides: str

    def extent(self, sizes: Sizes) -> int:
        """Elements from the first address to the last."""
        shape, strides = _numbers(self.shape, sizes), _numbers(self.strides, sizes)
        return 0 if 0 in shape else 1 + sum((d - 1) * s for d, s in zip(shape, strides))


@dataclass(frozen=True)
class LoopText:
    """A loop: its dimensions, those that it reduces with "reduce" before them, and the lines of its body."""

    name: str
    dims: tuple[str, ...]
    body: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class KernelText:
    """A kernel: its loops, and the buffers that are in no memory."""

    name: str
    local: frozenset[str]
    loops: list[LoopText] = field(default_factory=list)

    @property
    def bases(self) -> dict[str, str]:
        """Buffers of which only some elements are written, and those that are the same memory before."""
        stores = (store for loop in self.loops for store in _statements(loop, "store"))
        return {store["buffer"]: store["base"] for store in stores if store["base"]}

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(name for name in self._made() if name not in self.local)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The buffers that it is called with: those that it reads, then those that it writes."""
        made = self._made()
        read = (n for loop in self.loops for n in (*_names(loop, "load", "buffer"), *_names(loop, "store", "base")))
        return (*dict.fromkeys(name for name in read if name not in made), *self.writes)

    def _made(self) -> dict[str, None]:
        return dict.fromkeys(name for loop in self.loops for name in _names(loop, "store", "buffer"))


def _statements(loop: LoopText, kind: str) -> Iterator[dict[str, str]]:
    return (found.groupdict() for line in loop.body if (found := STATEMENTS[kind].fullmatch(line)))


def _names(loop: LoopText, kind: str, group: str) -> list[str]:
    return [said[group] for said in _statements(loop, kind) if said[group]]


@dataclass(frozen=True)
class Program:
    """The buffers and kernels of a ``forward.fused``, by their names."""

    buffers: dict[str, Declared] = field(default_factory=dict)
    kernels: dict[str, KernelText] = field(default_factory=dict)


_BUFFER = re.compile(r"  (\w+): (\w+)\[(.*)\] strides \[(.*)\] \(\w+\)")
_KERNEL = re.compile(r"  kernel (\w+) rows \[.*?\] inner \[.*?\](?: local (.*))?.*:")
_LOOP = re.compile(r"      loop (\w+) over \[(.*)\]:")
_COMMA = re.compile(r", (?![^(]*\))")  # but for those of max(a, b)
STATEMENTS = {
    kind: re.compile(pattern)
    for kind, pattern in {
        "load": r"(?P<result>\w+) = load (?P<buffer>\w+)\[(?P<address>.+?)\]"
        r"(?: where (?P<mask>\w+) else (?P<other>\S+))? : (?P<dtype>\w+)",
        "const": r"(?P<result>\w+) = const (?P<value>\S+) : (?P<dtype>\w+)",
        "index": r"(?P<result>\w+) = index (?P<address>.+) : (?P<dtype>\w+)",
        "reduce": r"(?P<result>\w+) = reduce_(?P<kind>\w+) (?P<arg>\w+) : (?P<dtype>\w+)",
        "scan": r"(?P<result>\w+) = scan_(?P<kind>\w+) (?P<arg>\w+) along (?P<line>.+) : (?P<dtype>\w+)",
        "store": r"(?P<verb>store|add) (?P<buffer>\w+)\[(?P<address>.+?)\] (?P<arg>\w+)(?: onto (?P<base>\w+))?",
        "compute": r"(?P<result>\w+) = (?P<operation>\w+) (?P<args>[\w ]+) : (?P<dtype>\w+)",
    }.items()
}


def read(text: str) -> Program:
    """A graph's kernels from the text of ``records.kernels.FusedGraph``. Lines of other kinds say nothing of them."""
    program = Program()
    lines: list[str] = []
    loops: list[LoopText] = []
    for line in text.splitlines():
        if found := _BUFFER.fullmatch(line):
            program.buffers[found[1]] = Declared(*found.groups()[1:])
        elif found := _KERNEL.fullmatch(line):
            local = (word for word in (found[2] or "").split(", ") if " " not in word)  # others say what is in place
            kernel = KernelText(found[1], frozenset(local))
            program.kernels[kernel.name], loops = kernel, kernel.loops
        elif found := _LOOP.fullmatch(line):
            loop = LoopText(found[1], tuple(_COMMA.split(found[2])) if found[2] else ())
            loops.append(loop)
            lines = loop.body
        elif line.startswith(10 * " "):
            lines.append(line.strip())
    return program


def number(text: str, sizes: Sizes) -> int:
    """The value of a size."""
    return int(eval(text, {}, dict(sizes)))


def _numbers(text: str, sizes: Sizes) -> list[int]:
    return [number(one, sizes) for one in _COMMA.split(text)] if text else []


# -- numbers ---------------------------------------------------------------------------------------------------------
class Memory:
    """Buffers by name, each all of its elements in a row, and which elements were read and written.

    ``bases``: buffers that are other ones' memory from the start.
    """

    def __init__(self, buffers: Mapping[str, Tensor], bases: Mapping[str, str] | None = None) -> None:
        self.flat = {**buffers, **{name: buffers[base] for name, base in (bases or {}).items()}}
        self.read = {name: torch.zeros_like(flat, dtype=torch.bool) for name, flat in buffers.items()}
        self.written = {name: torch.zeros_like(flat, dtype=torch.bool) for name, flat in buffers.items()}

    def load(self, buffer: str, address: Tensor) -> Tensor:
        """The elements there. Raises IndexError."""
        self._check(buffer, address)
        if buffer in self.read:
            self.read[buffer][address] = True
        return self.flat[buffer][address]

    def store(self, buffer: str, address: Tensor, value: Tensor, add: bool) -> None:
        """Write elements, or add to them. A buffer that is new here is within a row: it keeps the value's dtype."""
        if buffer not in self.flat:
            length = 1 + int(address.max()) if address.numel() else 0
            self.flat[buffer] = torch.zeros(length, dtype=value.dtype, device=value.device)
        self._check(buffer, address)
        flat = self.flat[buffer]
        address, value = torch.broadcast_tensors(address, value.to(flat.dtype))
        flat.index_put_((address,), value, accumulate=add)
        if buffer in self.written:
            self.written[buffer][address] = True

    def moved(self) -> int:
        """Bytes that were read and written, each element once; what was made here need not be read."""
        touched = {name: int((read | self.written[name]).sum()) for name, read in self.read.items()}
        return sum(count * self.flat[name].element_size() for name, count in touched.items())

    def _check(self, buffer: str, address: Tensor) -> None:
        length = self.flat[buffer].numel()
        if address.numel() and not (int(address.min()) >= 0 and int(address.max()) < length):
            raise IndexError(f"an address outside the {length} elements of {buffer}")


def evaluate(kernel: KernelText, memory: Memory, sizes: Sizes) -> None:
    """Run a kernel's loops on memory of all its buffers but the local ones. Raises IndexError at a wrong address,
    NotImplementedError for loops that draw random numbers.
    """
    device = next(iter(memory.flat.values())).device
    for loop in kernel.loops:
        dims = [number(one.removeprefix("reduce "), sizes) for one in loop.dims]
        if not any(size == 0 and not one.startswith("reduce ") for one, size in zip(loop.dims, dims)):
            _Evaluation(loop, dims, memory, sizes, device).run()


class _Evaluation:
    """One loop. Values have a dimension for each of the loop's, of size 1 where they do not vary along it."""

    def __init__(self, loop: LoopText, dims: list[int], memory: Memory, sizes: Sizes, device: torch.device) -> None:
        self.loop, self.dims, self.memory, self.sizes, self.device = loop, dims, memory, sizes, device
        self.rank = range(len(dims))
        self.reduced = [k for k in self.rank if loop.dims[k].startswith("reduce ")]
        counters = {f"i{k}": torch.arange(dims[k], device=device).view(self._along(k)) for k in self.rank}
        self.values: dict[str, Tensor] = counters

    def run(self) -> None:
        for line in self.loop.body:
            matched = ((kind, m) for kind, p in STATEMENTS.items() if (m := p.fullmatch(line)))
            kind, found = next(matched, (None, None))
            if kind is None or found is None:
                raise NotImplementedError(f"`{line}`, which is nothing that buffers say")
            said = found.groupdict()
            if kind == "store":
                self._store(**said)
            else:
                result, dtype = said.pop("result"), said.pop("dtype")
                self.values[result] = getattr(self, f"_{kind}")(**said).to(getattr(torch, dtype))

    def _along(self, dim: int) -> list[int]:
        return [-1 if k == dim else 1 for k in self.rank]

    def _address(self, text: str) -> Tensor:
        names: dict[str, Any] = {**self.sizes, **self.values}
        found = torch.as_tensor(eval(text, {}, names), device=self.device).long()
        return found if found.dim() else found.view((1,) * len(self.dims))

    def _load(self, buffer: str, address: str, mask: str | None, other: str | None) -> Tensor:
        where = self._address(address)
        if mask is None:
            return self.memory.load(buffer, where)
        there, instead = self.values[mask], self._const(other or "0")
        if not self.memory.flat[buffer].numel():
            return instead
        found = self.memory.load(buffer, torch.where(there, where, 0))
        return torch.where(there, found, instead.to(found.dtype))

    def _const(self, value: str) -> Tensor:
        number = eval(value, {"nan": nan, "inf": inf})
        return torch.full((1,) * len(self.dims), number, device=self.device, dtype=_exact(number))

    def _index(self, address: str) -> Tensor:
        return self._address(address)

    def _compute(self, operation: str, args: str) -> Tensor:
        return OPERATIONS[operation](*(self.values[name] for name in args.split()))

    def _reduce(self, kind: str, arg: str) -> Tensor:
        value = self.values[arg]
        value = value.expand([d if k in self.reduced else -1 for k, d in enumerate(self.dims)])
        for dim in self.reduced:
            if value.shape[dim] == 0 and kind in OF_NOTHING:
                value = value.new_full([1 if k == dim else d for k, d in enumerate(value.shape)], OF_NOTHING[kind])
            value = REDUCTIONS[kind](value, dim, keepdim=True)
        return value

    def _scan(self, kind: str, arg: str, line: str) -> Tensor:
        """Along the dimensions of a line as one, the slowest first; backwards along those with a negative stride."""
        strides = [self._stride(line, k) if d != 1 else 0 for k, d in enumerate(self.dims)]
        along = sorted((k for k in self.rank if strides[k] != 0), key=lambda k: -abs(strides[k]))
        value = self.values[arg].expand(self.dims)
        if not along:
            return value
        backwards, order = [k for k in along if strides[k] < 0], [*(k for k in self.rank if k not in along), *along]
        turned = value.flip(backwards).permute(order)
        lines = turned.flatten(len(self.dims) - len(along))
        scanned = SCANS[kind](lines.int() if lines.dtype == torch.bool else lines, -1).view(turned.shape)
        return scanned.permute([order.index(k) for k in self.rank]).flip(backwards)

    def _stride(self, line: str, dim: int) -> int:
        counters = {f"i{k}": int(k == dim) for k in self.rank}
        return number(line, {**self.sizes, **counters}) - number(line, {**self.sizes, **dict.fromkeys(counters, 0)})

    def _store(self, verb: str, buffer: str, address: str, arg: str, base: str | None) -> None:
        where, value = self._address(address), self.values[arg]
        if base is not None:  # every point writes, where computed values lead it
            where = where.expand([1 if k in self.reduced else d for k, d in enumerate(self.dims)])
        self.memory.store(buffer, where, value, verb == "add")


def _exact(number: Any) -> torch.dtype:
    """The dtype that holds any number of its kind."""
    kinds = {bool: torch.bool, int: torch.int64, float: torch.float64}
    return kinds[type(number)]
