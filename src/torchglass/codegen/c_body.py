"""Loop bodies as statements: which value is computed once per row, which once per element, which after a reduction.

Statements go to three lists of a pass over a row: ``pre`` (constant along the row), ``body`` (in the inner loop) and
``post`` (once the row's reductions are complete). In a pass that carries values along the row, ``after`` is what an
element needs of them. Loads and computations that occur twice are written once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from ..records.loops import (
    HALF,
    Buffer,
    Compute,
    Const,
    Index,
    Load,
    Loop,
    Operation,
    Reduce,
    Scan,
    Store,
    compute_dtype,
    perhaps_none,
)
from ..records.schedule import Schedule
from ..records.sizes import Size, at_least, at_most, magnitude
from .c_ops import CTYPES, OPENMP, constant, is_float, reduction_start
from .statements import (
    Accumulate,
    Address,
    Assign,
    Call,
    Count,
    Declare,
    Let,
    NoteNan,
    Place,
    Read,
    Stmt,
    When,
    Write,
    in_c,
)

PRE, BODY, AFTER, POST = 0, 1, 2, 3

Terms: TypeAlias = "tuple[tuple[str, Size], ...]"


@dataclass(frozen=True)
class CValue:
    """An operand (a name or a literal), its dtype, and where in a pass it is known."""

    text: str
    dtype: str
    level: int


@dataclass(frozen=True)
class Carried:
    """A variable that the inner loop joins to, its C type, and OpenMP's operator; "" where OpenMP may not."""

    operator: str
    name: str
    ctype: str


@dataclass
class PassCode:
    """The statements of one pass over a row, and the reductions of its inner loop.

    ``carried``: what it carries from element to element; ``masked``: memory is read under a condition.
    """

    pre: list[Stmt] = field(default_factory=list)
    body: list[Stmt] = field(default_factory=list)
    after: list[Stmt] = field(default_factory=list)
    post: list[Stmt] = field(default_factory=list)
    carried: list[Carried] = field(default_factory=list)
    reductions: list[Carried] = field(default_factory=list)
    forward: dict[str, CValue] = field(default_factory=dict)
    seen: dict[object, CValue] = field(default_factory=dict)
    masked: bool = False

    def at(self, level: int) -> list[Stmt]:
        """The statements of a level."""
        return (self.pre, self.body, self.after, self.post)[level]


@dataclass
class Accumulator:
    """A column reduction: ``name`` is an array of ``size`` partial results; ``loop`` says what follows it."""

    name: str
    loop: Loop
    reduce: Reduce
    size: Size


@dataclass
class Line:
    """A scan from row to row: ``name`` is an array of what each column has come to."""

    name: str
    scan: Scan


def _in_any_order(loop: Loop, scan: Scan) -> bool:
    """Whether products of neighbours stay in range: those of eight floats do as doubles, those of floats do not."""
    made = {op.result: op for op in loop.body if not isinstance(op, Store)}
    cast = made[scan.arg]
    widened = isinstance(cast, Compute) and cast.op == "cast" and made[cast.args[0]].dtype == "float32"
    return not is_float(scan.dtype) or (widened and scan.dtype == "float64")


def value_type(dtype: str) -> str:
    """The C type of a value in a register: bools are int, so that comparisons keep their vector width."""
    return "int" if dtype == "bool" else CTYPES[dtype]


def total_type(reduce: Reduce) -> str:
    """What partial results of many blocks are joined in: sums and products of floats in double."""
    exact = reduce.kind not in ("sum", "prod")
    return value_type(reduce.dtype) if exact or not is_float(reduce.dtype) else "double"


def _is_small(op: Index, dims: tuple[Size, ...]) -> bool:
    """Whether a counter's values are known to fit into 32 bits."""
    furthest = sum((magnitude(s) * d for s, d in zip(op.strides, dims)), magnitude(op.offset))
    return at_most(furthest, 2**31 - 1)


class BodyBuilder:
    """Makes the statements of one nest's loops; keeps what is known across the passes of a row."""

    def __init__(self, nest: Schedule, buffers: dict[str, Buffer], ident: Callable[[str], str], lanes: int = 0) -> None:
        self.nest, self.buffers, self.ident, self.row_arrays = nest, buffers, ident, nest.row_arrays
        self.lanes = lanes  # rows that are walked at once, where they lie across memory
        self.row_values: dict[str, CValue] = {}
        self.row_seen: dict[object, CValue] = {}
        self.accumulators: list[Accumulator] = []
        self.small: set[str] = set()  # counters of 64 bits whose values fit into 32
        self.lines: list[Line] = []
        self.count = 0

    # -- addresses ---------------------------------------------------------------------------------------------------
    def column_index(self) -> Address:
        """The position within a row, counted over all inner dimensions; within a panel where there are lanes."""
        step: Size = self.lanes or 1
        terms: list[tuple[str, Size]] = []
        for k in range(len(self.nest.dims) - 1, self.nest.outer_rank - 1, -1):
            terms.insert(0, (f"i{k}", step))
            step = step * self.nest.dims[k]
        return Address((*terms, ("lane", 1)) if self.lanes else tuple(terms))

    def place(self, buffer: str, strides: tuple[Size, ...], offset: Size, through: Terms = ()) -> Place:
        """The memory that an access of a loop touches."""
        return Place(self.ident(buffer), Address((*counted(strides), *through), offset))

    def moves_inside(self, strides: tuple[Size, ...]) -> bool:
        return any(s != 0 for s in strides[self.nest.outer_rank :])

    # -- statements --------------------------------------------------------------------------------------------------
    def fresh(self, prefix: str = "t") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def define(self, p: PassCode, key: object, level: int, dtype: str, make: Callable[[str, str], Stmt]) -> CValue:
        """``make("t3", "float")`` at ``level``, once per key."""
        known = self.row_seen.get(key) or p.seen.get(key)
        if known is not None:
            return known
        value = CValue(self.fresh(), dtype, level)
        p.at(level).append(make(value.text, value_type(dtype)))
        if level == PRE:
            self.row_seen[key] = value
        else:
            p.seen[key] = value
        return value

    def compute(
        self, p: PassCode, op: str, dtype: str, args: list[CValue], operand: str | None = None, level: int = PRE
    ) -> CValue:
        """The value of an operation; it is known where the last of its operands is, not before ``level``."""
        level = max([level, *(a.level for a in args)])
        operand = operand or args[-1].dtype
        texts = tuple(a.text for a in args)
        key = (op, texts, dtype, operand)
        return self.define(p, key, level, dtype, lambda name, ctype: Let(name, ctype, op, texts, dtype, operand))

    def end_pass(self, p: PassCode) -> None:
        """What a pass found out after its reductions is constant along the row for the next one."""
        for key, value in p.seen.items():
            if value.level == POST:
                self.row_seen[key] = CValue(value.text, value.dtype, PRE)
        for name, value in self.row_values.items():
            self.row_values[name] = CValue(value.text, value.dtype, PRE)

    # -- operations --------------------------------------------------------------------------------------------------
    def loop(self, p: PassCode, loop: Loop, full: bool, again: bool) -> None:
        """Append a loop's operations. ``again``: its buffers are stored already, this is a second computation."""
        env: dict[str, CValue] = {}
        column = loop.is_reduction and any(loop.reduced[: self.nest.outer_rank])
        after: set[str] = set()  # values that exist only once a column reduction has ended
        for op in loop.body:
            if column and self._finished_later(op, after):
                continue
            if isinstance(op, Store):
                self._store(p, loop, op, env, full, again)
            elif isinstance(op, Reduce):
                if column:
                    self._accumulate(p, loop, op, env[op.arg], full)
                    after.add(op.result)
                else:
                    env[op.result] = self._reduce(p, op, env[op.arg])
            elif isinstance(op, Scan):
                env[op.result] = self._scan(p, op, env[op.arg], loop)
            else:
                env[op.result] = self.value(p, op, env, full)

    @staticmethod
    def _finished_later(op: Operation, after: set[str]) -> bool:
        args = op.args if isinstance(op, Compute) else (op.arg,) if isinstance(op, (Reduce, Store)) else ()
        if not any(a in after for a in args):
            return False
        if not isinstance(op, Store):
            after.add(op.result)
        return True

    def value(self, p: PassCode, op: Operation, env: dict[str, CValue], full: bool) -> CValue:
        if isinstance(op, Const):
            return CValue(constant(op.value, op.dtype), op.dtype, PRE)
        if isinstance(op, Index):
            level = BODY if full and self.moves_inside(op.strides) else PRE
            address = Address(counted(op.strides), op.offset)
            counter = self.define(p, (address, op.dtype), level, op.dtype, lambda n, ctype: Count(n, ctype, address))
            if _is_small(op, self.nest.dims):
                self.small.add(counter.text)
            return counter
        if isinstance(op, Compute):
            args = [env[a] for a in op.args]
            if op.op == "cast" and args[0].text in self.small:
                return self.compute(p, "cast_counter", op.dtype, args)
            # A check is not moved out of a loop that perhaps runs for no element: nothing is wrong there.
            checks = op.op == "bound" and full and not all(at_least(size, 1) for size in self.nest.inner_dims)
            return self.compute(p, op.op, op.dtype, args, level=BODY if checks else PRE)
        assert isinstance(op, Load)
        return self._load(p, op, env, full)

    def _load(self, p: PassCode, op: Load, env: dict[str, CValue], full: bool) -> CValue:
        name = op.access.buffer
        mask = env[op.mask] if op.mask else None
        other = constant(op.other, op.dtype)
        known = p.forward.get(name) or self.row_values.get(name)
        if known is not None:
            if known.dtype != op.dtype:
                known = self.compute(p, "cast", op.dtype, [known])
            if mask is None:
                return known
            return self.compute(p, "where", op.dtype, [mask, known, CValue(other, op.dtype, PRE)])
        through = tuple((env[v].text, s) for v, s in op.access.indirect)
        if name in self.row_arrays:
            place, level, stored = Place(self.ident(name), self.column_index()), BODY, self.row_array_dtype(name)
        else:
            place = self.place(name, op.access.strides, op.access.offset, through)
            level = BODY if full and self.moves_inside(op.access.strides) else PRE
            stored = self.buffers[name].dtype
        level = max([level, *(env[v].level for v, _ in op.access.indirect)], default=level)
        if mask is not None:
            p.masked = True
            level = max(level, mask.level)
        if level == PRE and self._written_here(name):
            level = BODY if full else PRE
        conditions = [] if mask is None else [mask.text]
        if level == PRE:
            conditions += [f"{in_c(size)} > 0" for size in perhaps_none(self.buffers[name], self.nest.inner_dims)]
        condition, other = (" && ".join(conditions), other) if conditions else (None, "")
        return self.define(
            p, (place, condition, other, op.dtype), level, op.dtype,
            lambda result, ctype: Read(result, ctype, place, stored, op.dtype, condition, other),
        )  # fmt: skip

    def _written_here(self, name: str) -> bool:
        return any(name in loop.writes for loop in self.nest.loops)

    def row_array_dtype(self, name: str) -> str:
        return compute_dtype(self.buffers[name].dtype)

    def _store(self, p: PassCode, loop: Loop, op: Store, env: dict[str, CValue], full: bool, again: bool) -> None:
        name, value, dtype = op.access.buffer, env[op.arg], self.buffers[op.access.buffer].dtype
        if op.base is not None:  # at a computed address; rounded each time it adds, as eager's half precision is
            through = tuple((env[v].text, s) for v, s in op.access.indirect)
            place = self.place(name, op.access.strides, op.access.offset, through)
            (p.body if full else p.pre).append(Write(place, value.text, dtype, op.add))
            return
        row_value = not full or loop.is_reduction
        (self.row_values if row_value else p.forward)[name] = self._as_stored(p, name, value)
        if again:
            return
        target = p.at(value.level if row_value else max(value.level, BODY))
        if name in self.row_arrays:
            target.append(Assign(Place(self.ident(name), self.column_index()), value.text))
        elif name not in self.nest.kernel.local:
            target.append(Write(self.place(name, op.access.strides, op.access.offset), value.text, dtype))

    def _as_stored(self, p: PassCode, name: str, value: CValue) -> CValue:
        """What is read of a buffer that memory holds in half precision, here as by later kernels: the rounded value.

        Of two readers that know it more and less exactly, one may take its own from the other's: what differs is left.
        """
        dtype = self.buffers[name].dtype
        kept = name in self.row_arrays or name in self.nest.kernel.local
        if dtype not in HALF or kept or not any(name in loop.reads for loop in self.nest.loops):
            return value
        return self.compute(p, f"near_{dtype}", "float32", [value])

    # -- reductions --------------------------------------------------------------------------------------------------
    def _reduce(self, p: PassCode, op: Reduce, arg: CValue) -> CValue:
        """A row reduction: a variable of the row, joined to in the inner loop."""
        key = ("reduce", op.kind, arg.text, arg.level)
        if key not in p.seen:
            p.seen[key] = self.row_partial(p, self.fresh("r"), op, arg)
        return p.seen[key]

    def row_partial(self, p: PassCode, name: str, op: Reduce, arg: CValue) -> CValue:
        ctype = value_type(op.dtype)
        p.pre.append(Declare(ctype, name, reduction_start(op.kind, op.dtype)))
        p.body.append(Accumulate(name, op.kind, arg.text, op.dtype, exact=bool(self.lanes)))
        p.reductions.append(Carried(OPENMP[op.kind], name, ctype))
        if not self.lanes and op.kind in ("max", "min") and is_float(op.dtype):
            # each lane of a panel is a number of its own, which keeps NaN
            flag = self._flag(p, name, arg, p.reductions)
            p.post.append(When(flag, Assign(name, "NAN")))
        return CValue(name, op.dtype, POST)

    @staticmethod
    def _flag(p: PassCode, name: str, arg: CValue, into: list[Carried]) -> str:
        """A variable that is set where a NaN has been met."""
        flag = f"{name}_nan"
        p.pre.append(Declare("int", flag, "0"))
        p.body.append(NoteNan(flag, arg.text))
        into.append(Carried("|", flag, "int"))
        return flag

    def _accumulate(self, p: PassCode, loop: Loop, op: Reduce, arg: CValue, full: bool) -> None:
        """A column reduction: every row joins into an array over the row (or one number)."""
        kept = [not r and d != 1 for r, d in zip(loop.reduced, loop.dims)]
        name = self.fresh("acc")
        joined = lambda address, value: Accumulate(Place(name, address), op.kind, value.text, op.dtype, exact=True)
        if full and any(kept[self.nest.outer_rank :]):
            self.accumulators.append(Accumulator(name, loop, op, self.nest.columns))
            p.body.append(joined(self.column_index(), arg))
            return
        self.accumulators.append(Accumulator(name, loop, op, 1))
        if full:
            p.post.append(joined(Address(), self.row_partial(p, self.fresh("r"), op, arg)))
        else:
            p.at(arg.level).append(joined(Address(), arg))

    # -- scans -------------------------------------------------------------------------------------------------------
    def _scan(self, p: PassCode, op: Scan, arg: CValue, loop: Loop) -> CValue:
        """Along the row: a variable, which OpenMP carries through vectors. As in reductions, a flag keeps NaN."""
        if not self.moves_inside(op.strides):
            return self._carry(p, op, arg)
        name, ctype = self.fresh("r"), value_type(op.dtype)
        p.pre.append(Declare(ctype, name, reduction_start(op.kind, op.dtype)))
        value = CValue(name, op.dtype, AFTER)
        if op.kind == "logaddexp":
            p.pre.append(Declare(ctype, f"{name}_sum", "0"))
            suffix = "f32" if op.dtype == "float32" else "f64"
            p.body.append(Call(f"tg_add_exp_{suffix}", (f"&{name}", f"&{name}_sum", arg.text)))
            p.carried.append(Carried("", name, ctype))
            log = self.compute(p, "log", op.dtype, [CValue(f"{name}_sum", op.dtype, AFTER)])
            return self.compute(p, "add", op.dtype, [value, log])
        p.body.append(Accumulate(name, op.kind, arg.text, op.dtype))
        in_vectors = op.kind != "prod" or _in_any_order(loop, op)
        p.carried.append(Carried(OPENMP[op.kind] if in_vectors else "", name, ctype))
        if op.kind not in ("max", "min") or not is_float(op.dtype):
            return value
        flag = CValue(self._flag(p, name, arg, p.carried), "int32", AFTER)
        return self.compute(p, "where", op.dtype, [flag, CValue("NAN", op.dtype, PRE), value])

    def _carry(self, p: PassCode, op: Scan, arg: CValue) -> CValue:
        """From row to row: an array over the row."""
        line = Line(self.fresh("acc"), op)
        self.lines.append(line)
        place = Place(line.name, self.column_index())
        p.body.append(Accumulate(place, op.kind, arg.text, op.dtype, exact=True))
        read = lambda name, ctype: Read(name, ctype, place, op.dtype, op.dtype)
        return self.define(p, ("scan", line.name), BODY, op.dtype, read)

    def finish_column(self, acc: Accumulator, total: str) -> list[Stmt]:
        """Statements that store one column's result, given the name of its total."""
        p = PassCode()
        env: dict[str, CValue] = {acc.reduce.result: CValue(total, acc.reduce.dtype, PRE)}
        needed = _after_reduce(acc)
        saved_rows, saved_seen, self.row_values, self.row_seen = self.row_values, self.row_seen, {}, {}
        for op in acc.loop.body:
            if op is acc.reduce or op not in needed:
                continue
            if isinstance(op, Store):
                place = self.place(op.access.buffer, op.access.strides, op.access.offset)
                p.pre.append(Write(place, env[op.arg].text, self.buffers[op.access.buffer].dtype))
            else:
                env[op.result] = self.value(p, op, env, full=False)
        self.row_values, self.row_seen = saved_rows, saved_seen
        return p.pre


def counted(strides: tuple[Size, ...]) -> Terms:
    """Strides of a loop as terms of an address."""
    return tuple((f"i{k}", stride) for k, stride in enumerate(strides) if stride != 0)


def _after_reduce(acc: Accumulator) -> set[Operation]:
    """The operations that the loop's stores need, without what the reduction itself needed."""
    by_name = {op.result: op for op in acc.loop.body if not isinstance(op, Store)}
    needed: set[Operation] = {op for op in acc.loop.body if isinstance(op, Store)}
    pending = [op.arg for op in acc.loop.body if isinstance(op, Store)]
    while pending:
        op = by_name[pending.pop()]
        if op in needed or op is acc.reduce:
            continue
        needed.add(op)
        if isinstance(op, Compute):
            pending += op.args
    return needed
