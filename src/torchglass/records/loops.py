"""The loop IR: what an ATen graph becomes before it is fused and printed as C or Triton.

A graph is a list of nodes in order. A node is a ``Loop`` (an explicit nest with a straight-line body) or an
``ExternCall`` (an ATen call kept as it is). Views never appear as nodes: an access says by strides what it reads.
The whole of ``y = x.t() + 1`` for ``x`` of shape (2, 3)::

    loop y over [3, 2]:
        t0 = load x[i0 + 3*i1] : float32
        t1 = const 1.0 : float32
        t2 = add t0 t1 : float32
        store y[2*i0 + i1] t2

Sizes, strides and offsets are ``Size``: ints where they are known, expressions in symbols where not (``sizes``).
Bodies are tuples of frozen operations in single-assignment form, so loops hash, compare and print.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, TypeAlias

from ..process.cached import cached_property
from .origin import UNKNOWN, Origin
from .sizes import Expr, Size, at_least, hint, maximum, product, symbol_name, symbols, text

ITEM_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "bfloat16": 2, "float16": 2, "int16": 2}


def item_bytes(dtype: str) -> int:
    """Bytes of one element in memory."""
    return ITEM_BYTES.get(dtype, 1)


HALF = frozenset({"bfloat16", "float16"})
"""Floats that bodies compute with as float32, and round where they are stored."""


def compute_dtype(dtype: str) -> str:
    """The dtype that numbers in memory of this dtype have in a body."""
    return "float32" if dtype in HALF else dtype


@dataclass(frozen=True)
class Access:
    """The address of one element: ``offset + sum(strides[k] * i_k) + sum(value * stride)`` in elements of ``buffer``.

    ``strides`` has one entry per dimension of the loop (0: not moved by it). ``indirect`` adds computed integer
    values of the body, as (value, stride): that is how gathers and embeddings read.
    """

    buffer: str
    strides: tuple[Size, ...]
    offset: Size = 0
    indirect: tuple[tuple[str, Size], ...] = ()

    def __str__(self) -> str:
        return f"{self.buffer}[{address(self.strides, self.offset, self.indirect)}]"

    def touched(self, dims: Sequence[Size]) -> int:
        """About how many elements it touches in a loop over ``dims``, beside where computed values lead it."""
        return hint(product(d for s, d in zip(self.strides, dims) if s != 0))


def address(
    strides: tuple[Size, ...], offset: Size = 0, indirect: tuple[tuple[str, Size], ...] = (), language: str = "python"
) -> str:
    """The same as text, e.g. ``256*i0 + i1 + 3``, without the cost of building an expression."""
    terms = [_term(f"i{k}", s, language) for k, s in enumerate(strides) if s != 0]
    terms += [_term(v, s, language) for v, s in indirect]
    if offset != 0 or not terms:
        terms.append(text(offset, language))
    return " + ".join(terms).replace("+ -", "- ")


def _term(name: str, stride: Size, language: str) -> str:
    return name if stride == 1 else f"{text(stride, language)}*{name}"


@dataclass(frozen=True)
class Load:
    """``result = buffer[...]`` converted to ``dtype``; where ``mask`` is false, ``other``, and nothing is read."""

    result: str
    access: Access
    dtype: str
    mask: str | None = None
    other: float | int | bool = 0

    def __str__(self) -> str:
        mask = f" where {self.mask} else {self.other}" if self.mask else ""
        return f"{self.result} = load {self.access}{mask} : {self.dtype}"


@dataclass(frozen=True)
class Const:
    """A number. float('nan'), inf and -inf are allowed for floating dtypes."""

    result: str
    value: float | int | bool
    dtype: str

    def __str__(self) -> str:
        return f"{self.result} = const {self.value!r} : {self.dtype}"


@dataclass(frozen=True)
class Index:
    """``result = offset + sum(strides[k] * i_k)``: an integer computed from the loop's own counters."""

    result: str
    strides: tuple[Size, ...]
    offset: Size
    dtype: str = "int64"

    def __str__(self) -> str:
        return f"{self.result} = index {address(self.strides, self.offset)} : {self.dtype}"


@dataclass(frozen=True)
class Scalar:
    """``result = buffer[position]`` of a buffer of numbers, which the kernel is handed by value."""

    result: str
    buffer: str
    position: int
    dtype: str

    def __str__(self) -> str:
        return f"{self.result} = scalar {self.buffer}[{self.position}] : {self.dtype}"


@dataclass(frozen=True)
class Compute:
    """``result = op(*args)``, element by element. ``op`` names a row of ``OPS``."""

    result: str
    op: str
    args: tuple[str, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.result} = {self.op} {' '.join(self.args)} : {self.dtype}"


@dataclass(frozen=True)
class Reduce:
    """``result = kind`` of ``arg`` over the loop's reduced dimensions; what follows sees one value per kept point."""

    result: str
    kind: str
    arg: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.result} = reduce_{self.kind} {self.arg} : {self.dtype}"


@dataclass(frozen=True)
class Scan:
    """``result = kind`` of ``arg`` at this point and all before it on its line, as a cumulative sum has it.

    ``strides`` say what a line is and in which order it is walked, as an ``Index`` would count its points: 0 along
    dimensions that tell lines apart; ``8*i1 + i2`` where a line of 8*n points has been split in two dimensions.
    """

    result: str
    kind: str
    arg: str
    strides: tuple[Size, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.result} = scan_{self.kind} {self.arg} along {address(self.strides)} : {self.dtype}"


@dataclass(frozen=True)
class Store:
    """``buffer[...] = arg`` converted to the buffer's dtype.

    At computed addresses only some elements are written, perhaps several times: the others keep what ``base`` holds, a
    buffer that is the same memory under the name it had before. ``add``: to what is there.
    """

    access: Access
    arg: str
    base: str | None = None
    add: bool = False

    def __str__(self) -> str:
        base = f" onto {self.base}" if self.base is not None else ""
        return f"{'add' if self.add else 'store'} {self.access} {self.arg}{base}"


Operation: TypeAlias = "Load | Const | Index | Scalar | Compute | Reduce | Scan | Store"

# op -> number of arguments. Comparisons and logic yield bool; `cast` converts as C does; `floordiv` and `mod` round
# as Python does; minimum and maximum propagate NaN. Math is that of the result's dtype.
OPS: dict[str, int] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "floordiv", "mod", "fmod", "minimum", "maximum", "pow", "atan2"), 2),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "shl", "shr"), 2),
    **dict.fromkeys(("copysign", "hypot", "nextafter"), 2),
    **dict.fromkeys(("neg", "abs", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt"), 1),
    **dict.fromkeys(("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh"), 1),
    **dict.fromkeys(("atanh", "erf", "erfc", "sigmoid", "ndtr", "floor", "ceil", "trunc", "round", "not", "isnan"), 1),
    **dict.fromkeys(("cast", "lgamma", "isinf", "sign"), 1),
    "where": 3,
    "fma": 3,
    "bound": 4,  # index, size, row of INDEX_ERRORS, dimension: the index, or 0 where it is out of range
    "philox": 6,  # place, place row by row, threads, and what ``philox.DRAW`` names: a number of (0, 1], by lower/cuda
}
BOOL_OPS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf"})
REDUCTIONS = ("sum", "prod", "max", "min", "any", "all")
SCANS = ("sum", "prod", "max", "min", "logaddexp")  # once max or min met NaN, it stays


@dataclass(frozen=True)
class Loop:
    """A nest over ``dims``; where ``reduced[k]`` the dimension is summed (or otherwise reduced) away.

    ``body`` runs once per point; what follows a ``Reduce`` runs once per kept point. ``ops`` and ``origins`` tell which
    ATen operations and user lines it stands for.
    """

    name: str
    dims: tuple[Size, ...]
    reduced: tuple[bool, ...]
    body: tuple[Operation, ...]
    ops: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = ()

    @property
    def ranges(self) -> tuple[Size, ...]:
        return tuple(d for d, r in zip(self.dims, self.reduced) if not r)

    @property
    def reduce_ranges(self) -> tuple[Size, ...]:
        return tuple(d for d, r in zip(self.dims, self.reduced) if r)

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        return tuple(o for o in self.body if isinstance(o, Load))

    @cached_property
    def stores(self) -> tuple[Store, ...]:
        return tuple(o for o in self.body if isinstance(o, Store))

    @cached_property
    def scalars(self) -> tuple[Scalar, ...]:
        return tuple(o for o in self.body if isinstance(o, Scalar))

    @cached_property
    def scanned(self) -> tuple[bool, ...]:
        """The dimensions along which a value is carried from point to point."""
        lines = [o.strides for o in self.body if isinstance(o, Scan)]
        return tuple(d != 1 and any(line[k] != 0 for line in lines) for k, d in enumerate(self.dims))

    @cached_property
    def is_scan(self) -> bool:
        return any(isinstance(o, Scan) for o in self.body)

    @cached_property
    def reads(self) -> tuple[str, ...]:
        given = (o.access.buffer for o in self.loads), (o.buffer for o in self.scalars)
        return tuple(dict.fromkeys((*chain(*given), *(o.base for o in self.stores if o.base is not None))))

    @cached_property
    def writes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(o.access.buffer for o in self.stores))

    @cached_property
    def mentioned(self) -> tuple[Size, ...]:
        """The sizes that its body mentions: where it reads and writes, what places are checked against."""
        accesses = (o.access for o in self.body if isinstance(o, (Load, Store)))
        moved = ((*a.strides, a.offset, *(size for _, size in a.indirect)) for a in accesses)
        counted = ((*o.strides, o.offset) for o in self.body if isinstance(o, Index))
        return tuple(chain(*moved, *counted))

    @cached_property
    def main_access(self) -> Access | None:
        """The access that moves along most of the loop's dimensions."""
        accesses = [o.access for o in self.stores] + [o.access for o in self.loads]
        return max(accesses, key=lambda a: sum(s != 0 and d != 1 for s, d in zip(a.strides, self.dims)), default=None)

    @cached_property
    def contiguous(self) -> int | None:
        """The dimension along which that access walks memory in the smallest steps."""
        strides = self.main_access.strides if self.main_access is not None else ()
        moving = [(s, k) for k, (s, d) in enumerate(zip(strides, self.dims)) if s != 0 and d != 1]
        return min(moving, key=lambda m: (abs(hint(m[0])), m[0] != 1))[1] if moving else None

    @cached_property
    def is_scatter(self) -> bool:
        """Whether it stores at computed addresses: its points run in order where the address has no stride."""
        return any(o.access.indirect for o in self.stores)

    @cached_property
    def is_reduction(self) -> bool:
        return any(self.reduced)

    def __str__(self) -> str:
        dims = ", ".join(f"reduce {d}" if r else str(d) for d, r in zip(self.dims, self.reduced))
        return "\n".join((f"loop {self.name} over [{dims}]:", *(f"    {o}" for o in self.body)))


@dataclass(frozen=True)
class Buffer:
    """Memory a node writes or the caller brings. ``role``: input, temp, or constant (a tensor baked into the graph);
    or numbers, a tuple of Python's integers that a call returned, which kernels are handed by value (``Scalar``).

    ``alias_of``: another buffer, and the element of it at which this one begins, for the parts of a whole.
    """

    name: str
    dtype: str
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    role: str = "temp"
    device: str = "cpu"
    alias_of: tuple[str, Size] | None = None

    @property
    def numel(self) -> Size:
        return product(self.shape)

    @cached_property
    def extent(self) -> Size:
        return reach(self.shape, self.strides)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)} strides {list(self.strides)} ({self.role})"


def reach(shape: tuple[Size, ...], strides: tuple[Size, ...]) -> Size:
    """Elements from the first address to the last."""
    if 0 in shape:
        return 0
    last: Size = 1
    for size, stride in zip(shape, strides):
        if stride != 0:
            last = last + size * stride - stride
    return maximum(last, 0)  # a size that is not known may be none


def perhaps_none(buffer: Buffer, dims: Iterable[Size]) -> list[Size]:
    """Those of some dimensions which must not be 0 where one number of the buffer is read for all of their points: a
    tensor without elements has no memory, also one that lies as if it were a single number many times.
    """
    if all(at_least(size, 1) for size in buffer.shape):
        return []
    return [size for size in dict.fromkeys(dims) if not at_least(size, 1)]


@dataclass(frozen=True)
class View:
    """A strided look at a buffer: ``shape``, ``strides`` and ``offset`` in elements from the buffer's first element."""

    buffer: str
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    offset: Size = 0

    def __str__(self) -> str:
        return f"{self.buffer}{list(self.shape)}@{list(self.strides)}+{self.offset}"


@dataclass(frozen=True)
class Value:
    """A Python value an earlier extern call returned or the caller brought (an int, say); by its name."""

    name: str


@dataclass(frozen=True)
class ExternCall:
    """``target(*args, **kwargs)`` by ATen. Arguments hold Views, Values, constants, and lists or tuples of them.

    ``outputs``: the buffer (or Value name, or None) of each result; a single result that is no tuple has ``unpack``
    False. ``out``: call the ``out=`` overload of the same operator into buffers that we allocate. ``aliases``: results
    may be views of arguments. ``effect``: it must run even when nothing reads its results.
    """

    name: str
    target: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    outputs: tuple[str | None, ...]
    unpack: bool = False
    out: bool = False
    aliases: bool = False
    effect: bool = False
    ops: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = ()

    @cached_property
    def reads(self) -> tuple[str, ...]:
        found: dict[str, None] = {}
        collect_buffers((self.args, tuple(v for _, v in self.kwargs)), found)
        return tuple(found)

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(o for o in self.outputs if o is not None)

    @cached_property
    def sizes(self) -> tuple[Size, ...]:
        """The sizes among the arguments."""
        found: list[Size] = []
        _collect_sizes((self.args, tuple(v for _, v in self.kwargs)), found)
        return tuple(found)

    def __str__(self) -> str:
        args = [show(a) for a in self.args] + [f"{k}={show(v)}" for k, v in self.kwargs]
        return f"extern {', '.join(str(o) for o in self.outputs)} = {self.target}({', '.join(args)})"


Node: TypeAlias = "Loop | ExternCall"


@dataclass(frozen=True)
class LoopGraph:
    """A whole ATen graph in loops. ``inputs`` in call order; ``outputs`` are Views, Values or constants (None, 3).

    ``notes``: what was decided about the graph as a whole, for people. ``updates``: pairs of a buffer that is returned
    and the input that the caller copies it into. ``elements``: what is assumed to be at most ``MOST_ELEMENTS``
    (``index_range``), None where nothing is. ``called``: by another graph, on operands that may lie otherwise than
    those it was traced with.
    """

    name: str
    inputs: tuple[str, ...]
    buffers: dict[str, Buffer] = field(hash=False)
    nodes: tuple[Node, ...]
    outputs: tuple[Any, ...]
    constants: dict[str, Any] = field(default_factory=dict, hash=False)
    origin: Origin = UNKNOWN
    notes: tuple[str, ...] = ()
    updates: tuple[tuple[str, str], ...] = ()
    elements: Size | None = None
    called: bool = False

    def __str__(self) -> str:
        lines = [f"graph {self.name}({', '.join(self.inputs)})", *(f"  # {note}" for note in self.notes)]
        lines += [f"  {b}" for b in self.buffers.values()]
        for node in self.nodes:
            lines += ["", *(f"  # {o}" for o in node.origins[:1] if o is not UNKNOWN)]
            lines += [f"  {line}" for line in str(node).splitlines()]
        lines += ["", f"return {', '.join(show(o) for o in self.outputs)}", ""]
        return "\n".join(lines)


def collect_buffers(value: Any, found: dict[str, None]) -> None:
    """Add to ``found`` the buffers and value names mentioned anywhere in an argument structure, in order."""
    if isinstance(value, View):
        found[value.buffer] = None
    elif isinstance(value, Value):
        found[value.name] = None
    elif isinstance(value, (tuple, list)):
        for item in value:
            collect_buffers(item, found)


def _collect_sizes(value: Any, found: list[Size]) -> None:
    if isinstance(value, View):
        found += (*value.shape, *value.strides, value.offset)
    elif isinstance(value, Expr):
        found.append(value)
    elif isinstance(value, (tuple, list)):
        for item in value:
            _collect_sizes(item, found)


def sizes_of_calls(graph: LoopGraph) -> dict[str, tuple[str, int]]:
    """The symbols that data decide, which no input tells: the result of a call that has it, and in which dimension."""
    buffers = graph.buffers
    wanted = set(symbols(size for b in buffers.values() for size in (*b.shape, *b.strides)))
    for name in graph.inputs:
        if name in buffers:
            wanted -= {symbol_name(size) for size in (*buffers[name].shape, *buffers[name].strides)}
    found: dict[str, tuple[str, int]] = {}
    for node in graph.nodes if wanted else ():
        for name in node.writes if isinstance(node, ExternCall) and not node.out else ():
            for dim, size in enumerate(buffers[name].shape if name in buffers else ()):
                if (symbol := symbol_name(size)) in wanted and symbol is not None:
                    found.setdefault(symbol, (name, dim))
    return found


def show(value: Any) -> str:
    """One argument as text."""
    if isinstance(value, Value):
        return value.name
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(show(v) for v in value)}]"
    return str(value)


def rename_dims(loop: Loop, dims: tuple[Size, ...], reduced: tuple[bool, ...], move: Any) -> Loop:
    """The loop over new ``dims``; ``move`` maps a tuple of old strides to the tuple of new ones."""
    known: dict[tuple[Size, ...], tuple[Size, ...]] = {}

    def new(strides: tuple[Size, ...]) -> tuple[Size, ...]:
        if strides not in known:
            known[strides] = move(strides)
        return known[strides]

    def moved(op: Operation) -> Operation:  # by constructors: each loop is moved at each join that is tried
        if isinstance(op, Load):
            return Load(op.result, _moved(op.access, new), op.dtype, op.mask, op.other)
        if isinstance(op, Store):
            return Store(_moved(op.access, new), op.arg, op.base, op.add)
        return replace(op, strides=new(op.strides)) if isinstance(op, (Index, Scan)) else op

    return Loop(loop.name, dims, reduced, tuple(map(moved, loop.body)), loop.ops, loop.origins)


def _moved(access: Access, new: Callable[[tuple[Size, ...]], tuple[Size, ...]]) -> Access:
    return Access(access.buffer, new(access.strides), access.offset, access.indirect)
