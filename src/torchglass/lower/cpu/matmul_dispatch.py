"""Matrix products: by oneDNN where PyTorch's own are slow, and biases that loops add.

PyTorch multiplies float32 by MKL, which uses AVX-512 on Intel's processors alone; oneDNN, in the same library, does on
AMD's (512 x 256 x 1024 on two cores: 1.3 ms, MKL 2.8). ``aten.addmm(bias, x, weight.t())`` becomes the call that a
frozen linear layer runs as well, with the weight as it lies::

    extern linear = torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")

The strategy looks at the processor and at sizes alone, so that a program computes the same in every process.

``aten.addmm`` copies the bias into every row of the result and has MKL add to that: 5 to 8 % of its time. Where loops
alone read the result, they add the bias: ``extern mm; loop gelu(mm + bias)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import fx

from ...records.loops import View
from ...records.sizes import Size, hint
from ...records.target import Cpu
from ...torch_compat import ONEDNN_LINEAR, OpOverload
from ..context import Lowering, layout_of
from ..rules.views import VIEW_OPS
from ..strategies import strategy
from ..strides import contiguous
from ..table import NotLowered, find_rule

aten = torch.ops.aten

EXACT = (torch.float32, torch.float64)  # dtypes in which a sum may be rounded before the bias is added


@strategy(Cpu, aten.mm.default, aten.addmm.default, rank=1)
def onednn_product(low: Lowering, cpu: Cpu, node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> View | None:
    """A product by oneDNN."""
    val = node.meta["val"]
    if val.dtype != torch.float32:
        return None
    if not cpu.onednn_multiplies:
        raise NotLowered("what PyTorch calls is as fast on this processor")
    *added, x, turned = args
    bias = added[0] if added else None
    shape, strides = layout_of(val)
    if not _is_large((*shape, x.shape[1]), cpu.lowering.onednn_multiplications):
        raise NotLowered(f"a vector, or fewer than {cpu.lowering.onednn_multiplications} multiplications")
    if not _is_whole(turned) or strides != contiguous(shape):
        raise NotLowered("a matrix that lies in parts")
    if kwargs or (bias is not None and (bias.shape != shape[1:] or bias.strides != (1,))):
        raise NotLowered("a scaled product, or no bias of one row is added")
    weight = View(turned.buffer, turned.shape[::-1], turned.strides[::-1], turned.offset)
    view = low.result(node)
    low.extern(ONEDNN_LINEAR, [x, weight, bias, "none", [], ""], {}, [view.buffer])
    return view


@strategy(Cpu, aten.addmm.default, rank=2)
def bias_by_loops(low: Lowering, cpu: Cpu, node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> View:
    """An ``addmm`` as a product and a loop that adds the bias, which joins the loops that read it."""
    val = node.meta["val"]
    bias, *factors = args
    shape, strides = layout_of(val)
    if kwargs or val.dtype not in EXACT:
        raise NotLowered("a scaled product, or a dtype in which rounding twice shows")
    if bias.shape != shape[1:] or strides != contiguous(shape):
        raise NotLowered("no bias of one row, or a result that lies otherwise")
    if not _is_read_by_loops(node):
        raise NotLowered("not loops alone read the result")
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


def _is_large(sizes: Sequence[Size], least: int) -> bool:
    """Whether a product of rows, columns and what is summed pays; products with a vector wait for memory."""
    numbers = [hint(size) for size in sizes]
    return min(numbers) > 1 and prod(numbers) >= least


def _is_whole(matrix: View) -> bool:
    """Whether a matrix lies in one piece, by rows or by columns."""
    return matrix.strides in (contiguous(matrix.shape), contiguous(matrix.shape[::-1])[::-1])
