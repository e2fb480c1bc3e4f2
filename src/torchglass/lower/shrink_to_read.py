"""Loops compute no more than is read: a loop graph in, the same with smaller loops out.

    pad = F.pad(x, (1, 0)); y = pad[:, :-1] * 0.5 + x       # x: 512 x 1024

computes 512 x 1025 numbers and reads 512 x 1024. Over the latter the first loop has the shape of the second, and they
become one kernel. Only what loops alone read is made smaller, to the smallest box that holds what all of them read.
"""

from __future__ import annotations

from dataclasses import replace

from ..records.loops import Access, Buffer, ExternCall, Index, Load, Loop, LoopGraph, Node, Operation, Store, View
from ..records.sizes import Size, all_known, is_known
from .strides import contiguous

Box = tuple[tuple[int, int], ...]  # for each dimension of a loop, the first index and the end


def shrink_to_read(graph: LoopGraph) -> LoopGraph:
    """Consumers first: what a smaller loop reads may be less, too."""
    nodes, buffers = list(graph.nodes), dict(graph.buffers)
    readers, kept = _readers(graph)
    notes = []
    for position in reversed(range(len(nodes))):
        loop = nodes[position]
        sizes = _row_by_row(loop)
        if not isinstance(loop, Loop) or sizes is None or loop.stores[0].access.buffer in kept:
            continue
        buffer = buffers[loop.stores[0].access.buffer]
        reading = [node for n in readers.get(buffer.name, ()) if isinstance(node := nodes[n], Loop)]
        box = _box(sizes, [(r, o) for r in reading for o in r.loads if o.access.buffer == buffer.name])
        if box is None:
            continue
        smaller, buffers[buffer.name] = _shrunk(loop, box, buffer)
        nodes[position] = smaller
        strides = contiguous(sizes)
        starts: dict[Size, int] = dict(zip(strides, (first for first, _ in box)))
        moved: dict[Size, Size] = dict(zip(strides, smaller.stores[0].access.strides))
        for n in readers[buffer.name]:
            nodes[n] = _reading(nodes[n], buffer.name, starts, moved)
        notes.append(f"{loop.name} is computed over {list(smaller.dims)} of {list(loop.dims)}: no more is read")
    return (
        replace(graph, nodes=tuple(nodes), buffers=buffers, notes=(*graph.notes, *reversed(notes))) if notes else graph
    )


def _readers(graph: LoopGraph) -> tuple[dict[str, list[int]], set[str]]:
    """Where loops read each buffer, and the buffers that stay: others see them, several write them, parts of wholes."""
    readers: dict[str, list[int]] = {}
    written: set[str] = set()
    kept = {o.buffer for o in graph.outputs if isinstance(o, View)}
    for buffer in graph.buffers.values():
        if buffer.alias_of is not None:
            kept |= {buffer.name, buffer.alias_of[0]}
        if buffer.role != "temp":
            kept.add(buffer.name)
    for position, node in enumerate(graph.nodes):
        for name in node.reads:
            readers.setdefault(name, []).append(position)
        if isinstance(node, ExternCall):
            kept.update(node.reads, node.writes)
        kept |= written.intersection(node.writes)
        written.update(node.writes)
    return readers, kept


def _row_by_row(node: Node) -> tuple[int, ...] | None:
    """The sizes of a loop of which every point writes one number, row by row, into a buffer of nothing else."""
    if not isinstance(node, Loop) or node.is_reduction or node.is_scan or len(node.stores) != 1:
        return None
    sizes, access = node.dims, node.stores[0].access
    if not all_known(sizes) or any(size <= 1 for size in sizes):
        return None
    return sizes if not access.indirect and access.offset == 0 and access.strides == contiguous(sizes) else None


def _box(sizes: tuple[int, ...], loads: list[tuple[Loop, Load]]) -> Box | None:
    """What all loads together read, in the loop's own dimensions; None where that is not known, or is everything."""
    boxes = [_read(sizes, reader.dims, load) for reader, load in loads]
    if not boxes or None in boxes:
        return None
    sides = zip(*(box for box in boxes if box is not None))
    union = tuple((min(first for first, _ in side), max(end for _, end in side)) for side in sides)
    return None if all(end - first == size for (first, end), size in zip(union, sizes)) else union


def _read(sizes: tuple[int, ...], dims: tuple[Size, ...], load: Load) -> Box | None:
    """The box that one load reads. Each of its strides is one of the buffer's, and no index leaves its dimension."""
    rest, strides = load.access.offset, contiguous(sizes)
    if load.access.indirect or load.mask is not None or not is_known(rest) or rest < 0:
        return None
    extents: dict[int, int] = {}
    for size, stride in zip(dims, load.access.strides):
        if stride != 0:
            if not is_known(size) or not is_known(stride) or stride in extents:
                return None
            extents[stride] = size
    if not extents.keys() <= set(strides):
        return None
    box = []
    for stride, size in zip(strides, sizes):
        first, rest = divmod(rest, stride)
        end = first + extents.get(stride, 1)
        if end > size:
            return None
        box.append((first, end))
    return tuple(box)


def _shrunk(loop: Loop, box: Box, buffer: Buffer) -> tuple[Loop, Buffer]:
    """The loop over the box, and its buffer, which holds no more."""
    dims = tuple(end - first for first, end in box)
    strides = contiguous(dims)

    def moved(op: Operation) -> Operation:
        if isinstance(op, Store):
            return replace(op, access=replace(op.access, strides=strides))
        if isinstance(op, Load):
            return replace(op, access=replace(op.access, offset=_from(op.access, box)))
        return replace(op, offset=_from(op, box)) if isinstance(op, Index) else op

    body = tuple(map(moved, loop.body))
    return replace(loop, dims=dims, body=body), replace(buffer, shape=dims, strides=strides)


def _from(address: Access | Index, box: Box) -> Size:
    return address.offset + sum(stride * first for stride, (first, _) in zip(address.strides, box))


def _reading(loop: Node, buffer: str, starts: dict[Size, int], moved: dict[Size, Size]) -> Loop:
    """The loop with its loads where the numbers lie now."""
    assert isinstance(loop, Loop)  # what calls read is kept

    def load(op: Operation) -> Operation:
        if not isinstance(op, Load) or op.access.buffer != buffer:
            return op
        offset: Size = 0
        rest = op.access.offset
        for stride, first in starts.items():
            offset = offset + (rest // stride - first) * moved[stride]
            rest = rest % stride
        strides = tuple(moved.get(s, 0) for s in op.access.strides)
        return replace(op, access=replace(op.access, strides=strides, offset=offset))

    return replace(loop, body=tuple(map(load, loop.body)))
