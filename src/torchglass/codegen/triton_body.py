"""Loop bodies as Triton statements on blocks.

A kernel computes on a tile of axes (``GpuMapping``): ``x`` runs over rows, or over all points where nothing is carried
along rows; ``r`` runs along a row, and a reduction or a scan of a row is one over axis 1. Every value knows along which
axes it varies: one of rows that varies along ``x`` alone is a block of shape [XBLOCK, 1], and Triton broadcasts.

Statements go to the sections of a pass over a row: ``PRE`` (before it), ``BODY`` (for each block of the row), ``POST``
(after it). Where a whole row fits the tile the three are one list.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..records.loops import (
    HALF,
    Access,
    Buffer,
    Compute,
    Const,
    Index,
    Load,
    Loop,
    Operation,
    Reduce,
    Scalar,
    Scan,
    Store,
    address,
    compute_dtype,
    perhaps_none,
)
from ..records.schedule import GpuMapping, Schedule
from ..records.sizes import Size, at_most, divides, is_known, magnitude
from ..records.sizes import text as size_text
from ..records.triton_support import ATOMIC_SUMS, TYPES
from .triton_ops import CONSTANT, INFIX, CannotPrint, combine, literal, neutral, reduced, scanned, triton_op
from .triton_philox import drawn_in_fours

FOURS = "fours"
"""The counter of every fourth column."""
PRE, BODY, POST = 0, 1, 2
PLAIN = frozenset({"float32", "float64", "int64", "int32"})  # dtypes whose literals may stand beside an infix operator


@dataclass(frozen=True)
class Value:
    """A Triton expression (a name, or a literal number), its dtype, the axes along which it varies, and its section."""

    text: str
    dtype: str
    axes: frozenset[str]
    level: int
    is_literal: bool = False


class Tile:
    """What the axes of a mapping are called: ``axis[k]`` has dimension k, ``masks`` are conditions of ragged axes.

    ``columns`` is the axis that runs along the block's second dimension, ``rows`` the one along its first (in a
    persistent kernel the rows that a program walks; the axis of programs has one element then). ``walked``: the axis
    that is walked block by block. ``fours``: the dimension of columns, if four neighbours are always in one block.
    """

    def __init__(self, mapping: GpuMapping, masked: bool = True) -> None:
        axes = mapping.axes
        by_dim = {k: axis.name for axis in axes for k in axis.dims}
        self.axis = tuple(by_dim[k] for k in sorted(by_dim))
        self.counters = {a.name: f"i{a.dims[0]}" if len(a.dims) == 1 else a.name for a in axes}
        self.masks = {a.name: f"{a.name}mask" for a in axes if a.is_ragged and masked}
        self.walked = mapping.walked.name if mapping.walked is not None else None
        self.looped, self.wide = mapping.looped, mapping.index_bits == 64
        self.columns = mapping.columns.name
        self.side_by_side = frozenset(a.name for a in axes) - {self.columns}
        self.rows = max(self.side_by_side, key=lambda name: (name == self.walked, name), default="x")
        self.is_flat = len(axes) == 1 and axes[0].kind == "parallel"
        self.unit = "[1]" if self.is_flat else "[1, 1]"
        columns = mapping.columns
        self.fours = columns.dims[0] if len(columns.dims) == 1 and columns.block % 4 == 0 else None

    def side(self, name: str) -> str:
        """The subscript that lays a range along the axis's dimension of a block."""
        return "" if self.is_flat else "[None, :]" if name == self.columns else "[:, None]"

    def shape(self, axes: Collection[str]) -> str:
        """Of a block of rows that varies along ``axes``."""
        sizes = (f"{name.upper()}BLOCK" if name in axes else "1" for name in (self.rows, self.columns))
        return f"[{', '.join(sizes)}]"


class BodyPrinter:
    """Writes the loops of one kernel on one tile; knows what earlier loops have stored. ``first`` numbers the first
    name.
    """

    def __init__(self, schedule: Schedule, buffers: dict[str, Buffer], masked: bool = True, first: int = 0) -> None:
        self.schedule, self.buffers, self.tile = schedule, buffers, Tile(schedule.mapping, masked)
        self.count = first
        self.values: dict[str, Value] = {}  # what each buffer written here holds at the point
        self.seen: dict[object, Value] = {}
        self.read = {b for loop in schedule.loops for b in loop.reads}
        self.packed = schedule.mapping.packed
        self.raw: dict[str, Value] = {}  # blocks of a row as they were loaded, by the text that loads them
        self.begin_pass()

    def begin_pass(self) -> None:
        """Empty sections; values that vary along a row are forgotten if the row is walked block by block."""
        body: list[str] = []
        self.sections = ([], [], []) if self.tile.walked else (body, body, body)
        for known in (self.values, self.seen):
            for key, value in list(known.items()):
                if self.tile.walked in value.axes:
                    del known[key]  # type: ignore[arg-type]
                else:
                    known[key] = Value(value.text, value.dtype, value.axes, PRE, value.is_literal)  # type: ignore[index]

    def convert_again(self) -> None:
        """Forget what is known of a row's columns: what comes now makes it of the numbers as they were loaded."""
        for known in (self.values, self.seen):
            for key, value in list(known.items()):
                if self.tile.columns in value.axes and value.level == BODY:
                    del known[key]  # type: ignore[arg-type]

    # -- statements --------------------------------------------------------------------------------------------------
    def define(self, prefix: str, key: object, text: str, dtype: str, axes: frozenset[str], level: int) -> Value:
        """``t3 = text``, once per key."""
        found = self.seen.get(key)
        if found is None:
            moves = self.tile.walked in axes or (self.packed and level == PRE and self.tile.columns in axes)
            level = BODY if moves else level
            found = self.seen[key] = Value(f"{prefix}{self.count}", dtype, axes, level)
            self.count += 1
            self.sections[level].append(f"{found.text} = {text}")
        return found

    def block(self, value: Value) -> str:
        """The value as a block or a name: literals become blocks of their dtype, so that no precision is lost."""
        return f"tl.full({self.tile.unit}, {value.text}, {TYPES[value.dtype]})" if value.is_literal else value.text

    def mask(self, axes: frozenset[str], *conditions: str) -> str:
        """The condition under which the points of a block with these axes exist, ``""`` if always."""
        names = [self.tile.masks[a] for a in sorted(axes, reverse=True) if a in self.tile.masks]
        return " & ".join([*names, *conditions])

    # -- loops -------------------------------------------------------------------------------------------------------
    def loop(self, loop: Loop, again: bool = False) -> None:
        """Append a loop's operations. ``again``: its results are stored already, this is a second computation."""
        env: dict[str, Value] = {}
        for op in loop.body:
            try:
                if isinstance(op, Store):
                    self.store(loop, op, env, again)
                else:
                    env[op.result] = self.value(loop, op, env)
            except CannotPrint as why:
                raise CannotPrint(f"{self.schedule.kernel.name}, loop {loop.name}, `{op}`: {why}") from None

    def value(self, loop: Loop, op: Operation, env: dict[str, Value]) -> Value:
        """The value of one operation; ``env`` holds those of the loop's earlier ones."""
        if not isinstance(op, Store) and op.dtype not in TYPES:
            raise CannotPrint(f"no Triton type for {op.dtype}")
        if isinstance(op, Const):
            return Value(literal(op.value, op.dtype), op.dtype, frozenset(), PRE, is_literal=True)
        if isinstance(op, Index):
            return self._index(op)
        if isinstance(op, Scalar):
            return Value(scalar_name(op.buffer, op.position), op.dtype, frozenset(), PRE)
        if isinstance(op, Compute):
            first = self._first_of_fours(loop, op.args[0]) if op.op == "philox" else None
            return self._compute(op, [env[a] for a in op.args], first)
        if isinstance(op, Reduce):
            return self._reduce(loop, op, env[op.arg])
        if isinstance(op, Scan):
            return self._scan(op, env[op.arg])
        assert isinstance(op, Load)
        return self._load(op, env)

    def axes_of(self, strides: tuple[Size, ...]) -> frozenset[str]:
        return frozenset(self.tile.axis[k] for k, s in enumerate(strides) if s != 0)

    def _index(self, op: Index) -> Value:
        axes = self.axes_of(op.strides)
        text = address(op.strides, op.offset, language="triton")
        if not self.tile.wide and not self._fits_32_bits(op):
            places = tuple((f"i{k}.to(tl.int64)", s) for k, s in enumerate(op.strides) if s != 0)
            text = address((), op.offset, places, "triton")
        if not axes:
            return Value(text, op.dtype, axes, PRE, is_literal=is_known(op.offset))
        return self.define("t", (text, op.dtype), f"({text}).to({TYPES[op.dtype]})", op.dtype, axes, PRE)

    def _fits_32_bits(self, op: Index) -> bool:
        """Whether all its numbers do; what is no address may be larger than all memory."""
        ends = (magnitude(s) * d for s, d in zip(op.strides, self.schedule.dims))
        return at_most(magnitude(op.offset) + sum(ends, start=0), 2**31 - 1)

    def _first_of_fours(self, loop: Loop, place: str) -> str | None:
        """Where each four neighbours of a block begin, if they all lie in fours of memory: as many as one call of
        Philox draws for. None: points have to draw for themselves.
        """
        op = next(op for op in loop.body if isinstance(op, Index) and op.result == place)
        dim = self.tile.fours
        others = (op.offset, *(s for k, s in enumerate(op.strides) if k != dim))
        if dim is None or op.strides[dim] != 1 or not all(divides(4, s) for s in others):
            return None
        places = tuple((f"i{k}" if k != dim else FOURS, s) for k, s in enumerate(op.strides) if s != 0)
        return f"({address((), op.offset, places, 'triton')}).to({TYPES[op.dtype]})"

    def _compute(self, op: Compute, args: list[Value], first: str | None = None) -> Value:
        axes = frozenset[str]().union(*(a.axes for a in args))
        level = max(a.level for a in args)
        bare = op.op in INFIX and sum(a.is_literal for a in args) == 1 and all(a.dtype in PLAIN for a in args)
        constant = CONSTANT.get(op.op, ())
        texts = [a.text if bare or k in constant else self.block(a) for k, a in enumerate(args)]
        if op.op == "bound" and (mask := self.mask(axes)):  # beyond the end an index is whatever was in the register
            texts[0] = f"tl.where({mask}, {texts[0]}, 0)"
        text = drawn_in_fours(first, texts) if first is not None else None
        text = text or triton_op(op.op, op.dtype, args[-1].dtype, texts)
        return self.define("t", (text, op.dtype), text, op.dtype, axes, level)

    # -- memory ------------------------------------------------------------------------------------------------------
    def _load(self, op: Load, env: dict[str, Value]) -> Value:
        condition = env[op.mask] if op.mask else None
        known = self.values.get(op.access.buffer)
        if known is None:
            known = self._read(op, env, condition)
            if op.other == 0:  # as it is where the mask is false
                return known
        elif op.access.buffer in self.buffers and known.dtype != op.dtype:
            known = self._converted(known, op.dtype)
        if condition is None:
            return known
        other = self.block(Value(literal(op.other, op.dtype), op.dtype, frozenset(), PRE, is_literal=True))
        text = f"tl.where({self.block(condition)}, {self.block(known)}, {other})"
        level = max(known.level, condition.level)
        return self.define("t", (text, op.dtype), text, op.dtype, known.axes | condition.axes, level)

    def _converted(self, value: Value, dtype: str) -> Value:
        text = triton_op("cast", dtype, value.dtype, [self.block(value)])
        return self.define("t", (text, dtype), text, dtype, value.axes, value.level)

    def _read(self, op: Load, env: dict[str, Value], condition: Value | None) -> Value:
        """A value from memory, converted to the operation's dtype; ``m`` names are zero where the mask is false."""
        access = op.access
        through = [env[v] for v, _ in access.indirect]
        axes = self.axes_of(access.strides).union(*(v.axes for v in through))
        where = self._address(access, env)
        level = max((v.level for v in through), default=PRE)
        prefix, other = "t", ""
        if condition is not None:
            where = self._as_block(self._spread(where, axes, condition.axes), axes | condition.axes)
            axes, level = axes | condition.axes, max(level, condition.level)
            prefix, other = "m", ", other=0"
        buffer = self.buffers[access.buffer]
        still = [size for k, size in enumerate(self.schedule.dims) if self.tile.axis[k] not in axes]
        some = [f"({size_text(size, 'triton')} > 0)" for size in perhaps_none(buffer, still)]
        mask = self.mask(axes, *([self.block(condition)] if condition is not None else []), *some)
        stored = buffer.dtype
        text = f"tl.load({pointer(access.buffer)} + {_grouped(where)}{f', {mask}' if mask else ''}{other})"
        if self.packed and self.tile.columns in axes:
            text = self._kept(text, stored, axes)
        if stored == "bool":
            text, stored = f"{text}.to(tl.int1)", "bool"
        if stored in HALF:
            text, stored = f"{text}.to(tl.float32)", compute_dtype(stored)
        if stored != op.dtype:
            text = triton_op("cast", op.dtype, stored, [text])
        return self.define(prefix, (text, op.dtype), text, op.dtype, axes, level)

    def _kept(self, text: str, stored: str, axes: frozenset[str]) -> str:
        """What a later pass over a row gets for what it loads: the block that is there, if it takes half the registers.

        The rest it loads again, not as before: a compiler that sees two equal loads keeps the numbers of the first.
        """
        first = self.raw.get(text)
        if first is None:
            first = self.raw[text] = self.define("h", ("raw", text), text, stored, axes, PRE)
            return first.text
        if ("raw", text) in self.seen:
            return first.text
        again = f"tg_keep({first.text})" if self._stays(stored, axes) else f'{text[:-1]}, eviction_policy="evict_last")'
        return self.define("h", ("again", text), again, stored, axes, PRE).text

    def _stays(self, stored: str, axes: frozenset[str]) -> bool:
        return stored in HALF and self.tile.walked in axes

    def _address(self, access: Access, env: dict[str, Value]) -> str:
        """The element's place; computed ones are widened before they are multiplied, where their bits may not do."""
        enough = {"int64"} if self.tile.wide else {"int64", "int32"}
        narrow = [env[v].dtype not in enough for v, _ in access.indirect]
        names = [f"{env[v].text}.to(tl.int64)" if n else env[v].text for (v, _), n in zip(access.indirect, narrow)]
        places = tuple((name, s) for name, (_, s) in zip(names, access.indirect))
        return address(access.strides, access.offset, places, "triton")

    def _spread(self, where: str, have: frozenset[str], want: frozenset[str]) -> str:
        """An address that is a block along all axes of its mask or value too."""
        missing = [self.tile.counters[a] for a in sorted(want - have, reverse=True) if a in self.tile.counters]
        return " + ".join([where, *(f"0*{c}" for c in missing)])

    def _as_block(self, where: str, axes: frozenset[str]) -> str:
        """An address that varies along no axis as a block of one, as its mask and its value are."""
        if axes & self.tile.counters.keys():
            return where
        return f"tl.full({self.tile.unit}, {where}, tl.{'int64' if self.tile.wide else 'int32'})"

    def store(self, loop: Loop, op: Store, env: dict[str, Value], again: bool) -> None:
        """Remember a value as its buffer's; write it unless the buffer lives only within a row."""
        name, value = op.access.buffer, env[op.arg]
        if op.base is not None:
            return self._scatter(op, env)
        local = name in self.schedule.kernel.local
        self.values[name] = value if local else self._as_stored(name, value)
        if again or local:
            return
        axes = self.axes_of(op.access.strides)
        first = self._repeated(loop, axes)
        conditions = [f"(i{k} == 0)" for k in first]
        wide = axes | value.axes | {self.tile.axis[k] for k in first}
        where = self._as_block(self._spread(self._address(op.access, env), axes, wide), wide)
        mask = self.mask(wide, *conditions)
        level = BODY if self.tile.walked in wide else value.level
        text = f"tl.store({pointer(name)} + {_grouped(where)}, {self.block(value)}{f', {mask}' if mask else ''})"
        self.sections[level].append(text)

    def _as_stored(self, name: str, value: Value) -> Value:
        """What later loops read of a buffer that memory holds in half precision, as later kernels do: rounded."""
        stored = self.buffers[name].dtype
        if stored not in HALF or name not in self.read:
            return value
        text = f"{self.block(value)}.to({TYPES[stored]}).to({TYPES[value.dtype]})"
        return self.define("t", text, text, value.dtype, value.axes, value.level)

    def _scatter(self, op: Store, env: dict[str, Value]) -> None:
        """A store at computed addresses, by all programs at once: sums are atomic and in no order, as eager's are."""
        stored = self.buffers[op.access.buffer].dtype
        if op.add and stored not in ATOMIC_SUMS:
            raise CannotPrint(f"no atomic sum of {stored}")
        every = frozenset(self.tile.axis)
        have = self.axes_of(op.access.strides).union(*(env[v].axes for v, _ in op.access.indirect))
        where = self._spread(self._address(op.access, env), have, every)
        arguments = [f"{pointer(op.access.buffer)} + {_grouped(where)}", self.block(env[op.arg])]
        if mask := self.mask(every):
            arguments.append(mask)
        self.sections[PRE].append(f"tl.{'atomic_add' if op.add else 'store'}({', '.join(arguments)})")

    def _repeated(self, loop: Loop, axes: frozenset[str]) -> list[int]:
        """Dimensions of the nest along which a loop does not move, though the tile does: its first point stores."""
        still = [k for k, (own, d) in enumerate(zip(loop.dims, self.schedule.dims)) if own == 1 and d != 1]
        return [k for k in still if self.tile.axis[k] != "r"]

    # -- reductions and scans ----------------------------------------------------------------------------------------
    def _reduce(self, loop: Loop, op: Reduce, arg: Value) -> Value:
        """Along the dimension of the block that the loop reduces: a running block, where it is walked block by block,
        that is reduced after the last one.
        """
        columns = any(r and self.tile.axis[k] == self.tile.columns for k, r in enumerate(loop.reduced))
        along, dim = (self.tile.columns, 1) if columns else (self.tile.rows, 0)
        key = ("reduce", dim, op.kind, arg.text, op.dtype)
        if key in self.seen:
            return self.seen[key]
        whole = columns and (self.tile.looped or along not in arg.axes)  # each row of the tile has a result of its own
        axes = self.tile.side_by_side if whole else arg.axes - {along}
        value = self._along(arg, along, axes)
        if mask := self.tile.masks.get(along):
            value = f"tl.where({mask}, {value}, {self._filler(neutral(op.kind, op.dtype), op.dtype)})"
        if self.tile.walked != along:
            return self.define("r", key, reduced(op.kind, op.dtype, value, dim), op.dtype, axes, arg.level)
        running = self._carried("a", op, {*axes, along})
        if op.kind == "sum":
            joined = f"{running} + {value}"
        elif op.dtype == "bool":
            joined = f"{running} {'|' if combine(op.kind, op.dtype) == 'tg_or' else '&'} {value}"
        else:
            joined = f"{combine(op.kind, op.dtype)}({running}, {value})"
        self.sections[BODY].append(f"{running} = {joined}")
        return self.define("r", key, reduced(op.kind, op.dtype, running, dim), op.dtype, axes, POST)

    def _scan(self, op: Scan, arg: Value) -> Value:
        """A row's scan over axis 1; block by block it is joined to what the block before came to at its end.

        Elements beyond the end of the row come after all others and change none of them.
        """
        key = ("scan", op.kind, arg.text, op.dtype)
        if key in self.seen:
            return self.seen[key]
        axes = arg.axes | {"r"} if "r" in arg.axes else frozenset(self.tile.axis)
        text = scanned(op.kind, op.dtype, self._along(arg, "r", self.tile.side_by_side))
        if not self.tile.looped:
            return self.define("t", key, text, op.dtype, axes, BODY)
        before = self._carried("c", op, axes - {"r"})
        value = self.define("t", key, f"{combine(op.kind, op.dtype)}({before}, {text})", op.dtype, axes, BODY)
        last = f"tl.where(tl.arange(0, RBLOCK)[None, :] == RBLOCK - 1, {value.text}, {self._filler('0', op.dtype)})"
        self.sections[BODY].append(f"{before} = {reduced('any' if op.dtype == 'bool' else 'sum', op.dtype, last)}")
        return value

    def _carried(self, prefix: str, op: Reduce | Scan, axes: Collection[str]) -> str:
        """A variable that goes from block to block, and its start before the first."""
        name, self.count = f"{prefix}{self.count}", self.count + 1
        start = f"tl.full({self.tile.shape(axes)}, {neutral(op.kind, op.dtype)}, {TYPES[op.dtype]})"
        self.sections[PRE].append(f"{name} = {start}")
        return name

    def _along(self, arg: Value, along: str, others: Collection[str]) -> str:
        """The value as a block along an axis, and the others too where it does not vary along that one."""
        text = self.block(arg)
        return text if along in arg.axes else f"tl.broadcast_to({text}, {self.tile.shape({*others, along})})"

    def _filler(self, number: str, dtype: str) -> str:
        """A number beside a block of the dtype."""
        return number if dtype in PLAIN else f"tl.full({self.tile.unit}, {number}, {TYPES[dtype]})"


def pointer(buffer: str) -> str:
    """The kernel's parameter for a buffer; the ending keeps it apart from every other name of the kernel."""
    return f"{buffer}_ptr"


def scalar_name(buffer: str, position: int) -> str:
    """The kernel's parameter for a number that it is handed by value."""
    return f"{buffer}_{position}"


def _grouped(address: str) -> str:
    return f"({address})" if " " in address else address
