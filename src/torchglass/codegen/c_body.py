"""Loop bodies as C statements: which value is computed once per row, which once per element, which after a reduction.

Statements go to three lists of a pass over a row: ``pre`` (constant along the row), ``body`` (in the inner loop) and
``post`` (once the row's reductions are complete). In a pass that carries values along the row, ``after`` is what an
element needs of them. Loads and computations that occur twice are written once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..records.loops import Buffer, Compute, Const, Index, Load, Loop, Operation, Reduce, Scan, Store, address
from ..records.schedule import Schedule
from ..records.sizes import Size
from .c_ops import (
    CTYPES,
    HALF,
    OPENMP,
    c_op,
    carried,
    combine,
    constant,
    from_half,
    in_register,
    is_float,
    near_half,
    reduction_start,
    to_half,
)

PRE, BODY, AFTER, POST = 0, 1, 2, 3


@dataclass(frozen=True)
class CValue:
    """A C expression (a name or a literal), its dtype, and where in a pass it is known."""

    text: str
    dtype: str
    level: int


@dataclass
class Pass:
    """The statements of one pass over a row. ``reductions``: (OpenMP operator, variable) of the inner loop.

    ``carried``: the same of what it carries from element to element, no operator where OpenMP may not carry it in
    vectors; ``masked``: memory is read under a condition.
    """

    pre: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    post: list[str] = field(default_factory=list)
    carried: list[tuple[str, str]] = field(default_factory=list)
    reductions: list[tuple[str, str]] = field(default_factory=list)
    forward: dict[str, CValue] = field(default_factory=dict)
    seen: dict[object, CValue] = field(default_factory=dict)
    masked: bool = False

    def at(self, level: int) -> list[str]:
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
    known = (op.offset, *dims, *op.strides)
    if not all(isinstance(v, int) for v in known):
        return False
    return abs(op.offset) + sum(abs(s) * d for s, d in zip(op.strides, dims)) < 2**31


class BodyPrinter:
    """Writes the loops of one nest; keeps what is known across the passes of a row."""

    def __init__(
        self,
        nest: Schedule,
        buffers: dict[str, Buffer],
        ident: Callable[[str], str],
        lanes: int = 0,
    ) -> None:
        self.nest, self.buffers, self.ident, self.scratch = nest, buffers, ident, nest.row_arrays
        self.lanes = lanes  # rows that are walked at once, where they lie across memory
        self.row_values: dict[str, CValue] = {}
        self.row_seen: dict[object, CValue] = {}
        self.accumulators: list[Accumulator] = []
        self.small: set[str] = set()  # counters of 64 bits whose values fit into 32
        self.lines: list[Line] = []
        self.count = 0

    # -- addresses ---------------------------------------------------------------------------------------------------
    def column_index(self) -> str:
        """The position within a row, counted over all inner dimensions; within a panel where there are lanes."""
        step: Size = self.lanes or 1
        strides: list[Size] = [0] * len(self.nest.dims)
        for k in range(len(self.nest.dims) - 1, self.nest.outer_rank - 1, -1):
            strides[k] = step
            step = step * self.nest.dims[k]
        return address(tuple(strides), 0) + (" + lane" if self.lanes else "")

    def moves_inside(self, strides: tuple[Size, ...]) -> bool:
        return any(s != 0 for s in strides[self.nest.outer_rank :])

    # -- statements --------------------------------------------------------------------------------------------------
    def fresh(self, prefix: str = "t") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def define(self, p: Pass, key: object, level: int, dtype: str, text: str) -> CValue:
        """``const float t3 = text;`` at ``level``, once per key."""
        known = self.row_seen.get(key) or p.seen.get(key)
        if known is not None:
            return known
        value = CValue(self.fresh(), dtype, level)
        p.at(level).append(f"const {value_type(dtype)} {value.text} = {text};")
        if level == PRE:
            self.row_seen[key] = value
        else:
            p.seen[key] = value
        return value

    def end_pass(self, p: Pass) -> None:
        """What a pass found out after its reductions is constant along the row for the next one."""
        for key, value in p.seen.items():
            if value.level == POST:
                self.row_seen[key] = CValue(value.text, value.dtype, PRE)
        for name, value in self.row_values.items():
            self.row_values[name] = CValue(value.text, value.dtype, PRE)

    # -- operations --------------------------------------------------------------------------------------------------
    def loop(self, p: Pass, loop: Loop, full: bool, again: bool) -> None:
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
                    env[op.result] = self._reduce(p, op, env[op.arg], loop)
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

    def value(self, p: Pass, op: Operation, env: dict[str, CValue], full: bool) -> CValue:
        if isinstance(op, Const):
            return CValue(constant(op.value, op.dtype), op.dtype, PRE)
        if isinstance(op, Index):
            level = BODY if full and self.moves_inside(op.strides) else PRE
            counter = self.define(p, (op.strides, op.offset, op.dtype), level, op.dtype, address(op.strides, op.offset))
            if _is_small(op, self.nest.dims):
                self.small.add(counter.text)
            return counter
        if isinstance(op, Compute):
            return self._compute(p, op, [env[a] for a in op.args])
        assert isinstance(op, Load)
        return self._load(p, op, env, full)

    def _compute(self, p: Pass, op: Compute, args: list[CValue]) -> CValue:
        level = max((a.level for a in args), default=PRE)
        texts = [a.text for a in args]
        operand = args[-1].dtype
        if op.op == "cast" and texts[0] in self.small:  # two to four vectors of 64 bits for one of floats, otherwise
            texts, operand = [f"(int32_t){texts[0]}"], "int32"
        text = c_op(op.op, op.dtype, operand, texts)
        return self.define(p, (op.op, tuple(texts), op.dtype), level, op.dtype, text)

    def _load(self, p: Pass, op: Load, env: dict[str, CValue], full: bool) -> CValue:
        name = op.access.buffer
        mask = env[op.mask] if op.mask else None
        known = p.forward.get(name) or self.row_values.get(name)
        if known is not None:
            if mask is None and known.dtype == op.dtype:
                return known
            level = max(known.level, mask.level if mask else PRE)
            text = known.text if mask is None else f"{mask.text} ? {known.text} : {constant(op.other, op.dtype)}"
            return self.define(p, (text, op.dtype), level, op.dtype, self._converted(text, known.dtype, op.dtype))
        indirect = tuple((env[v].text, s) for v, s in op.access.indirect)
        if name in self.scratch:
            text, level, stored = f"{self.ident(name)}[{self.column_index()}]", BODY, self._scratch_dtype(name)
        else:
            text = f"{self.ident(name)}[{address(op.access.strides, op.access.offset, indirect)}]"
            level = BODY if full and self.moves_inside(op.access.strides) else PRE
            stored = self.buffers[name].dtype
            text = from_half(text, stored)
        level = max([level, *(env[v].level for v, _ in op.access.indirect)], default=level)
        value_dtype = in_register(stored)
        if mask is not None:
            p.masked = True
            level = max(level, mask.level)
            text = f"{mask.text} ? {self._converted(text, value_dtype, op.dtype)} : {constant(op.other, op.dtype)}"
        else:
            text = self._converted(text, value_dtype, op.dtype)
        if level == PRE and self._written_here(name):
            level = BODY if full else PRE
        return self.define(p, (text, op.dtype), level, op.dtype, text)

    def _written_here(self, name: str) -> bool:
        return any(name in loop.writes for loop in self.nest.loops)

    def _scratch_dtype(self, name: str) -> str:
        return in_register(self.buffers[name].dtype)

    @staticmethod
    def _converted(text: str, have: str, want: str) -> str:
        return text if have == want else c_op("cast", want, have, [text])

    def _store(self, p: Pass, loop: Loop, op: Store, env: dict[str, CValue], full: bool, again: bool) -> None:
        name, value = op.access.buffer, env[op.arg]
        if op.base is not None:
            (p.body if full else p.pre).append(self._scattered(op, env))
            return
        row_value = not full or loop.is_reduction
        (self.row_values if row_value else p.forward)[name] = self._as_stored(p, name, value)
        if again:
            return
        target = p.at(value.level if row_value else max(value.level, BODY))
        if name in self.scratch:
            target.append(f"{self.ident(name)}[{self.column_index()}] = {value.text};")
        elif name not in self.nest.kernel.local:
            where = address(op.access.strides, op.access.offset)
            target.append(f"{self.ident(name)}[{where}] = {to_half(value.text, self.buffers[name].dtype)};")

    def _as_stored(self, p: Pass, name: str, value: CValue) -> CValue:
        """What is read of a buffer that memory holds in half precision, here as by later kernels: the rounded value.

        Of two readers that know it more and less exactly, one may take its own from the other's: what differs is left.
        """
        dtype = self.buffers[name].dtype
        kept = name in self.scratch or name in self.nest.kernel.local
        if dtype not in HALF or kept or not any(name in loop.reads for loop in self.nest.loops):
            return value
        return self.define(p, ("rounded", value.text), value.level, "float32", near_half(value.text, dtype))

    def _scattered(self, op: Store, env: dict[str, CValue]) -> str:
        """A store at a computed address, rounded each time where it adds, as eager's sums of half precision are."""
        name, dtype = op.access.buffer, self.buffers[op.access.buffer].dtype
        places = tuple((env[v].text, s) for v, s in op.access.indirect)
        place = f"{self.ident(name)}[{address(op.access.strides, op.access.offset, places)}]"
        value = env[op.arg].text
        return f"{place} = {to_half(f'{from_half(place, dtype)} + {value}' if op.add else value, dtype)};"

    # -- reductions --------------------------------------------------------------------------------------------------
    def _reduce(self, p: Pass, op: Reduce, arg: CValue, loop: Loop) -> CValue:
        """A row reduction: a variable of the row, joined to in the inner loop."""
        key = ("reduce", op.kind, arg.text, arg.level)
        if key in p.seen:
            return p.seen[key]
        name = self.fresh("r")
        value = self.row_partial(p, name, op, arg)
        p.seen[key] = value
        return value

    def row_partial(self, p: Pass, name: str, op: Reduce, arg: CValue) -> CValue:
        p.pre.append(f"{value_type(op.dtype)} {name} = {reduction_start(op.kind, op.dtype)};")
        join = self.joined(op, name, arg.text) if self.lanes else combine(op.kind, name, arg.text)
        p.body.append(f"{name} = {join};")
        p.reductions.append((OPENMP[op.kind], name))
        if self.lanes:  # each lane is a number of its own, which keeps NaN
            return CValue(name, op.dtype, POST)
        if op.kind in ("max", "min") and is_float(op.dtype):
            flag = f"{name}_nan"
            p.pre.append(f"int {flag} = 0;")
            p.body.append(f"{flag} |= {arg.text} != {arg.text};")
            p.reductions.append(("|", flag))
            p.post.append(f"if ({flag}) {name} = NAN;")
        return CValue(name, op.dtype, POST)

    def _accumulate(self, p: Pass, loop: Loop, op: Reduce, arg: CValue, full: bool) -> None:
        """A column reduction: every row joins into an array over the row (or one number)."""
        kept = [not r and d != 1 for r, d in zip(loop.reduced, loop.dims)]
        name = self.fresh("acc")
        if full and any(kept[self.nest.outer_rank :]):
            self.accumulators.append(Accumulator(name, loop, op, self.nest.columns))
            where = f"{name}[{self.column_index()}]"
            p.body.append(f"{where} = {self.joined(op, where, arg.text)};")
            return
        self.accumulators.append(Accumulator(name, loop, op, 1))
        if full:
            arg = self.row_partial(p, self.fresh("r"), op, arg)
            p.post.append(f"{name}[0] = {self.joined(op, f'{name}[0]', arg.text)};")
        else:
            p.at(arg.level).append(f"{name}[0] = {self.joined(op, f'{name}[0]', arg.text)};")

    @staticmethod
    def joined(op: Reduce, a: str, b: str) -> str:
        return carried(op.kind, op.dtype, a, b)

    # -- scans -------------------------------------------------------------------------------------------------------
    def _scan(self, p: Pass, op: Scan, arg: CValue, loop: Loop) -> CValue:
        """Along the row: a variable, which OpenMP carries through vectors. As in reductions, a flag keeps NaN."""
        if not self.moves_inside(op.strides):
            return self._carry(p, op, arg)
        name = self.fresh("r")
        p.pre.append(f"{value_type(op.dtype)} {name} = {reduction_start(op.kind, op.dtype)};")
        value = CValue(name, op.dtype, AFTER)
        if op.kind == "logaddexp":
            p.pre.append(f"{value_type(op.dtype)} {name}_sum = 0;")
            p.body.append(f"tg_add_exp_{'f32' if op.dtype == 'float32' else 'f64'}(&{name}, &{name}_sum, {arg.text});")
            p.carried.append(("", name))
            log = c_op("log", op.dtype, op.dtype, [f"{name}_sum"])
            return self.define(p, ("scan", name), AFTER, op.dtype, f"{name} + {log}")
        p.body.append(f"{name} = {combine(op.kind, name, arg.text)};")
        p.carried.append((OPENMP[op.kind] if op.kind != "prod" or _in_any_order(loop, op) else "", name))
        if op.kind not in ("max", "min") or not is_float(op.dtype):
            return value
        flag = f"{name}_nan"
        p.pre.append(f"int {flag} = 0;")
        p.body.append(f"{flag} |= {arg.text} != {arg.text};")
        p.carried.append(("|", flag))
        return self.define(p, ("scan", name), AFTER, op.dtype, f"{flag} ? NAN : {name}")

    def _carry(self, p: Pass, op: Scan, arg: CValue) -> CValue:
        """From row to row: an array over the row."""
        line = Line(self.fresh("acc"), op)
        self.lines.append(line)
        where = f"{line.name}[{self.column_index()}]"
        p.body.append(f"{where} = {carried(op.kind, op.dtype, where, arg.text)};")
        return self.define(p, ("scan", line.name), BODY, op.dtype, where)

    def finish_column(self, acc: Accumulator, total: str) -> list[str]:
        """Statements that store one column's result, given the expression of its total."""
        p = Pass()
        env: dict[str, CValue] = {acc.reduce.result: CValue(total, acc.reduce.dtype, PRE)}
        needed = self._after_reduce(acc)
        saved_rows, saved_seen, self.row_values, self.row_seen = self.row_values, self.row_seen, {}, {}
        for op in acc.loop.body:
            if op is acc.reduce or op not in needed:
                continue
            if isinstance(op, Store):
                where = address(op.access.strides, op.access.offset)
                name = op.access.buffer
                text = to_half(env[op.arg].text, self.buffers[name].dtype)
                p.pre.append(f"{self.ident(name)}[{where}] = {text};")
            else:
                env[op.result] = self.value(p, op, env, full=False)
        self.row_values, self.row_seen = saved_rows, saved_seen
        return p.pre

    @staticmethod
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
