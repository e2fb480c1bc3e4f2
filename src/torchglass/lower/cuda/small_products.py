"""Small matrix products as loops: a call of cuBLAS costs the host 13 microseconds, and a launch of ours 2.

A layer of 64 features on 32 rows multiplies 131,072 times. A GPU is done with that before the next kernel could begin,
so such networks wait for Python, and what adds the bias or activates is a kernel of its own::

    y = addmm(bias, x, weight.t())       =>  y[i, j] = bias[j] + sum of x[i, k] * weight[j, k] over k

Sums are of float32 for halves, and the bias is added before they are rounded, as cuBLAS does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ...records.loops import View, compute_dtype
from ...records.sizes import hint, is_known, product
from ...records.target import Gpu
from ..context import Lowering, dtype_name
from ..strategies import strategy
from ..table import NotLowered

aten = torch.ops.aten


@strategy(Gpu, aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default, rank=0)
def small_product(low: Lowering, gpu: Gpu, node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> View | None:
    """A product, scaled and added to where it is asked."""
    val = node.meta["val"]
    *added, a, b = args
    work = product((*a.shape, b.shape[-1]))
    if not val.is_floating_point() or not is_known(work) or not 0 < work <= gpu.lowering.loop_multiplications:
        return None
    if hint(a.shape[-1]) > gpu.schedule.long_row:
        raise NotLowered("sums too long for a program")
    left = View(a.buffer, (*a.shape[:-1], 1, a.shape[-1]), (*a.strides[:-1], 0, a.strides[-1]), a.offset)
    *batch, k, n = b.shape
    *steps, down, along = b.strides
    right = View(b.buffer, (*batch, 1, n, k), (*steps, 0, along, down), b.offset)
    to = compute_dtype(dtype_name(val.dtype))
    sums = low.reduce("sum", [left, right], [-1], lambda x, y: x * y, name=f"{node.name}_sums", dtype=to)
    sums = View(sums.buffer, sums.shape[:-1], sums.strides[:-1])
    beta, alpha = kwargs.get("beta", 1), kwargs.get("alpha", 1)
    scaled = [sums] if not added or beta == 0 else [sums, *added]

    def total(s: Any, c: Any = None) -> Any:
        s = s if alpha == 1 else s * alpha
        return s if c is None else s + (c.cast(to) if beta == 1 else c.cast(to) * beta)

    return low.finish(total, scaled, node)
