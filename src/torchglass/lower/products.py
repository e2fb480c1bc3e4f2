"""Matrix products: by oneDNN where PyTorch's own are slow, and biases that loops add.

PyTorch multiplies float32 by MKL, which uses AVX-512 on Intel's processors alone; oneDNN, in the same library, does on
AMD's (512 x 256 x 1024 on two cores: 1.3 ms, MKL 2.8). ``aten.addmm(bias, x, weight.t())`` becomes the call that a
frozen linear layer runs as well, with the weight as it lies::

    extern linear = torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")

The rule looks at the processor and at sizes alone, so that a program computes the same in every process.

``aten.addmm`` copies the bias into every row of the result and has MKL add to that: 5 to 8 % of its time. Where loops
alone read the result, they add the bias: ``extern mm; loop gelu(mm + bias)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import fx

from ..records.loops import View
from ..records.sizes import Size
from ..torch_compat import ONEDNN_LINEAR, OpOverload, multiplies_faster
from .context import Lowering, contiguous, sizes_of
from .table import find_rule
from .views import VIEW_OPS

EXACT = (torch.float32, torch.float64)  # dtypes in which a sum may be rounded before the bias is added
LEAST = 1_500_000  # multiplications of a product; below, the call costs more than is won
UNKNOWN = 64  # what a size that is not known counts as


def product(low: Lowering, node: fx.Node, args: Sequence[Any]) -> View | None:
    """The node's value as a product by oneDNN; None where PyTorch's own is as fast, or the operands do not fit."""
    val = node.meta.get("val")
    if node.target not in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default) or node.kwargs:
        return None
    if val.dtype != torch.float32 or val.device.type != "cpu" or not multiplies_faster():
        return None
    *added, x, turned = args
    bias = added[0] if added else None
    shape = sizes_of(val.shape)
    if not _is_large((*shape, x.shape[1])) or not _is_whole(turned) or sizes_of(val.stride()) != contiguous(shape):
        return None
    if bias is not None and (bias.shape != shape[1:] or bias.strides != (1,)):
        return None
    weight = View(turned.buffer, turned.shape[::-1], turned.strides[::-1], turned.offset)
    view = low.result(node)
    low.extern(ONEDNN_LINEAR, [x, weight, bias, "none", [], ""], {}, [view.buffer])
    return view


def biased_later(low: Lowering, node: fx.Node, args: Sequence[Any]) -> View | None:
    """An ``addmm`` as a product and a loop that adds the bias, which joins the loops that read it; None elsewhere."""
    val = node.meta.get("val")
    if node.target is not torch.ops.aten.addmm.default or node.kwargs or val.dtype not in EXACT:
        return None
    bias, *factors = args
    shape, strides = sizes_of(val.shape), sizes_of(val.stride())
    if bias.shape != shape[1:] or strides != contiguous(shape) or not _is_read_by_loops(node):
        return None
    made = low.result(node, f"{node.name}_product")
    low.extern("torch.ops.aten.mm.out", factors, {}, [made.buffer], out=True)
    return low.map(lambda product, added: product + added, [made, bias], name=node.name)


def _is_read_by_loops(node: fx.Node) -> bool:
    """Whether no call of PyTorch's reads the node or a view of it, nor leaves it the graph."""
    for user in node.users:
        if not isinstance(user.target, OpOverload) or find_rule(user.target) is None:
            return False
        if user.target._schema.name.partition("::")[2] in VIEW_OPS and not _is_read_by_loops(user):
            return False
    return bool(node.users)


def _is_large(sizes: Sequence[Size]) -> bool:
    """Whether a product of rows, columns and what is summed pays; products with a vector wait for memory."""
    known = [size if isinstance(size, int) else UNKNOWN for size in sizes]
    return min(known) > 1 and prod(known) >= LEAST


def _is_whole(matrix: View) -> bool:
    """Whether a matrix lies in one piece, by rows or by columns."""
    return matrix.strides in (contiguous(matrix.shape), contiguous(matrix.shape[::-1])[::-1])
