"""One schedule as one ``@triton.jit`` function: the axes of its tile, then its passes over a row.

A row softmax over (512, 100) becomes programs of some rows, every row whole in registers::

    @triton.jit
    def kernel_0(x_ptr, softmax_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
        i0 = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
        i1 = tl.arange(0, RBLOCK)[None, :]
        rmask = i1 < 100
        t0 = tl.load(x_ptr + (100*i0 + i1), rmask)
        r1 = tl.reduce(tl.where(rmask, t0, float("-inf")), 1, tg_maximum, keep_dims=True)
        ...

It takes the schedule's ``pointers`` (buffers), its ``symbols`` (sizes) and ``scalars``, and the blocks of the tile.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..records.loops import Buffer, Compute
from ..records.schedule import GpuMapping, RowPass, Schedule, TileAxis
from ..records.sizes import Size, text
from ..records.triton_support import TYPES
from .triton_body import BODY, FOURS, POST, PRE, BodyPrinter, pointer, scalar_name


def kernel_text(schedule: Schedule, buffers: dict[str, Buffer]) -> str:
    """The function's source, with its decorator; CannotPrint names kernel, loop and operation that have no text."""
    mapping: GpuMapping = schedule.mapping
    parameters = [pointer(b) for b in schedule.pointers]
    parameters += [f"{s}: tl.int64" if mapping.index_bits == 64 else s for s in schedule.symbols]
    parameters += [f"{scalar_name(*one)}: {TYPES[dtype]}" for one, dtype in schedule.scalars.items()]
    parameters += [f"{axis.constant}: tl.constexpr" for axis in mapping.axes]
    head = ["@triton.jit", f"def {schedule.name}({', '.join(parameters)}):"]
    return "\n".join([*head, *(f"    {line}" for line in _lines(schedule, buffers))])


def _lines(schedule: Schedule, buffers: dict[str, Buffer]) -> Iterator[str]:
    """All that a program does; twice where its block may be whole, or its row one block."""
    mapping: GpuMapping = schedule.mapping
    printer = KernelPrinter(schedule, buffers)
    usual = list(printer.lines())
    if mapping.last_apart:
        (axis,) = mapping.axes
        wide = ".to(tl.int64)" if mapping.index_bits == 64 else ""
        condition = f"(tl.program_id(0){wide} + 1) * {axis.constant} <= {text(axis.size, 'triton')}"
        special = KernelPrinter(schedule, buffers, masked=False)
    elif schedule.held is not None:
        condition = f"{text(mapping.columns.size, 'triton')} <= {mapping.columns.constant}"
        special = KernelPrinter(schedule.held, buffers, first=printer.body.count)  # a name has one type in Triton
    else:
        yield from usual
        return
    yield f"if {condition}:"
    yield from (f"    {line}" for line in special.lines())
    yield "else:"
    yield from (f"    {line}" for line in usual)


class KernelPrinter:
    """The lines of one function."""

    def __init__(self, schedule: Schedule, buffers: dict[str, Buffer], masked: bool = True, first: int = 0) -> None:
        self.schedule, self.mapping = schedule, schedule.mapping
        self.body = BodyPrinter(schedule, buffers, masked, first)
        self.tile = self.body.tile
        self.draws = any(isinstance(o, Compute) and o.op == "philox" for loop in schedule.loops for o in loop.body)

    def lines(self) -> Iterator[str]:
        for axis in self.mapping.axes:
            if axis.kind != "serial":
                yield from self._axis(axis)
        printed: set[str] = set()
        for k, one in enumerate((RowPass(row=self.schedule.before), *self.schedule.passes)):
            if k > 1 and self.mapping.packed:
                self.body.convert_again()
            else:
                self.body.begin_pass()
            for name in (*one.full, *one.row):
                self.body.loop(self.schedule.by_name[name], again=name in printed)
                printed.add(name)
            if not self.mapping.packed:
                yield from self._pass()
        if self.mapping.packed:  # all passes over a row before the next row
            yield from self._pass()

    def _pass(self) -> Iterator[str]:
        return self._sections() if self.tile.walked else iter(self.body.sections[BODY])

    def _sections(self) -> Iterator[str]:
        """A pass over what is walked block by block: a row, or a program's rows."""
        walked = self.mapping.walked
        yield from self.body.sections[PRE]
        if self.body.sections[BODY]:
            yield f"for start in {self._range(walked)}:"
            yield from (f"    {line}" for line in (*self._axis(walked), *self.body.sections[BODY]))
        yield from self.body.sections[POST]

    def _range(self, walked: TileAxis) -> str:
        bounds = f"0, {text(walked.size, 'triton')}, {walked.constant}"
        stages = self.mapping.stages
        return f"range({bounds})" if stages == 1 else f"tl.range({bounds}, num_stages={stages})"

    def _axis(self, axis: TileAxis) -> Iterator[str]:
        """An axis's counter, those of its dimensions, and its mask."""
        counter, wide = self.tile.counters[axis.name], ".to(tl.int64)" if self.tile.wide else ""
        side, begin = self.tile.side(axis.name), "start + " if axis.kind == "serial" else ""
        if axis.kind == "parallel":
            begin, wide = f"tl.program_id({self.mapping.parallel.index(axis)}){wide} * {axis.constant} + ", ""
        yield f"{counter} = {begin}tl.arange(0, {axis.constant}){side}{wide}"
        if self.draws and self.tile.fours in axis.dims:
            yield f"{FOURS} = {begin}4 * tl.arange(0, {axis.constant} // 4){side}{wide}"
        if len(axis.dims) > 1:
            yield from self._decoded(counter, axis)
        if axis.name in self.tile.masks:
            yield f"{self.tile.masks[axis.name]} = {counter} < {text(axis.size, 'triton')}"

    def _decoded(self, counter: str, axis: TileAxis) -> Iterator[str]:
        """Counters of several dimensions from one that runs over all of them."""
        step: Size = 1
        for k in reversed(axis.dims):
            size = self.schedule.dims[k]
            size = 1 if size == 0 else size  # of no points: nothing is to be divided by zero
            rest = counter if step == 1 else f"{counter} // {text(step, 'triton')}"
            yield f"i{k} = {rest}" if k == axis.dims[0] else f"i{k} = {rest} % {text(size, 'triton')}"
            step = step * size
