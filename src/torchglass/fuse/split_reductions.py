"""Long reductions in two steps on a GPU, whose programs add nothing to one another's results.

A sum down 16,384 rows of 1,024 columns becomes 256 sums of 64 rows, and a sum of those::

    loop dw_parts over [256, reduce 64, 1024]: ... store dw_parts[1024*i0 + i2]
    loop dw over [reduce 256, 1024]: t1 = load dw_parts[1024*i0 + i1]; ...

Both are ordinary loops: the first may join what else walks the rows (a norm's backward: ``legality.own_rows``), and the
parts lie in memory of the normal plan, in the dtype that they are added up in, so that a result of half precision is
rounded once, and neighbouring columns' next to one another. There are as many parts as give all multiprocessors rows
alike, divisors of the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from ..records.check_loops import operands
from ..records.kernels import FusionDecision
from ..records.loops import (
    Access,
    Buffer,
    Compute,
    Index,
    Load,
    Loop,
    LoopGraph,
    Node,
    Operation,
    Reduce,
    Store,
    item_bytes,
    rename_dims,
)  # fmt: skip
from ..records.sizes import Size, all_known, hint, is_known, known, product
from ..records.target import Gpu, Targets
from .align import collapsed, drop_ones
from .groups import device_of
from .legality import COLUMN, reduction_kind

RULE = "split"
NEAR = 8
"""Nodes back to which a second step looks for another like it."""


class Whole(Exception):
    """Why a reduction stays in one step; an empty reason is not worth a word."""


@dataclass(frozen=True)
class _Split:
    """A loop in two steps, and the buffers between them."""

    parts: Loop
    rest: Loop
    buffers: tuple[Buffer, ...]


def split_reductions(graph: LoopGraph, targets: Targets) -> tuple[LoopGraph, list[FusionDecision]]:
    """The graph with long reductions in two steps, and why others are not."""
    nodes: list[Node] = []
    buffers, decisions = dict(graph.buffers), list[FusionDecision]()
    for node in graph.nodes:
        target = targets.of(device_of(graph, node)) if isinstance(node, Loop) else None
        if not isinstance(node, Loop) or not isinstance(target, Gpu) or 0 in node.dims:
            nodes.append(node)
            continue
        loop = collapsed(drop_ones(node))
        try:
            split = _split(loop, _parts(loop, target, buffers), buffers)
        except Whole as why:
            nodes.append(loop)
            if str(why):
                decisions.append(FusionDecision(loop.name, "parts of its rows", False, RULE, str(why)))
            continue
        buffers.update({b.name: b for b in split.buffers})
        nodes.append(split.parts)
        _add_last(nodes, split.rest)
    if len(buffers) == len(graph.buffers):
        return graph, decisions
    return replace(graph, nodes=tuple(nodes), buffers=buffers), decisions


def _add_last(nodes: list[Node], rest: Loop) -> None:
    """A second step goes with one before it of the same shape: a norm's two are too small for a kernel each."""
    for n in reversed(range(max(0, len(nodes) - NEAR), len(nodes))):
        before = nodes[n]
        if not isinstance(before, Loop) or (before.dims, before.reduced) != (rest.dims, rest.reduced):
            continue
        if not any(set(before.writes) & set(node.reads) for node in (*nodes[n + 1 :], rest)):
            del nodes[n]
            rest = _together(before, rest)
        break
    nodes.append(rest)


def _together(first: Loop, second: Loop) -> Loop:
    """One loop of both; the second one's name, values told apart."""
    body = (*_renamed(first.body, "a"), *_renamed(second.body, "b"))
    ops, origins = (*first.ops, *second.ops), tuple(dict.fromkeys((*first.origins, *second.origins)))
    return replace(second, body=body, ops=ops, origins=origins)


def _renamed(body: tuple[Operation, ...], mark: str) -> Iterator[Operation]:
    new = lambda name: f"{name}{mark}"
    for op in body:
        changed: Operation = op if isinstance(op, Store) else replace(op, result=new(op.result))
        if isinstance(changed, (Reduce, Store)):
            changed = replace(changed, arg=new(changed.arg))
        elif isinstance(changed, Load):
            mask = None if changed.mask is None else new(changed.mask)
            through = tuple((new(v), s) for v, s in changed.access.indirect)
            changed = replace(changed, mask=mask, access=replace(changed.access, indirect=through))
        elif isinstance(changed, Compute):
            changed = replace(changed, args=tuple(map(new, changed.args)))
        yield changed


# -- how many parts --------------------------------------------------------------------------------------------------
def _parts(loop: Loop, target: Gpu, buffers: Mapping[str, Buffer]) -> int:
    """How many parts pay; Whole if none do."""
    if not loop.is_reduction or loop.is_scan or loop.is_scatter:
        raise Whole("")
    tuned, processors = target.fusion, target.multiprocessors
    if not all_known(loop.dims):
        raise Whole("their number is not known")
    kept, rows = prod(d for d in loop.ranges if is_known(d)), prod(d for d in loop.reduce_ranges if is_known(d))
    if reduction_kind(loop) != COLUMN:
        if 2 * kept > processors or rows < tuned.split_row:
            raise Whole("")
        most = 4 * processors // kept
        return _largest(loop, [n for n in _candidates(loop, most) if rows // n >= tuned.split_row // 8])
    if rows < tuned.split_rows:
        raise Whole(f"{rows} are few: what a second kernel reads again is still in cache")
    fit = tuned.packed_columns if _reads_halves(loop, buffers) else tuned.persistent_columns
    if kept > fit and kept >= processors * tuned.split_columns:
        raise Whole(f"{kept} columns are enough for all multiprocessors, and too wide to be kept beside their sums")
    share = lambda parts: parts / (processors * -(-parts // processors))
    found = [n for n in _candidates(loop, 4 * processors) if rows // n >= tuned.split_least]
    even = [n for n in found if share(n) >= max(map(share, found)) - 0.1 and share(n) >= tuned.least_share]
    most = processors if kept > tuned.persistent_columns else 2 * processors  # one alone has a wide row
    return _largest(loop, [n for n in even if n <= most] or even)


def _reads_halves(loop: Loop, buffers: Mapping[str, Buffer]) -> bool:
    """Whether what it has of each row and column are numbers of at most two bytes, which a program keeps so."""
    moves = lambda load, sides: any(s != 0 and side for s, side in zip(load.access.strides, sides))
    along = [op for op in loop.loads if moves(op, loop.reduced) and moves(op, [not r for r in loop.reduced])]
    return all(item_bytes(buffers[op.access.buffer].dtype) <= 2 for op in along)


def _largest(loop: Loop, found: list[int]) -> int:
    parts = max(found, default=1)
    if parts == 1:
        raise Whole(f"{product(loop.reduce_ranges)} have no divisor by which all multiprocessors could share them")
    return parts


def _candidates(loop: Loop, most: int) -> Iterator[int]:
    """Numbers of parts that are the first dimensions and a divisor of the next."""
    before = 1
    for size in filter(is_known, loop.reduce_ranges):
        yield from (before * n for n in range(1, min(size, most // before) + 1) if size % n == 0)
        before *= size
        if before > most:
            return


# -- two steps -------------------------------------------------------------------------------------------------------
KEPT, PART, SUMMED = "kept", "part", "summed"


def _split(loop: Loop, parts_wanted: int, buffers: Mapping[str, Buffer]) -> _Split:
    """The loop in so many parts, and what makes its results of them."""
    parts, kinds = _divided(loop, parts_wanted)
    reductions = [op for op in parts.body if isinstance(op, Reduce)]
    made = {op.result for op in reductions}
    after = _needed(parts, {op.arg for op in parts.stores}, made)
    if any(s != 0 and kind != KEPT for op in after for s, kind in zip(_strides(op), kinds)):
        raise Whole("")
    select = lambda values: tuple(v for v, kind in zip(values, kinds) if kind != SUMMED)
    sizes = select(parts.dims)
    outward = [k for kind in (PART, KEPT) for k, own in enumerate(kinds) if own == kind]
    steps = {k: product(parts.dims[after] for after in outward[n + 1 :]) for n, k in enumerate(outward)}
    where = tuple(steps.get(k, 0) for k in range(len(kinds)))
    device, between = buffers[loop.writes[0]].device, list[Buffer]()
    first, second = _needed(parts, {op.arg for op in reductions}, set()), list[Operation]()
    for n, op in enumerate(reductions):
        name = _unused(f"{loop.name}_parts" + (f"_{n}" if n else ""), buffers)
        between.append(Buffer(name, op.dtype, sizes, select(where), device=device))
        first += [op, Store(Access(name, where), op.result)]
        part = f"{op.result}_part"
        second += [Load(part, Access(name, where), op.dtype), replace(op, arg=part)]
    whole = replace(parts, body=(*second, *after, *parts.stores))
    rest = rename_dims(whole, sizes, tuple(kind == PART for kind in select(kinds)), select)
    return _Split(replace(parts, name=f"{loop.name}_parts", body=tuple(first)), rest, tuple(between))


def _divided(loop: Loop, wanted: int) -> tuple[Loop, tuple[str, ...]]:
    """The loop over parts, and what each of its dimensions is."""
    sizes, kinds, pieces = list[Size](), list[str](), list[tuple[int, ...]]()
    for size, reduced in zip(loop.dims, loop.reduced):
        here = min(wanted, known(size) or 1) if reduced else 1
        wanted //= here
        new = [(here, PART)] * (here > 1) + [(size // here, SUMMED if reduced else KEPT)] * (size != here)
        sizes += [n for n, _ in new]
        kinds += [kind for _, kind in new]
        pieces.append((hint(size // here), 1)[2 - len(new) :])

    def move(strides: tuple[Size, ...]) -> tuple[Size, ...]:
        return tuple(s * step for s, steps in zip(strides, pieces) for step in steps)

    return rename_dims(loop, tuple(sizes), tuple(kind == SUMMED for kind in kinds), move), tuple(kinds)


def _needed(loop: Loop, wanted: set[str], known_already: set[str]) -> list[Operation]:
    """The operations of a body that some of its values need, those that are known already left out."""
    wanted, out = wanted - known_already, list[Operation]()
    for op in reversed(loop.body):
        if not isinstance(op, Store) and op.result in wanted and op.result not in known_already:
            out.append(op)
            wanted |= set(operands(op)) - known_already
    return out[::-1]


def _strides(op: Operation) -> tuple[Size, ...]:
    return op.access.strides if isinstance(op, Load) else op.strides if isinstance(op, Index) else ()


def _unused(name: str, buffers: Mapping[str, Buffer]) -> str:
    while name in buffers:
        name += "_again"
    return name
