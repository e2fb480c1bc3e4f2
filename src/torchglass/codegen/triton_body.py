"""Loop bodies as Triton statements on blocks.

A kernel computes on a tile. In a *flat* tile (no reductions) there is one axis ``n`` over all points; in a *row* tile
the axis ``x`` runs over rows and ``r`` along a row, and a reduction of a row is one over axis 1. Every value knows
along which axes it varies: one that varies along ``x`` alone is a block of shape [XBLOCK, 1], and Triton broadcasts.

Statements go to the sections of a pass over a row: ``PRE`` (before it), ``BODY`` (for each block of the row), ``POST``
(after it). Where a whole row fits the tile the three are one list.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..records.loops import Buffer, Compute, Const, Index, Load, Loop, Operation, Reduce, Store
from ..records.schedule import Schedule
from ..records.sizes import Size, is_known
from .triton_index import address_text
from .triton_ops import INFIX, TYPES, CannotPrint, combine, literal, neutral, reduced, triton_op

PRE, BODY, POST = 0, 1, 2
PLAIN = frozenset({"float32", "float64", "int64", "int32"})  # dtypes whose literals may stand beside an infix operator
ATOMIC = frozenset({"float32", "float64", "int32", "int64"})  # what a sum in memory may be of
HALF = {"bfloat16": "float32", "float16": "float32"}


@dataclass(frozen=True)
class Value:
    """A Triton expression (a name, or a literal number), its dtype, the axes along which it varies, and its section."""

    text: str
    dtype: str
    axes: frozenset[str]
    level: int
    is_literal: bool = False


@dataclass(frozen=True)
class Tile:
    """The axes of a tile. ``axis[k]`` is dimension k's; ``masks`` names the condition of an axis that may be left."""

    axis: tuple[str, ...]
    counters: dict[str, str]
    masks: dict[str, str]
    unit: str
    shape: str
    looped: bool = False


class BodyPrinter:
    """Writes the loops of one nest on one tile; knows what earlier loops have stored."""

    def __init__(self, nest: Schedule, buffers: dict[str, Buffer], tile: Tile) -> None:
        self.nest, self.buffers, self.tile = nest, buffers, tile
        self.count = 0
        self.values: dict[str, Value] = {}  # what each buffer written here holds at the point
        self.seen: dict[object, Value] = {}
        self.begin_pass()

    def begin_pass(self) -> None:
        """Empty sections; values that vary along a row are forgotten if the row is walked block by block."""
        body: list[str] = []
        self.sections = ([], [], []) if self.tile.looped else (body, body, body)
        for known in (self.values, self.seen):
            for key, value in list(known.items()):
                if self.tile.looped and "r" in value.axes:
                    del known[key]  # type: ignore[arg-type]
                else:
                    known[key] = Value(value.text, value.dtype, value.axes, PRE, value.is_literal)  # type: ignore[index]

    # -- statements --------------------------------------------------------------------------------------------------
    def define(self, prefix: str, key: object, text: str, dtype: str, axes: frozenset[str], level: int) -> Value:
        """``t3 = text``, once per key."""
        found = self.seen.get(key)
        if found is None:
            level = BODY if "r" in axes else level
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
                    env[op.result] = self.value(op, env)
            except CannotPrint as why:
                raise CannotPrint(f"{self.nest.kernel.name}, loop {loop.name}, `{op}`: {why}") from None

    def value(self, op: Operation, env: dict[str, Value]) -> Value:
        """The value of one operation; ``env`` holds those of the loop's earlier ones."""
        if not isinstance(op, Store) and op.dtype not in TYPES:
            raise CannotPrint(f"no Triton type for {op.dtype}")
        if isinstance(op, Const):
            return Value(literal(op.value, op.dtype), op.dtype, frozenset(), PRE, is_literal=True)
        if isinstance(op, Index):
            return self._index(op)
        if isinstance(op, Compute):
            return self._compute(op, [env[a] for a in op.args])
        if isinstance(op, Reduce):
            return self._reduce(op, env[op.arg])
        assert isinstance(op, Load)
        return self._load(op, env)

    def axes_of(self, strides: tuple[Size, ...]) -> frozenset[str]:
        return frozenset(self.tile.axis[k] for k, s in enumerate(strides) if s != 0)

    def _index(self, op: Index) -> Value:
        axes = self.axes_of(op.strides)
        text = address_text(op.strides, op.offset)
        if not axes:
            return Value(text, op.dtype, axes, PRE, is_literal=is_known(op.offset))
        return self.define("t", (text, op.dtype), f"({text}).to({TYPES[op.dtype]})", op.dtype, axes, PRE)

    def _compute(self, op: Compute, args: list[Value]) -> Value:
        axes = frozenset[str]().union(*(a.axes for a in args))
        level = max(a.level for a in args)
        bare = op.op in INFIX and sum(a.is_literal for a in args) == 1 and all(a.dtype in PLAIN for a in args)
        texts = [a.text if bare else self.block(a) for a in args]
        text = triton_op(op.op, op.dtype, args[-1].dtype, texts)
        return self.define("t", (text, op.dtype), text, op.dtype, axes, level)

    # -- memory ------------------------------------------------------------------------------------------------------
    def _load(self, op: Load, env: dict[str, Value]) -> Value:
        condition = env[op.mask] if op.mask else None
        known = self.values.get(op.access.buffer)
        if known is None:
            known = self._read(op, env, condition)
        elif op.access.buffer in self.buffers and known.dtype != op.dtype:
            known = self._converted(known, op.dtype)
        if condition is None or (op.other == 0 and known.text.startswith("m")):
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
        where = address_text(access.strides, access.offset, [(env[v].text, s) for v, s in access.indirect])
        level = max((v.level for v in through), default=PRE)
        prefix, other = "t", ""
        if condition is not None:
            where = self._spread(where, axes, condition.axes)
            axes, level = axes | condition.axes, max(level, condition.level)
            prefix, other = "m", ", other=0"
        mask = self.mask(axes, *([self.block(condition)] if condition is not None else []))
        stored = self.buffers[access.buffer].dtype
        text = f"tl.load({pointer(access.buffer)} + {_grouped(where)}{f', {mask}' if mask else ''}{other})"
        if stored == "bool":
            text, stored = f"{text}.to(tl.int1)", "bool"
        if stored in HALF:
            text, stored = f"{text}.to(tl.float32)", HALF[stored]
        if stored != op.dtype:
            text = triton_op("cast", op.dtype, stored, [text])
        return self.define(prefix, (text, op.dtype), text, op.dtype, axes, level)

    def _spread(self, where: str, have: frozenset[str], want: frozenset[str]) -> str:
        """An address that is a block along all axes of its mask or value too."""
        missing = [self.tile.counters[a] for a in sorted(want - have, reverse=True) if a in self.tile.counters]
        return " + ".join([where, *(f"0*{c}" for c in missing)])

    def store(self, loop: Loop, op: Store, env: dict[str, Value], again: bool) -> None:
        """Remember a value as its buffer's; write it unless the buffer lives only within a row."""
        name, value = op.access.buffer, env[op.arg]
        if op.base is not None:
            return self._scatter(op, env)
        self.values[name] = value
        if again or name in self.nest.kernel.local:
            return
        axes = self.axes_of(op.access.strides)
        first = self._repeated(loop, axes)
        conditions = [f"(i{k} == 0)" for k in first]
        wide = axes | value.axes | {self.tile.axis[k] for k in first} | ({"n"} & set(self.tile.axis))
        where = self._spread(address_text(op.access.strides, op.access.offset), axes, wide)
        if not wide & self.tile.counters.keys():
            where = f"tl.full({self.tile.unit}, {where}, tl.int32)"
        mask = self.mask(wide, *conditions)
        level = BODY if "r" in wide else value.level
        text = f"tl.store({pointer(name)} + {_grouped(where)}, {self.block(value)}{f', {mask}' if mask else ''})"
        self.sections[level].append(text)

    def _scatter(self, op: Store, env: dict[str, Value]) -> None:
        """A store at computed addresses, by all programs at once: sums are atomic and in no order, as eager's are."""
        stored = self.buffers[op.access.buffer].dtype
        if op.add and stored not in ATOMIC:
            raise CannotPrint(f"no atomic sum of {stored}")
        places = [(env[v].text, s) for v, s in op.access.indirect]
        every = frozenset(self.tile.axis)
        have = self.axes_of(op.access.strides).union(*(env[v].axes for v, _ in op.access.indirect))
        where = self._spread(address_text(op.access.strides, op.access.offset, places), have, every)
        arguments = [f"{pointer(op.access.buffer)} + {_grouped(where)}", self.block(env[op.arg])]
        if mask := self.mask(every):
            arguments.append(mask)
        self.sections[PRE].append(f"tl.{'atomic_add' if op.add else 'store'}({', '.join(arguments)})")

    def _repeated(self, loop: Loop, axes: frozenset[str]) -> list[int]:
        """Dimensions of the nest along which a loop does not move, though the tile does: its first point stores."""
        still = [k for k, (own, d) in enumerate(zip(loop.dims, self.nest.dims)) if own == 1 and d != 1]
        return [k for k in still if self.tile.axis[k] != "r"]

    # -- reductions --------------------------------------------------------------------------------------------------
    def _reduce(self, op: Reduce, arg: Value) -> Value:
        """A row's reduction over axis 1; block by block it is a running block that is reduced after the last one."""
        key = ("reduce", op.kind, arg.text, op.dtype)
        if key in self.seen:
            return self.seen[key]
        whole = self.tile.looped or "r" not in arg.axes  # then every row of the tile has a result of its own
        axes = frozenset({"x"} & self.tile.counters.keys()) if whole else arg.axes - {"r"}
        value = self._inside(op, arg)
        if not self.tile.looped:
            return self.define("r", key, reduced(op.kind, op.dtype, value, 1), op.dtype, axes, PRE)
        running, dtype = f"a{self.count}", TYPES[op.dtype]
        self.sections[PRE].append(f"{running} = tl.full({self.tile.shape}, {neutral(op.kind, op.dtype)}, {dtype})")
        if op.kind == "sum":
            joined = f"{running} + {value}"
        elif op.dtype == "bool":
            joined = f"{running} {'|' if combine(op.kind, op.dtype) == 'tg_or' else '&'} {value}"
        else:
            joined = f"{combine(op.kind, op.dtype)}({running}, {value})"
        self.sections[BODY].append(f"{running} = {joined}")
        return self.define("r", key, reduced(op.kind, op.dtype, running, 1), op.dtype, axes, POST)

    def _inside(self, op: Reduce, arg: Value) -> str:
        """The value as a whole tile, neutral beyond the end of the row."""
        text = self.block(arg)
        mask = self.tile.masks.get("r")
        if "r" not in arg.axes:
            text = f"tl.broadcast_to({text}, {self.tile.shape})"
        if mask is None:
            return text
        start = neutral(op.kind, op.dtype)
        fill = start if op.dtype in PLAIN else f"tl.full({self.tile.unit}, {start}, {TYPES[op.dtype]})"
        return f"tl.where({mask}, {text}, {fill})"


def pointer(buffer: str) -> str:
    """The kernel's parameter for a buffer; the ending keeps it apart from every other name of the kernel."""
    return f"{buffer}_ptr"


def _grouped(address: str) -> str:
    return f"({address})" if " " in address else address
