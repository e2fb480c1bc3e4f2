"""Numbers computed at the few places where they are read: a loop graph in, the same with such reads replaced out.

    logs = log_softmax(x); loss = -logs[row, target[row]].mean()      # x: 4096 x 2048, target: 4096

reads 4,096 of the 8 million numbers that the first loop would store. The reader computes them itself::

    t8 = load logs[2048*i0 + t7]            t8 = load x[2048*i0 + t7]; t9 = load max[i0]; t10 = sub t8 t9; ...

The first loop goes if nothing else reads it. If others do, it is theirs to fuse with, and needs no memory for this one.

So does a reader of a part, which as a nest of another shape joins no loop over the whole: rotary embedding's
``cat((-x[..., h:], x[..., :h]), -1) * sin`` negates where it reads, and is one kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..records.kernels import FusionDecision
from ..records.loops import (
    Access,
    Compute,
    Const,
    Index,
    Load,
    Loop,
    LoopGraph,
    Node,
    Operation,
    Scalar,
    Store,
    View,
    item_bytes,
)
from ..records.sizes import Size, at_least, divides, hint, product
from ..records.target import Targets
from ..records.tuned.fusion import Fusion
from ..records.tuned.operations import CHEAP
from .align import collapsed
from .groups import device_of

RULE = "inline"


Box: TypeAlias = "tuple[tuple[Size, Size], ...]"
"""For each dimension of a reader the first of its counters at which a read happens, and the one after the last."""


@dataclass(frozen=True)
class _Place:
    """One dimension's index of the loop that is read: ``offset + sum(strides[j] * i_j) + sum(value * factor)``."""

    strides: tuple[Size, ...]
    offset: Size
    values: tuple[tuple[str, Size], ...]


def inline_producers(graph: LoopGraph, targets: Targets) -> tuple[LoopGraph, list[FusionDecision]]:
    """Last makers first, so that what a reader takes over may be taken over in turn."""
    nodes: list[Node | None] = list(graph.nodes)
    outside = {o.buffer for o in graph.outputs if isinstance(o, View)}
    outside |= {name for node in nodes if node is not None and not isinstance(node, Loop) for name in node.reads}
    outside |= {name for b in graph.buffers.values() if b.alias_of is not None for name in (b.name, b.alias_of[0])}
    made = {name for node in graph.nodes if isinstance(node, Loop) for name in node.writes} - outside
    decisions: list[FusionDecision] = []
    reading: dict[str, set[int]] = {}
    for n, node in enumerate(graph.nodes):
        for name in node.reads:
            reading.setdefault(name, set()).add(n)
    for position in reversed(range(len(nodes))):
        maker = nodes[position]
        if not isinstance(maker, Loop) or not _is_plain(maker) or maker.writes[0] in outside:
            continue
        device = device_of(graph, maker)
        tuned = targets.of(device).fusion
        if len(maker.loads) > tuned.inline_loads:
            continue
        if any(graph.buffers[name].alias_of is not None for name in maker.reads):
            continue  # which may be written onto before the reader runs
        name = maker.writes[0]
        readers = sorted(reading.get(name, ()))
        loops = {n: loop for n in readers if isinstance(loop := nodes[n], Loop) and device_of(graph, loop) == device}
        few = [n for n, loop in loops.items() if _is_worth_it(maker, loop, tuned)]
        others = [n for n in readers if n not in few]
        if len(made & {*maker.reads}) <= 1 and all(n in loops and _is_part(maker, loops[n], tuned) for n in others):
            few = readers  # the maker goes; of what it reads, no more needs memory than it did itself
        changed = {n: loop for n in few if (loop := _with_body_inside(maker, loops[n])) is not None}
        points = sum(_points_read(loops[n], name) for n in changed)
        if not changed or points * _each(maker, tuned) > _points(maker):
            continue
        each = item_bytes(graph.buffers[name].dtype)
        saved = each * (points if len(changed) < len(readers) else _points(maker))
        for n, loop in changed.items():
            why = f"{points} of {_points(maker)} numbers are read"
            decisions.append(FusionDecision(maker.name, loop.name, True, RULE, why, saved))
            nodes[n] = loop
            for taken in maker.reads:
                reading[taken].add(n)
        if len(changed) == len(readers):
            nodes[position] = None
            for taken in maker.reads:
                reading[taken].discard(position)
    if not decisions:
        return graph, []
    kept = tuple(node for node in nodes if node is not None)
    gone = {name for node, old in zip(nodes, graph.nodes) if node is None for name in old.writes}
    return replace(graph, nodes=kept, buffers={n: b for n, b in graph.buffers.items() if n not in gone}), decisions


def _points(loop: Loop) -> int:
    return hint(product(loop.dims))


def _points_read(reader: Loop, name: str) -> int:
    """How many numbers a loop reads of a buffer: not those that a mask leaves out."""
    boxes = [_box(reader, load) for load in _loads_of(reader, name)]
    return sum(_points(reader) if box is None else hint(product(end - first for first, end in box)) for box in boxes)


def _loads_of(reader: Loop, name: str) -> list[Load]:
    return [load for load in reader.loads if load.access.buffer == name]


def _each(maker: Loop, tuned: Fusion) -> int:
    """How many numbers the maker must make for each one that is read."""
    return 1 if len(maker.body) <= tuned.inline_short else tuned.inline_few


def _is_worth_it(maker: Loop, reader: Loop, tuned: Fusion) -> bool:
    """Whether few of the numbers are read; or no more than there are, but in no order, and each is cheap."""
    name = maker.writes[0]
    if not _is_cheap_where_masked(maker, reader):
        return False
    points = _points_read(reader, name)
    if points * tuned.inline_few <= _points(maker):
        return True
    gathers = all(load.access.indirect for load in _loads_of(reader, name))
    return gathers and points * _each(maker, tuned) <= _points(maker)


def _is_part(maker: Loop, reader: Loop, tuned: Fusion) -> bool:
    """Whether a reader takes a part of the numbers, each cheap, or reads them under a condition for its counters."""
    if len(maker.body) > tuned.inline_short or not _is_cheap_where_masked(maker, reader):
        return False
    name = maker.writes[0]
    masked = any(load.mask is not None for load in _loads_of(reader, name))
    return masked or _points_read(reader, name) < _points(maker)


def _is_cheap_where_masked(maker: Loop, reader: Loop) -> bool:
    """Under a condition a number is computed at all of the reader's points, and left out where it is not wanted."""
    cheap = all(op.op in CHEAP for op in maker.body if isinstance(op, Compute))
    return cheap or all(load.mask is None for load in _loads_of(reader, maker.writes[0]))


def _box(reader: Loop, load: Load) -> Box | None:
    """Where a load happens: everywhere, or within the bounds that its mask sets for counters. None if unclear."""
    whole: Box = tuple((0, size) for size in reader.dims)
    known = {op.result: op for op in reader.body if not isinstance(op, Store)}
    return whole if load.mask is None else _within(whole, load.mask, known)


def _within(box: Box, mask: str, known: Mapping[str, Operation]) -> Box | None:
    """The box without what a condition ``i < 64``, ``i >= 64`` or two of them leave out."""
    test = known[mask]
    if not isinstance(test, Compute):
        return None
    if test.op == "and":
        half = _within(box, test.args[0], known)
        return None if half is None else _within(half, test.args[1], known)
    if test.op not in ("lt", "ge"):
        return None
    counter, edge = known[test.args[0]], _number(known[test.args[1]])
    if not isinstance(counter, Index) or edge is None or counter.offset != 0:
        return None
    moving = [k for k, stride in enumerate(counter.strides) if stride != 0]
    if len(moving) != 1 or counter.strides[moving[0]] != 1:
        return None
    first, end = box[moving[0]]
    if test.op == "lt":
        end = end if at_least(edge - end, 0) else edge
    else:
        first = first if at_least(first - edge, 0) else edge
    inside = at_least(first, 0) and at_least(end - first, 1) and at_least(box[moving[0]][1] - end, 0)
    return (*box[: moving[0]], (first, end), *box[moving[0] + 1 :]) if inside else None


def _number(op: Operation | None) -> Size | None:
    """The number that an operation makes, the same at all points."""
    if isinstance(op, Const):
        return int(op.value)
    return op.offset if isinstance(op, Index) and not any(op.strides) else None


def _is_plain(loop: Loop) -> bool:
    """Whether each point of the loop makes one number, stored at a known place of its own, without checks."""
    if loop.is_reduction or loop.is_scan or len(loop.stores) != 1:
        return False
    if 0 in loop.dims:
        return False
    if any(isinstance(op, Compute) and op.op == "bound" for op in loop.body):
        return False  # it raises what eager would, whatever is read
    return not loop.stores[0].access.indirect


def _with_body_inside(maker: Loop, reader: Loop) -> Loop | None:
    """The reader with every load of what ``maker`` stores replaced by the maker's body there; None if one cannot be."""
    maker = collapsed(maker)
    store, known = maker.stores[0], {op.result: op for op in reader.body if not isinstance(op, Store)}
    body: list[Operation] = []
    names: dict[str, str] = {}
    for op in reader.body:
        if isinstance(op, Load) and op.access.buffer == store.access.buffer:
            places = _places(maker, op, reader, known)
            if places is None:
                return None
            names[op.result] = _append(body, maker, op, places, names)
            continue
        body.append(_renamed(op, names, len(body)))
    ops, origins = (tuple(dict.fromkeys((*getattr(reader, f), *getattr(maker, f)))) for f in ("ops", "origins"))
    return replace(reader, body=tuple(body), ops=ops, origins=origins)


def _places(maker: Loop, load: Load, reader: Loop, known: Mapping[str, Operation]) -> list[_Place] | None:
    """Where in each of the maker's dimensions a load reads; None if that is not certain."""
    written, access, box = maker.stores[0].access, load.access, _box(reader, load)
    numbers = (access.offset, *access.strides, *(s for _, s in access.indirect))
    sizes = [size for value, _ in access.indirect if (size := _bound(known, value)) is not None]
    if box is None or len(sizes) < len(access.indirect):
        return None
    steps, origin = written.strides, written.offset
    offset, strides, jumps = numbers[0], numbers[1 : len(box) + 1], numbers[len(box) + 1 :]
    start = offset + sum(s * first for s, (first, _) in zip(strides, box)) - origin
    if not all(at_least(n, 0) for n in (start, start + origin, *numbers[1:], *sizes)):
        return None
    if any(size != 1 and not at_least(step, 1) for step, size in zip(steps, maker.dims)):
        return None
    begin, moves, jumped = (_taken_apart(ways, steps, maker.dims) for ways in ((start,), strides, jumps))
    if begin is None or moves is None or jumped is None:
        return None
    found: list[_Place] = []
    for k, size in enumerate(maker.dims):
        own, far = [move[k] for move in moves], [jump[k] for jump in jumped]
        furthest = begin[0][k] + sum(s * (end - first - 1) for s, (first, end) in zip(own, box))
        if not at_least(size - 1 - furthest - sum(s * (most - 1) for s, most in zip(far, sizes)), 0):
            return None
        first_of_all = begin[0][k] - sum(s * first for s, (first, _) in zip(own, box))
        values = tuple((value, s) for (value, _), s in zip(access.indirect, far) if s != 0)
        found.append(_Place(tuple(own), first_of_all, values))
    return found


def _taken_apart(ways: tuple[Size, ...], steps: tuple[Size, ...], dims: tuple[Size, ...]) -> list[list[Size]] | None:
    """Ways through memory as steps in each dimension, none of them negative; None where one ends between numbers."""
    order = sorted((k for k, size in enumerate(dims) if size != 1), key=lambda k: (-hint(steps[k]), k))
    found: list[list[Size]] = []
    for rest in ways:
        parts: list[Size] = [0] * len(dims)
        for k in order:
            parts[k] = rest // steps[k] if divides(steps[k], rest) else hint(rest) // hint(steps[k])
            rest = rest - parts[k] * steps[k]
        if rest != 0 or not all(at_least(part, 0) for part in parts):
            return None
        found.append(parts)
    return found


def _bound(known: Mapping[str, Operation], value: str) -> Size | None:
    """The size that a computed index has been checked against."""
    op = known.get(value)
    return _number(known.get(op.args[1])) if isinstance(op, Compute) and op.op == "bound" else None


def _append(body: list[Operation], maker: Loop, load: Load, places: list[_Place], outer: dict[str, str]) -> str:
    """The maker's operations at these places; the name of what they make."""
    names: dict[str, str] = {}

    def add(op: Operation) -> str:
        assert not isinstance(op, Store)
        body.append(op)
        return op.result

    def sum_of(strides: tuple[Size, ...], offset: Size) -> tuple[tuple[Size, ...], Size, dict[str, Size]]:
        """An address in the maker's counters as one in the reader's and in computed values."""
        own = tuple(sum(s * p.strides[j] for s, p in zip(strides, places)) for j in range(len(load.access.strides)))
        values: dict[str, Size] = {}
        for s, p in zip(strides, places):
            for value, factor in p.values:
                values[outer[value]] = values.get(outer[value], 0) + s * factor
        values = {value: factor for value, factor in values.items() if factor != 0}
        return own, offset + sum(s * p.offset for s, p in zip(strides, places)), values

    for op in maker.body:
        if isinstance(op, Store):
            names["result"] = names[op.arg]
        elif isinstance(op, Load):
            own, offset, values = sum_of(op.access.strides, op.access.offset)
            indirect = (*((names[v], s) for v, s in op.access.indirect), *values.items())
            mask = outer[load.mask] if load.mask is not None else None
            if op.mask is not None:
                mask = add(Compute(f"t{len(body)}", "and", (mask, names[op.mask]), "bool")) if mask else names[op.mask]
            access = Access(op.access.buffer, own, offset, indirect)
            names[op.result] = add(replace(op, result=f"t{len(body)}", access=access, mask=mask))
        elif isinstance(op, Index):
            own, offset, values = sum_of(op.strides, op.offset)
            names[op.result] = add(replace(op, result=f"t{len(body)}", strides=own, offset=offset))
            for value, factor in values.items():
                step = add(Index(f"t{len(body)}", (0,) * len(own), factor, op.dtype))
                value = add(Compute(f"t{len(body)}", "cast", (value,), op.dtype))
                moved = add(Compute(f"t{len(body)}", "mul", (value, step), op.dtype))
                names[op.result] = add(Compute(f"t{len(body)}", "add", (names[op.result], moved), op.dtype))
        else:
            names[op.result] = add(_renamed(op, names, len(body), record=False))
    result = names["result"]
    if _dtype(maker) != load.dtype:
        result = add(Compute(f"t{len(body)}", "cast", (result,), load.dtype))
    if load.mask is None:
        return result
    other = add(Const(f"t{len(body)}", load.other, load.dtype))
    return add(Compute(f"t{len(body)}", "where", (outer[load.mask], result, other), load.dtype))


def _dtype(maker: Loop) -> str:
    """Of the number that a loop stores."""
    arg = maker.stores[0].arg
    return next(op.dtype for op in maker.body if not isinstance(op, Store) and op.result == arg)


def _renamed(op: Operation, names: dict[str, str], count: int, record: bool = True) -> Operation:
    """The operation over values as they are called in the new body; ``names`` learns its own."""
    result = f"t{count}"
    if isinstance(op, (Load, Store)):
        access = replace(op.access, indirect=tuple((names[v], s) for v, s in op.access.indirect))
        if isinstance(op, Store):
            return replace(op, access=access, arg=names[op.arg])
        new: Operation = replace(op, result=result, access=access, mask=names[op.mask] if op.mask else None)
    elif isinstance(op, Compute):
        new = replace(op, result=result, args=tuple(names[a] for a in op.args))
    elif isinstance(op, Const | Index | Scalar):
        new = replace(op, result=result)
    else:
        new = replace(op, result=result, arg=names[op.arg])
    if record:
        names[op.result] = result
    return new
