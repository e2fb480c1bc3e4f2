"""A loop graph whose buffers get longer rows: who can read and write them so, and all of these doing it.

edited = EditedGraph(graph, returned=1)
edited.strangers("logits", RowLayout(50257, 50264))     ->  [the call of sort that reads them, 0: the first result]
edited.move("logits", ..., loads="logits_padded", stores="logits_padded", strangers=...)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ...records.launch import unreserved
from ...records.loops import Access, Buffer, Load, Loop, LoopGraph, Node, Operation, Store, View, compute_dtype
from ...records.sizes import Size
from ..strides import contiguous
from .row_layout import RowLayout

PRODUCTS = {
    f"torch.ops.aten.{name}.out": first for name, first in {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}.items()
}
"""Calls that take matrices by any strides, to the position of their first factor; what is added stands before it."""

SAME = RowLayout(1, 1)
"""No longer rows: what moves by it reads the same places of another buffer."""


class EditedGraph:
    """``returned``: of the results so many lie as eager's do; None: all."""

    def __init__(self, graph: LoopGraph, returned: int | None) -> None:
        self.graph = graph
        self.nodes, self.buffers, self.outputs = list(graph.nodes), dict(graph.buffers), list(graph.outputs)
        self.returned = len(graph.outputs) if returned is None else returned

    def finished(self, notes: Sequence[str]) -> LoopGraph:
        """The graph as it is now, without the temporary buffers that nothing touches."""
        named = {name for node in self.nodes for name in (*node.reads, *node.writes)}
        buffers = {name: b for name, b in self.buffers.items() if name in named or b.role != "temp"}
        return replace(
            self.graph,
            nodes=tuple(self.nodes),
            buffers=buffers,
            outputs=tuple(self.outputs),
            notes=(*self.graph.notes, *notes),
        )

    def strangers(self, name: str, layout: RowLayout) -> list[Node | int]:
        """Who reads or writes a buffer and cannot do it by longer rows: nodes, and the positions of results."""
        found: list[Node | int] = []
        for node in self.nodes:
            if isinstance(node, Loop):
                touches = name in node.reads or name in node.writes
                if touches and layout.loop(node, name, name, name) is None:
                    found.append(node)
            elif name in node.reads:
                views = [v for v in node.args if isinstance(v, View) and v.buffer == name]
                if node.target not in PRODUCTS or any(layout.view(v, name) is None for v in views):
                    found.append(node)
        for k, result in enumerate(self.outputs):
            shown = isinstance(result, View) and result.buffer == name
            if shown and (k < self.returned or layout.view(result, name) is None):
                found.append(k)
        return found

    def move(self, name: str, layout: RowLayout, loads: str, stores: str, strangers: Sequence[Node | int] = ()) -> None:
        """Have all but strangers touch a buffer by longer rows, of the buffers ``loads`` and ``stores``. Where there
        are strangers, kept results stay with them: what they read is as good, and the longer rows are free sooner."""
        self._move(name, layout, loads, stores, lambda item: not any(item is stranger for stranger in strangers))
        if not strangers:
            self._move_results(name, layout, loads)

    def rename(self, name: str, other: str, items: Sequence[Node | int]) -> None:
        """Have these, and all results, show another buffer of the same layout."""
        self._move(name, SAME, other, other, lambda item: any(item is one for one in items))
        self._move_results(name, SAME, other)

    def _move(self, name: str, layout: RowLayout, loads: str, stores: str, moves: Callable[[Node], bool]) -> None:
        def viewed(view: View) -> View | None:
            return layout.view(view, loads) if view.buffer == name else view

        for n, node in enumerate(self.nodes):
            if not moves(node):
                continue
            if isinstance(node, Loop):
                if name in node.reads or name in node.writes:
                    moved = layout.loop(node, name, loads, stores)
                    assert moved is not None
                    self.nodes[n] = moved
            elif name in node.reads:
                args, kwargs = with_views((node.args, node.kwargs), viewed)
                self.nodes[n] = replace(node, args=args, kwargs=kwargs)

    def _move_results(self, name: str, layout: RowLayout, loads: str) -> None:
        for k, result in enumerate(self.outputs):
            if isinstance(result, View) and result.buffer == name:
                self.outputs[k] = layout.view(result, loads)

    def place_of(self, name: str) -> int:
        """Where a buffer is written."""
        return next(n for n, node in enumerate(self.nodes) if name in node.writes)

    def is_alias(self, name: str) -> bool:
        """Whether a buffer is part of another, or has parts."""
        return any(b.alias_of is not None and name in (b.name, b.alias_of[0]) for b in self.buffers.values())

    def buffer(self, name: str, like: Buffer, shape: Sequence[Size]) -> Buffer:
        """A new buffer, without gaps."""
        unique = unreserved(name, self.buffers)
        self.buffers[unique] = made = Buffer(unique, like.dtype, tuple(shape), contiguous(shape), device=like.device)
        return made

    def part(self, whole: Buffer, offset: Size, shape: Sequence[Size], name: str) -> Buffer:
        """A new buffer in the memory of another, with its strides."""
        made = replace(self.buffer(name, whole, shape), strides=whole.strides, alias_of=(whole.name, offset))
        self.buffers[made.name] = made
        return made


def with_views(value: Any, change: Callable[[View], View | None]) -> Any:
    """An argument structure with its views changed."""
    if isinstance(value, View):
        return change(value)
    if isinstance(value, (tuple, list)):
        return type(value)(with_views(one, change) for one in value)
    return value


def copying(to: Buffer, view: View, like: Node | None = None) -> Loop:
    """A loop that copies what a view shows, as part of what ``like`` stands for."""
    return storing(to, Load("t0", Access(view.buffer, view.strides, view.offset), compute_dtype(to.dtype)), like)


def storing(to: Buffer, value: Operation, like: Node | None = None) -> Loop:
    """A loop that stores one operation's value everywhere."""
    body = (value, Store(Access(to.name, to.strides), "t0"))
    ops, origins = ((), ()) if like is None else (like.ops, like.origins)
    return Loop(to.name, to.shape, (False,) * len(to.shape), body, ops, origins)
