"""Dropout in loops, by the random numbers that eager's kernel would draw, so that it fuses with what is around it.

The wrapper takes the numbers from the generator where the call would have, and hands kernels what they follow from::

    native_dropout_draw = reserve_philox(gpu, 1048576, 3, 270336)    # seed and offset, before it moves on
    kernel_0(x, mask, y, native_dropout_draw[1], ..., points=1048576)

    loop mask:                                      loop y:
        t4 = philox place ... : float32                 t2 = mul x mask
        t6 = lt t4 0.9 : bool                           t4 = mul t2 1.1111111

``records.philox`` says which number is whose. Eager's kernel chooses by the address of what it reads: that is asked
when the program runs, of what may begin anywhere (inputs, what calls return of their arguments). What loops make begins
where memory does, as what eager's operators make.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ...records.extern_targets import RESERVE_PHILOX
from ...records.loops import Access, ExternCall, View
from ...records.philox import DRAW, WIDEST, most_threads
from ...records.sizes import Size, all_known, at_most, hint, is_known, product
from ...records.target import Gpu
from ..context import Lowering, dtype_name, known_size
from ..strategies import strategy
from ..strides import contiguous
from ..table import NotLowered
from ..values import MOST_PLACES, Body, V

aten = torch.ops.aten


@strategy(Gpu, aten.native_dropout.default, rank=0)
def philox_dropout(
    low: Lowering, gpu: Gpu, node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[View, View]:
    """What is left, scaled, and the mask."""
    x, p, train = args
    numbers, mask = node.meta["val"]
    dtype = dtype_name(numbers.dtype)
    _check(x, dtype, p, train)
    draw = low.buffer(f"{node.name}_draw", "int64", (len(DRAW),), role="numbers").buffer
    shift = _reserved(low, gpu, draw, x, WIDEST[dtype])
    keep = torch.tensor(1.0 - p, dtype=torch.float32).item()
    body, is_kept = Body(len(x.shape)), low.result_of(mask, f"{node.name}_1")
    drawn = _drawn(body, x, most_threads(gpu), draw, shift)
    body.store(Access(is_kept.buffer, is_kept.strides), drawn < keep)
    low.append(is_kept.buffer, x.shape, body)
    left = low.map_like(numbers, f"{node.name}_0", lambda v, m: v * m.cast(v.dtype) * (1.0 / keep), [x, is_kept])
    return left, is_kept


def _check(x: View, dtype: str, p: float, train: bool | None) -> None:
    if train is False or not 0 <= p < 1 or 0 in x.shape:
        raise NotLowered("nothing is drawn")
    if dtype not in WIDEST:
        raise NotLowered(f"numbers of {dtype}, of which one in ten million was dropped out otherwise than by eager")


def _drawn(body: Body, x: View, threads: int, draw: str, shift: int | None) -> V:
    """The number of the point that a loop over ``x`` is at."""
    to = "int32" if at_most(product(x.shape), MOST_PLACES) else "int64"
    *given, (last, kind) = enumerate(DRAW.values())
    by_rows = body.index(contiguous(x.shape), dtype=to)
    place = by_rows if shift == 0 else body.index(x.strides, dtype=to)
    shifted = body.scalar(draw, last, kind) if shift is None else body.const(shift, kind)
    drawn = (body.scalar(draw, k, kind) for k, kind in given)
    return body.compute("philox", (place, by_rows, body.const(threads, to), *drawn, shifted), "float32")


# -- the generator ---------------------------------------------------------------------------------------------------
def _reserved(low: Lowering, gpu: Gpu, draw: str, x: View, widest: int) -> int | None:
    """Append the call that takes the numbers of ``x``'s elements; the shift, if it is known before the program runs."""
    numel = product(x.shape)
    shift = widest if _is_packed(x) else 0
    asked = shift > 0 and _begins_anywhere(low, x.buffer)
    while shift and not asked and known_size(x.offset) % (1 << shift):
        shift -= 1
    while shift and is_known(numel) and numel % (1 << shift):
        shift -= 1
    where = x if asked else torch.device(low.device)
    low.extern(RESERVE_PHILOX, [where, numel, shift, most_threads(gpu)], {}, [draw], effect=True)
    return shift if shift == 0 or (is_known(numel) and not asked) else None


def _begins_anywhere(low: Lowering, name: str) -> bool:
    """Whether the address of a buffer is known when the program runs, not before."""
    made = next((node for node in low.nodes if name in node.writes), None)
    return low.buffers[name].role != "temp" or (isinstance(made, ExternCall) and made.aliases)


def _is_packed(x: View) -> bool:
    """Whether its elements lie without gaps, in any order: eager's ``is_non_overlapping_and_dense``."""
    extent: Size = 1
    for size, stride in sorted(zip(x.shape, x.strides), key=lambda of: (hint(of[1]), hint(of[0]))):
        if size == 1:
            continue
        if stride != extent:
            if all_known((stride, extent)):
                return False
            raise NotLowered("strides that are not known")
        extent = extent * size
    return True
