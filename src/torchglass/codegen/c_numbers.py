"""Kernels that are equal but for their numbers: one function, to which each call hands a table of its own.

Of ``torch.sum(torch.sin(x * i) + i)`` for many ``i``::

    static void kernel_0(const float* restrict x, const float* restrict numbers, float* restrict sum_1) {...}
    void kernel_0_call(void** a) { static const float numbers[] = {1.0f, 1.0f}; kernel_0(a[0], numbers, a[1]); }
    void kernel_1_call(void** a) { static const float numbers[] = {2.0f, 2.0f}; kernel_0(a[0], numbers, a[1]); }

The C compiler sees the loops once, which is most of the time that a graph of a thousand such kernels takes. A few keep
their numbers where they stand: what a number is tells the C compiler more than where it lies.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from ..records.equal_kernels import canonical
from ..records.loops import Access, Buffer, Const, Load, Loop
from ..records.schedule import Schedule
from .c_ops import CTYPES, constant, is_float

MOST_WRITTEN = 8  # kernels that are equal but for their numbers and have them in their text


@dataclass(frozen=True)
class Parameterized:
    """A kernel that reads its numbers from tables, each with its declaration in C; ``key`` is what its like share."""

    schedule: Schedule
    tables: dict[str, str]
    key: object


def tables(taken: Collection[str]) -> dict[str, Buffer]:
    """A table for the numbers of each floating dtype, named as no buffer is."""
    found = {}
    for dtype in filter(is_float, CTYPES):
        name = "numbers" if dtype == "float32" else "doubles"
        while name in taken:
            name += "_"
        found[dtype] = Buffer(name, dtype, (), (), "constant")
    return found


def parameterized(schedule: Schedule, tables: Mapping[str, Buffer], buffers: Mapping[str, Buffer]) -> Parameterized:
    """The kernel with each number of a floating dtype loaded: equal numbers from one place."""
    places: dict[str, dict[str, int]] = {}

    def loaded(loop: Loop, op: Const) -> Load:
        known = places.setdefault(op.dtype, {})
        place = known.setdefault(constant(op.value, op.dtype), len(known))
        return Load(op.result, Access(tables[op.dtype].name, (0,) * len(loop.dims), place), op.dtype)

    def without_numbers(loop: Loop) -> Loop:
        body = [loaded(loop, op) if isinstance(op, Const) and op.dtype in tables else op for op in loop.body]
        return replace(loop, body=tuple(body))

    kernel = replace(schedule.kernel, loops=tuple(map(without_numbers, schedule.kernel.loops)))
    loops = tuple(map(without_numbers, schedule.loops))
    declared = {
        tables[dtype].name: f"static const {CTYPES[dtype]} {tables[dtype].name}[] = {{{', '.join(known)}}};"
        for dtype, known in places.items()
    }
    return Parameterized(replace(schedule, kernel=kernel, loops=loops), declared, canonical(kernel, buffers)[0])
