"""Reductions to few numbers, in parts that fill a GPU: a sum of everything is not one program's, nor that of a column.

    loss = x.square().mean()          16,777,216 elements: 528 partial sums, and one program that adds them up
    bias.grad = grad.sum(0)           16,384 rows of 768 columns: 12 programs of 64 columns become 576

A sum of columns that a reduction of rows reads as well, as in the backward of a norm, is left whole: both are one
kernel's work, which the next stage may give to as many programs as it has.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from ...records.launch import unreserved
from ...records.loops import Buffer, Loop, LoopGraph, Node
from ...records.sizes import all_known, hint, is_known, product
from ...records.target import Gpu
from ..split_reduction import Division, can_divide, divided
from ..strategies import Request, loop_strategy


@loop_strategy(Gpu, rank=2)
def divide_reductions(graph: LoopGraph, gpu: Gpu, devices: Collection[str], request: Request) -> LoopGraph:
    """The graph with reductions in parts, and what was decided."""
    of_rows = {name for n in graph.nodes if isinstance(n, Loop) and n.is_reduction and not _keeps_columns(n)
               for name in n.reads}  # fmt: skip
    work = _Dividing(dict(graph.buffers))
    for node in graph.nodes:
        by = None
        if isinstance(node, Loop) and node.is_reduction and graph.buffers[node.writes[0]].device in devices:
            by = division(node, gpu, of_rows)
        work.add(node, by)
    if not work.notes:
        return graph
    return replace(graph, nodes=tuple(work.nodes), buffers=work.buffers, notes=(*graph.notes, *work.notes))


@dataclass
class _Dividing:
    """A graph under way."""

    buffers: dict[str, Buffer]
    nodes: list[Node] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, node: Node, by: Division | None) -> None:
        if by is None:
            self.nodes.append(node)
            return
        assert isinstance(node, Loop)
        first, last, between = divided(node, by, self._fresh, self.buffers[node.writes[0]].device)
        self.buffers |= {buffer.name: buffer for buffer in between}
        self.nodes += [first, last]
        whole, part = product(node.reduce_ranges), product(first.reduce_ranges)
        self.notes.append(f"{node.name} of {whole} elements each in parts of {part}")

    def _fresh(self, name: str) -> str:
        return unreserved(name, self.buffers)


def division(loop: Loop, gpu: Gpu, of_rows: Collection[str]) -> Division | None:
    """Into which parts a reduction is divided; None: its programs are enough, or their work is too little."""
    down, tuned = _keeps_columns(loop), gpu.lowering
    columns = gpu.schedule.column_block if down else 1
    programs = -(-hint(product(loop.ranges)) // columns)
    points = hint(product(loop.reduce_ranges)) * columns
    enough = gpu.multiprocessors if down else gpu.multiprocessors // 2
    if programs >= enough or points < tuned.divided_points or not can_divide(loop):
        return None
    if (
        down
        and all_known(loop.dims)
        and (any(name in of_rows for name in loop.reads) or _goes_with_rows(hint(product(loop.reduce_ranges)), gpu))
    ):
        return None  # fusion shares rows whose number is known
    wanted = -(-tuned.programs_each * gpu.multiprocessors // programs)
    return _parts(loop, min(wanted, points // tuned.part_points))


def _goes_with_rows(rows: int, gpu: Gpu) -> bool:
    """Whether so many rows are fusion's to share, which may give a program's rows to what walks them anyway."""
    fitting = range(gpu.multiprocessors // 2, 4 * gpu.multiprocessors + 1)
    return rows >= gpu.fusion.split_rows and any(rows % n == 0 for n in fitting)


def _keeps_columns(loop: Loop) -> bool:
    """Whether neighbouring results are of neighbours in memory."""
    k = loop.contiguous
    return k is not None and not loop.reduced[k]


def _parts(loop: Loop, wanted: int) -> Division | None:
    """About so many parts: outer dimensions whole, and blocks of the next one."""
    strides = loop.main_access.strides if loop.main_access is not None else ()
    reach = lambda k: -abs(hint(strides[k]))
    over = sorted((k for k, r in enumerate(loop.reduced) if r and loop.dims[k] != 1), key=lambda k: (reach(k), k))
    whole: list[int] = []
    for k in over:
        size = loop.dims[k]
        if wanted < 2:
            break
        if hint(size) <= wanted or (not is_known(size) and hint(size) <= 4 * wanted):
            whole.append(k)
            wanted = -(-wanted // hint(size))
            continue
        if not is_known(size):
            return Division(tuple(whole), k, wanted, -(-size // (16 * wanted)) * 16)
        blocks, block = _blocks(size, wanted)
        if whole and wanted == 2 and blocks * block != size:
            break  # about as many parts as there are, without a mask
        return Division(tuple(whole), k, blocks, block)
    return Division(tuple(whole)) if whole and len(whole) < len(over) else None


def _blocks(size: int, wanted: int) -> tuple[int, int]:
    """How many blocks of how many elements: of equal ones half to four times as many, else the last is shorter."""
    near = (*range(wanted, min(4 * wanted, size) + 1), *range(wanted - 1, wanted // 2, -1))
    equal = [n for n in near if size % n == 0]
    aligned = [n for n in equal if size // n % 16 == 0]
    if blocks := next(iter(aligned or equal), None):
        return blocks, size // blocks
    block = -(-size // wanted)
    block += -block % 16 if block > 16 else 0
    return -(-size // block), block
