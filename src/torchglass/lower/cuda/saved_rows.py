"""What a forward keeps for backward, read as it lies: padded products leave their results with longer rows.

The graph says how eager's tensors lie, so its loops read a saved ``logits[50257*i0 + i1]``. Those that can read it by
longer rows do; for others, and of a layout that is none of rows, the tensor is laid out as eager's first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ...records.loops import Buffer, LoopGraph, Node, View
from ...records.sizes import Size, hint, is_known
from ...records.target import Gpu
from ..strategies import Request, loop_strategy
from ..strides import contiguous
from .edited_graph import EditedGraph, copying
from .row_layout import RowLayout


@loop_strategy(Gpu, rank=0)
def read_saved_rows(graph: LoopGraph, gpu: Gpu, devices: Collection[str], request: Request) -> LoopGraph:
    """The graph with inputs as they arrive."""
    given = zip(graph.inputs, request.input_strides)
    moved = {name: strides for name, strides in given if strides is not None and name in graph.buffers}
    moved = {name: s for name, s in moved.items() if not _lies(graph.buffers[name], s)}
    work = EditedGraph(graph, request.returned)
    notes = []
    for name, strides in moved.items():
        if graph.buffers[name].device in devices:
            notes.append(_arrive(work, name, strides))
    return work.finished(notes) if notes else graph


def _arrive(work: EditedGraph, name: str, strides: tuple[Size, ...]) -> str:
    """Have all read an input by its strides; what was done."""
    buffer = work.buffers[name]
    layout = _rows(buffer, strides)
    strangers: list[Node | int] = [node for node in work.nodes if name in node.reads]
    if layout is None:
        strangers += [k for k, o in enumerate(work.outputs) if isinstance(o, View) and o.buffer == name]
    else:
        strangers = work.strangers(name, layout)
        work.move(name, layout, name, name, strangers)
    work.buffers[name] = replace(buffer, strides=strides)
    if strangers:
        laid = work.buffer(f"{name}_rows", buffer, buffer.shape)
        work.buffers[laid.name] = laid = replace(laid, strides=buffer.strides)
        work.rename(name, laid.name, strangers)
        work.nodes.insert(0, copying(laid, View(name, buffer.shape, strides)))
    return f"{name} arrives with strides {list(strides)}{': it is copied' if strangers else ''}"


def _lies(buffer: Buffer, strides: Sequence[Size]) -> bool:
    return all(a == b or size == 1 for a, b, size in zip(buffer.strides, strides, buffer.shape))


def _rows(buffer: Buffer, strides: tuple[Size, ...]) -> RowLayout | None:
    """The longer rows that make a buffer lie so; None if there are none."""
    changed = [(a, b) for a, b, size in zip(buffer.strides, strides, buffer.shape) if a != b and size != 1]
    length, padded = min(changed, key=lambda pair: hint(pair[0]))
    if buffer.strides != contiguous(buffer.shape) or not is_known(length) or not is_known(padded) or length < 1:
        return None
    layout = RowLayout(length, padded)
    found = layout.walk(buffer.shape, buffer.strides, 0)
    return layout if found is not None and _lies(replace(buffer, strides=strides), found[0]) else None
