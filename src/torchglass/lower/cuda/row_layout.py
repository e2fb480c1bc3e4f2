"""A buffer with longer rows: the element at ``r*length + c`` lies at ``r*padded + c``, for all who read and write it.

    load logits[50257*i0 + i1]    ->    load logits_padded[50264*i0 + i1]

A walk that leaves a row in the middle, as one over all elements by one counter, has no such strides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...records.loops import Access, Compute, Const, Load, Loop, Operation, Store, View
from ...records.sizes import Size, is_known


@dataclass(frozen=True)
class RowLayout:
    """Rows of ``length`` elements, each followed by a gap: the next begins ``padded`` elements after it."""

    length: int
    padded: int

    def walk(
        self, sizes: Sequence[Size], strides: Sequence[Size], offset: Size
    ) -> tuple[tuple[Size, ...], Size] | None:
        """The strides and the offset of a walk through the longer rows; None where it does not stay within rows."""
        reach = offset % self.length
        if not is_known(reach):
            return None
        moved: list[Size] = []
        for size, stride in zip(sizes, strides):
            if stride % self.length == 0:
                moved.append(stride // self.length * self.padded)
                continue
            if size != 1:
                if not is_known(size) or not is_known(stride) or stride < 0:
                    return None
                reach += (size - 1) * stride
            moved.append(stride)
        if reach >= self.length:
            return None
        return tuple(moved), offset // self.length * self.padded + offset % self.length

    def view(self, view: View, buffer: str) -> View | None:
        """A look at the buffer as one at the buffer of longer rows."""
        found = self.walk(view.shape, view.strides, view.offset)
        return None if found is None else View(buffer, view.shape, *found)

    def loop(self, loop: Loop, old: str, loads: str, stores: str) -> Loop | None:
        """A loop with what it loads of the buffer ``old`` from ``loads`` and what it stores to it in ``stores``."""
        most = _most(loop)
        body: list[Operation] = []
        for op in loop.body:
            if isinstance(op, Store) and op.base == old:
                return None
            if isinstance(op, (Load, Store)) and op.access.buffer == old:
                access = self._access(op.access, loop.dims, most, loads if isinstance(op, Load) else stores)
                if access is None:
                    return None
                op = replace(op, access=access)
            body.append(op)
        return replace(loop, body=tuple(body))

    def _access(self, access: Access, dims: Sequence[Size], most: Mapping[str, int], buffer: str) -> Access | None:
        """``most``: how many values a computed place has that is kept within bounds."""
        places = access.indirect
        if any(value not in most and stride % self.length != 0 for value, stride in places):
            return None
        sizes = (*dims, *(most.get(value, 1) for value, _ in places))
        found = self.walk(sizes, (*access.strides, *(stride for _, stride in places)), access.offset)
        if found is None:
            return None
        strides, offset = found
        indirect = tuple((value, stride) for (value, _), stride in zip(places, strides[len(dims) :]))
        return Access(buffer, strides[: len(dims)], offset, indirect)


def _most(loop: Loop) -> dict[str, int]:
    numbers = {op.result: int(op.value) for op in loop.body if isinstance(op, Const) and op.dtype == "int64"}
    bounds = [op for op in loop.body if isinstance(op, Compute) and op.op == "bound"]
    return {op.result: numbers[op.args[1]] for op in bounds if op.args[1] in numbers}
