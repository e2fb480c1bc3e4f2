"""Numbers computed at the few places where they are read: a loop graph in, the same with such reads replaced out.

    logs = log_softmax(x); loss = -logs[row, target[row]].mean()      # x: 4096 x 2048, target: 4096

reads 4,096 of the 8 million numbers that the first loop would store. The reader computes them itself::

    t8 = load logs[2048*i0 + t7]            t8 = load x[2048*i0 + t7]; t9 = load max[i0]; t10 = sub t8 t9; ...

The first loop goes if nothing else reads it. If others do, it is theirs to fuse with, and needs no memory for this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

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
    Size,
    Store,
    View,
    item_bytes,
    product,
)
from .align import collapsed

FEW = 8  # numbers are made for each one that is read
SHORT = 8  # operations that are cheaper to do again for one element than to store it and read it back
UNKNOWN_POINTS = 1 << 62
MOST_LOADS = 4  # of what makes one of them
RULE = "place"


@dataclass(frozen=True)
class _Place:
    """One dimension's index of the loop that is read: ``offset + sum(strides[j] * i_j) + sum(value * factor)``."""

    strides: tuple[int, ...]
    offset: int
    values: tuple[tuple[str, int], ...]


def compute_at_places(graph: LoopGraph) -> tuple[LoopGraph, list[FusionDecision]]:
    """Last makers first, so that what a reader takes over may be taken over in turn."""
    nodes: list[Node | None] = list(graph.nodes)
    outside = {o.buffer for o in graph.outputs if isinstance(o, View)}
    outside |= {name for node in nodes if node is not None and not isinstance(node, Loop) for name in node.reads}
    outside |= {name for b in graph.buffers.values() if b.inside is not None for name in (b.name, b.inside[0])}
    decisions: list[FusionDecision] = []
    reading: dict[str, set[int]] = {}
    for n, node in enumerate(graph.nodes):
        for name in node.reads:
            reading.setdefault(name, set()).add(n)
    for position in reversed(range(len(nodes))):
        maker = nodes[position]
        if not isinstance(maker, Loop) or not _is_plain(maker) or maker.writes[0] in outside:
            continue
        if any(graph.buffers[name].inside is not None for name in maker.reads):
            continue  # which may be written onto before the reader runs
        name = maker.writes[0]
        readers = sorted(reading.get(name, ()))
        few = [n for n in readers if _is_worth_it(maker, nodes[n], name)]
        changed = {n: loop for n in few if (loop := _at_its_places(maker, nodes[n])) is not None}
        points = sum(_points_read(nodes[n], name) for n in changed)
        if not changed or points * (1 if len(maker.body) <= SHORT else FEW) > _points(maker):
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


def _points(node: Node | None) -> int:
    count = product(node.dims) if isinstance(node, Loop) else 0
    return count if isinstance(count, int) else UNKNOWN_POINTS


def _points_read(node: Node | None, name: str) -> int:
    reads = sum(op.access.buffer == name for op in node.loads) if isinstance(node, Loop) else 0
    return _points(node) * reads


def _is_worth_it(maker: Loop, reader: Node | None, name: str) -> bool:
    """Whether few of the numbers are read; or no more than there are, but in no order, and each is cheap."""
    points = _points_read(reader, name)
    if points * FEW <= _points(maker):
        return True
    gathers = isinstance(reader, Loop) and all(op.access.indirect for op in reader.loads if op.access.buffer == name)
    return gathers and points <= _points(maker) and len(maker.body) <= SHORT


def _is_plain(loop: Loop) -> bool:
    """Whether each point of the loop makes one number from few others, stored at a place of its own, without checks."""
    if loop.is_reduction or loop.is_scan or len(loop.stores) != 1 or len(loop.loads) > MOST_LOADS:
        return False
    if not all(isinstance(d, int) and d > 0 for d in loop.dims):
        return False
    if any(isinstance(op, Compute) and op.op == "bound" for op in loop.body):
        return False  # it raises what eager would, whatever is read
    access = loop.stores[0].access
    return not access.indirect and all(isinstance(s, int) for s in (*access.strides, access.offset))


def _at_its_places(maker: Loop, reader: Node | None) -> Loop | None:
    """The reader with every load of what ``maker`` stores replaced by the maker's body there; None if one cannot be."""
    assert isinstance(reader, Loop)
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
    written, access = maker.stores[0].access, load.access
    sizes = [_bound(known, value) for value, _ in access.indirect]
    numbers = (access.offset, *access.strides, *(s for _, s in access.indirect), *reader.dims, *sizes)
    if load.mask is not None or not all(isinstance(n, int) and n >= 0 for n in numbers):
        return None
    order = sorted(range(len(maker.dims)), key=lambda k: (-written.strides[k], k))
    if any(written.strides[k] <= 0 and maker.dims[k] != 1 for k in order):
        return None
    steps = [written.strides[k] for k in order]

    def taken_apart(stride: Size) -> list[int] | None:
        """A step through memory as steps in each dimension; None where it ends between numbers."""
        parts, rest = [], stride
        for step, k in zip(steps, order):
            part, rest = divmod(rest, step) if maker.dims[k] != 1 else (0, rest)
            parts.append(part)
        return parts if rest == 0 else None

    offset = taken_apart(access.offset - written.offset) if access.offset >= written.offset else None
    moves = [taken_apart(s) for s in access.strides]
    jumps = [taken_apart(s) for _, s in access.indirect]
    if offset is None or None in moves or None in jumps:
        return None
    found: list[_Place | None] = [None] * len(order)
    for n, k in enumerate(order):
        strides = tuple(m[n] for m in moves if m is not None)
        values = tuple((v, j[n]) for (v, _), j in zip(access.indirect, jumps) if j is not None and j[n])
        furthest = offset[n] + sum(s * (d - 1) for s, d in zip(strides, reader.dims))
        furthest += sum(j[n] * (size - 1) for j, size in zip(jumps, sizes) if j is not None and size is not None)
        if furthest >= maker.dims[k]:
            return None
        found[k] = _Place(strides, offset[n], values)
    return [p for p in found if p is not None]


def _bound(known: Mapping[str, Operation], value: str) -> int | None:
    """The size that a computed index has been checked against."""
    op = known.get(value)
    if not isinstance(op, Compute) or op.op != "bound":
        return None
    size = known.get(op.args[1])
    return int(size.value) if isinstance(size, Const) else None


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
        return own, offset + sum(s * p.offset for s, p in zip(strides, places)), {v: s for v, s in values.items() if s}

    for op in maker.body:
        if isinstance(op, Store):
            names["result"] = names[op.arg]
        elif isinstance(op, Load):
            own, offset, values = sum_of(op.access.strides, op.access.offset)
            indirect = (*((names[v], s) for v, s in op.access.indirect), *values.items())
            mask = names[op.mask] if op.mask is not None else None
            access = Access(op.access.buffer, own, offset, indirect)
            names[op.result] = add(replace(op, result=f"t{len(body)}", access=access, mask=mask))
        elif isinstance(op, Index):
            own, offset, values = sum_of(op.strides, op.offset)
            names[op.result] = add(replace(op, result=f"t{len(body)}", strides=own, offset=offset))
            for value, factor in values.items():
                step = add(Const(f"t{len(body)}", factor, op.dtype))
                value = add(Compute(f"t{len(body)}", "cast", (value,), op.dtype))
                moved = add(Compute(f"t{len(body)}", "mul", (value, step), op.dtype))
                names[op.result] = add(Compute(f"t{len(body)}", "add", (names[op.result], moved), op.dtype))
        else:
            names[op.result] = add(_renamed(op, names, len(body), record=False))
    made = _dtype(maker)
    if made != load.dtype:
        return add(Compute(f"t{len(body)}", "cast", (names["result"],), load.dtype))
    return names["result"]


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
    elif isinstance(op, Const | Index):
        new = replace(op, result=result)
    else:
        new = replace(op, result=result, arg=names[op.arg])
    if record:
        names[op.result] = result
    return new
