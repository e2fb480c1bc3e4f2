"""Matrix products whose rows begin at 16 bytes: those of other matrices fall onto slow kernels of cuBLAS.

A language model of 50,257 words has logits of so many columns, and a row that begins at an odd address cannot be
loaded 16 bytes at a time. GPT-2's products take 22 ms a step so, and 9.6 with rows of 50,264. cuBLAS asks it of the
row strides and of the sizes along which elements are neighbours, so those are padded to multiples of 8 elements::

    logits = mm(h, weight.t())                  [8192, 50257]
    =>  weight_padded = weight, zeros below     [50264, 768], a copy of 77 MB, 0.05 ms
        logits_padded = mm(h, weight_padded.t())  [8192, 50264]

Everything is a change of layout (``row_layout``): loops read logits by a row stride of 50,264, and what makes the
gradient of the logits writes it straight to padded rows, with a loop of zeros behind. A copy is made of what other
calls or the user read, since that lies as eager's does, and of operands that no loop makes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...records.extern_targets import JOIN
from ...records.loops import (
    HALF,
    Buffer,
    Const,
    ExternCall,
    Loop,
    LoopGraph,
    Node,
    View,
    compute_dtype,
    item_bytes,
)
from ...records.sizes import Size, divides, hint, is_known, product
from ...records.target import Gpu
from ...records.tuned.lowering import GpuLowering
from ..strategies import Request, loop_strategy
from ..strides import contiguous
from ..table import NotLowered
from .edited_graph import PRODUCTS, EditedGraph, copying, storing
from .row_layout import RowLayout

UNIT = 8
"""Elements of two bytes in 16."""


@loop_strategy(Gpu, rank=1)
def pad_products(graph: LoopGraph, gpu: Gpu, devices: Collection[str], request: Request) -> LoopGraph:
    """The graph with products of padded matrices where that pays, and what was decided."""
    work = _Padding(graph, gpu.lowering, request)
    done: list[str] = []
    refused: Counter[str] = Counter()
    for call in graph.nodes:
        if not isinstance(call, ExternCall) or call.target not in PRODUCTS:
            continue
        buffer = graph.buffers[call.writes[0]]
        if buffer.device not in devices or buffer.dtype not in HALF:
            continue
        try:
            done += work.pad(call)
        except NotLowered as why:
            refused[str(why)] += 1
    if not done and not refused:
        return graph
    notes = [f"rows of 16 bytes in {what}" for what in done]
    notes += [f"no pad_products ({count}): {why}" for why, count in refused.items()]
    return work.finished(notes)


@dataclass
class _Product:
    """``out[m, n] = a[m, k] @ b[k, n]``; ``wanted`` are the sizes it is to be computed with."""

    a: View
    b: View
    out: View
    wanted: dict[str, int]

    @property
    def matrices(self) -> tuple[tuple[View, str], ...]:
        return (self.a, "mk"), (self.b, "kn"), (self.out, "mn")

    def grown(self, view: View, letters: str) -> tuple[Size, ...]:
        """The shape that a matrix is to have."""
        sizes = (self.wanted.get(letter, size) for letter, size in zip(letters, view.shape[-2:]))
        return (*view.shape[:-2], *sizes)


class _Padding(EditedGraph):
    """A loop graph under way."""

    def __init__(self, graph: LoopGraph, tuned: GpuLowering, request: Request) -> None:
        super().__init__(graph, request.returned)
        self.tuned = tuned
        self.rows: dict[str, tuple[RowLayout, bool]] = {}  # of padded buffers; whether zeros are behind
        self.copies: dict[tuple[View, tuple[Size, ...]], View] = {}

    # -- one product -------------------------------------------------------------------------------------------------
    def pad(self, call: ExternCall) -> list[str]:
        """Pad a product's matrices if one of them begins rows elsewhere; what was done. NotLowered: it does not pay."""
        call = next(n for n in self.nodes if isinstance(n, ExternCall) and n.outputs == call.outputs)
        first = PRODUCTS[call.target]
        out = self.buffers[call.writes[0]]
        a, b = call.args[first : first + 2]
        p = _Product(a, b, View(out.name, out.shape, out.strides), {})
        p.wanted = _wanted(p)
        if not p.wanted:
            return []
        added = self._added(call.args[:first], p)
        plans = [self._operand(view, p.grown(view, letters)) for view, letters in p.matrices[:2]]
        copied = sum(bytes_copied for _, bytes_copied in plans) + self._result(call, p)
        work = 2 * hint(product(a.shape)) * hint(b.shape[-1])
        if work < max(self.tuned.padded_operations, self.tuned.padded_operations_per_byte * copied):
            raise NotLowered("too little is multiplied for what padding costs")
        rows = (self._copy(call, view, shape) if shape != view.shape else view for view, shape in added)
        self._set_args(call, (*rows, *call.args[first:]))
        for k, letters in ((first, "mk"), (first + 1, "kn")):
            factor = self._grow(call, k, letters, p)
            args = self._now(call).args
            self._set_args(call, (*args[:k], factor, *args[k + 1 :]))
        name = self._grow_result(call, p)
        self.nodes[self.place_of(call.writes[0])] = replace(self._now(call), name=name, outputs=(name,))
        sizes = (f"{letter} of {hint(_size(p, letter))} as {size}" for letter, size in p.wanted.items())
        return [f"{out.name}: {', '.join(sizes)}"]

    def _added(self, args: Sequence[Any], p: _Product) -> list[tuple[View, tuple[Size, ...]]]:
        """What is added to the product, and the shape that it is to have."""
        found: list[tuple[View, tuple[Size, ...]]] = []
        for view in args:
            columns = p.wanted.get("n", p.b.shape[-1])
            if len(view.shape) == 1 and view.shape[0] == p.b.shape[-1]:
                found.append((view, (columns,)))
            elif p.wanted.keys() <= {"k"}:
                found.append((view, view.shape))
            else:
                raise NotLowered("what is added is no single row")
        return found

    # -- factors -----------------------------------------------------------------------------------------------------
    def _operand(self, view: View, shape: tuple[Size, ...]) -> tuple[str, int]:
        """How a factor gets its shape, and the bytes that are copied for it."""
        if shape == view.shape:
            return "as it is", 0
        layout = self.rows.get(view.buffer)
        if layout is not None and _reaches(view, shape, *layout):
            return "as it is", 0
        if _by_rows(view, shape) in self.copies:
            return "copy", 0
        if self._written_padded(view, shape) is not None:
            return "rows", 0
        return "copy", 2 * hint(product(shape)) * item_bytes(self.buffers[view.buffer].dtype)

    def _grow(self, call: ExternCall, k: int, letters: str, p: _Product) -> View:
        """An argument as it lies by now, in its shape."""
        view = self._now(call).args[k]
        shape = p.grown(view, letters)
        plan, _ = self._operand(view, shape)
        if plan == "copy":
            return self._copy(call, view, shape)
        if plan == "rows":
            layout = self._written_padded(view, shape)
            assert layout is not None
            view = self._pad_rows_of_loop(view, layout)
        return replace(view, shape=shape)

    def _written_padded(self, view: View, shape: tuple[Size, ...]) -> RowLayout | None:
        """The layout in which a loop can write a matrix so that it has that shape; None: a copy is needed."""
        layout = _longer_rows(view, shape)
        buffer = self.buffers[view.buffer]
        if layout is None or buffer.role != "temp" or not divides(layout.length, buffer.extent):
            return None
        maker = next((node for node in self.nodes if buffer.name in node.writes), None)
        if not isinstance(maker, Loop) or len(maker.writes) != 1 or self.is_alias(buffer.name):
            return None
        return None if self.strangers(buffer.name, layout) else layout

    def _pad_rows_of_loop(self, view: View, layout: RowLayout) -> View:
        """Have a loop write its buffer in longer rows, and zeros behind them."""
        part = self.buffers[view.buffer]
        rows = part.extent // layout.length
        whole = self.buffer(f"{part.name}_padded", part, (rows, layout.padded))
        found = layout.walk(part.shape, part.strides, 0)
        assert found is not None
        place = self.place_of(part.name)
        self.move(part.name, layout, loads=whole.name, stores=part.name)
        maker = self.nodes[place]
        self.buffers[part.name] = replace(part, strides=found[0], alias_of=(whole.name, 0))
        gap = self.part(whole, layout.length, (rows, layout.padded - layout.length), f"{part.name}_zeros")
        parts = [View(p.name, p.shape, p.strides) for p in (self.buffers[part.name], gap)]
        join = ExternCall(whole.name, JOIN, tuple(parts), (), (whole.name,), ops=maker.ops, origins=maker.origins)
        self.nodes[place + 1 : place + 1] = [_filled(gap, maker), join]
        self.rows[whole.name] = layout, True
        moved = layout.view(view, whole.name)
        assert moved is not None
        return moved

    def _copy(self, call: ExternCall, view: View, shape: tuple[Size, ...]) -> View:
        """A copy of a matrix with zeros behind it in each dimension, ahead of the call; one for all that read it."""
        key = _by_rows(view, shape)
        if key[0] != view:
            return _turned(self._copy(call, *key))
        if key in self.copies:
            return self.copies[key]
        old = self.buffers[view.buffer]
        whole = self.buffer(f"{view.buffer}_padded", old, shape)
        parts = [self.part(whole, 0, view.shape, f"{view.buffer}_copy")]
        loops = [copying(parts[0], view, call)]
        for k, (size, grown) in enumerate(zip(view.shape, shape)):
            if size != grown:
                slab = (*view.shape[:k], grown - size, *shape[k + 1 :])
                gap = self.part(whole, size * whole.strides[k], slab, f"{view.buffer}_zeros")
                loops.append(_filled(gap, call))
                parts.append(gap)
        views = tuple(View(p.name, p.shape, p.strides) for p in parts)
        join = ExternCall(whole.name, JOIN, views, (), (whole.name,), ops=call.ops, origins=call.origins)
        place = self.place_of(call.writes[0])
        self.nodes[place:place] = [*loops, join]
        self.copies[key] = made = View(whole.name, whole.shape, whole.strides)
        return made

    # -- the result --------------------------------------------------------------------------------------------------
    def _result(self, call: ExternCall, p: _Product) -> int:
        """The bytes of a result that are copied; NotLowered where its memory would be held twice, or lies otherwise."""
        buffer, shape = self.buffers[p.out.buffer], p.grown(p.out, "mn")
        if buffer.strides != contiguous(buffer.shape) or (shape[-2] != buffer.shape[-2] and len(shape) > 2):
            raise NotLowered("a result that lies otherwise than by rows, or many with more rows")
        if shape[-1] == buffer.shape[-1]:
            return 0
        strangers = self.strangers(buffer.name, _columns(buffer, shape))
        if not strangers:
            return 0
        loops = [n for n in self.nodes if isinstance(n, Loop) and buffer.name in n.reads and n not in strangers]
        if not loops:
            raise NotLowered("the result leaves as eager's does: its memory would be held twice")
        return 2 * hint(product(buffer.shape)) * item_bytes(buffer.dtype)

    def _grow_result(self, call: ExternCall, p: _Product) -> str:
        """Make room for a padded result; what reads it reads that, or a copy as eager has it."""
        buffer, shape = self.buffers[p.out.buffer], p.grown(p.out, "mn")
        if shape[-1] == buffer.shape[-1]:
            self.buffers[buffer.name] = replace(buffer, shape=shape)  # rows behind the last one, which nobody reads
            return buffer.name
        layout = _columns(buffer, shape)
        strangers = self.strangers(buffer.name, layout)
        whole = self.buffer(f"{buffer.name}_padded", buffer, shape)
        self.move(buffer.name, layout, whole.name, whole.name, strangers)
        self.rows[whole.name] = layout, False
        if strangers:
            view = View(whole.name, buffer.shape, whole.strides)
            self.nodes.insert(self.place_of(call.writes[0]) + 1, copying(buffer, view, call))
        return whole.name

    def _now(self, call: ExternCall) -> ExternCall:
        node = self.nodes[self.place_of(call.writes[0])]
        assert isinstance(node, ExternCall)
        return node

    def _set_args(self, call: ExternCall, args: tuple[Any, ...]) -> None:
        self.nodes[self.place_of(call.writes[0])] = replace(self._now(call), args=args)


# -- layouts ---------------------------------------------------------------------------------------------------------
def _neighbours(view: View) -> int | None:
    """Which of a matrix's two dimensions has elements side by side; None: neither."""
    return next((k for k in (-1, -2) if view.strides[k] == 1), None)


def _wanted(p: _Product) -> dict[str, int]:
    """The sizes along which elements are neighbours in one of the matrices and that are no multiples of ``UNIT``: the
    next ones. Matrices with a size that is not known, or is 1 or 0, are left alone.
    """
    found: dict[str, int] = {}
    for view, letters in p.matrices:
        side = _neighbours(view)
        if side is None or any(hint(size) <= 1 for size in view.shape[-2:]):
            return {}
        size = view.shape[side]
        if is_known(size) and size % UNIT:
            found[letters[side]] = size + -size % UNIT
    return found


def _size(p: _Product, letter: str) -> Size:
    return {"m": p.a.shape[-2], "k": p.a.shape[-1], "n": p.b.shape[-1]}[letter]


def _longer_rows(view: View, shape: tuple[Size, ...]) -> RowLayout | None:
    """The layout in which a matrix of rows without gaps has that shape; None if there is none."""
    side = _neighbours(view)
    if side is None:
        return None
    other = -3 - side
    length, padded = view.shape[side], shape[side]
    if view.shape[other] != shape[other] or view.shape[:-2] != shape[:-2] or view.strides[other] != length:
        return None
    if not is_known(length) or not is_known(padded) or not divides(length, view.offset):
        return None
    return RowLayout(length, padded)


def _reaches(view: View, shape: tuple[Size, ...], layout: RowLayout, zeros: bool) -> bool:
    """Whether a matrix of a padded buffer has that shape already: with what lies behind its rows."""
    side = _neighbours(view)
    if side is None or not zeros:
        return False
    other = -3 - side
    whole = view.shape[side] == layout.length and divides(layout.padded, view.offset)
    same = view.shape[other] == shape[other] and view.strides[other] == layout.padded
    return whole and same and shape[side] == layout.padded


def _columns(buffer: Buffer, shape: tuple[Size, ...]) -> RowLayout:
    length, padded = buffer.shape[-1], shape[-1]
    assert is_known(length) and is_known(padded)
    return RowLayout(length, padded)


def _by_rows(view: View, shape: tuple[Size, ...]) -> tuple[View, tuple[Size, ...]]:
    """A matrix, turned if its columns lie together, and its shape."""
    if len(shape) < 2 or _neighbours(view) != -2:
        return view, shape
    return _turned(view), (*shape[:-2], shape[-1], shape[-2])


def _turned(view: View) -> View:
    *shape, m, n = view.shape
    *strides, down, along = view.strides
    return View(view.buffer, (*shape, n, m), (*strides, along, down), view.offset)


def _filled(to: Buffer, like: Node) -> Loop:
    return storing(to, Const("t0", 0.0, compute_dtype(to.dtype)), like)
