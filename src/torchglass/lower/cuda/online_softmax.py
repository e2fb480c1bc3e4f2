"""The largest logit of a long row and the sum of exponentials below it, from parts of the row that are read once.

Cross entropy over a vocabulary is traced in its parts (``autodiff.recorder``): two reductions, the second of which
waits for the first. Online softmax joins those of parts, each of which a program holds in registers::

    m = amax(x, [-1], True)                =>    tops   = amax(parts of x, [-1], True)
    s = sum(exp(x - m), [-1], True)              totals = sum(exp(parts - tops), [-1], True)
                                                 m      = amax(tops, [-2], True)
                                                 s      = sum(totals * exp(tops - m), [-2], True)

M. Milakov, N. Gimelshein: Online normalizer calculation for softmax, 2018. ``rules.centered`` has the same of a
log-softmax that is one operator.
"""

from __future__ import annotations

from math import prod

import torch
from torch import fx

from ...records.sizes import all_known
from ...records.target import Gpu
from ..node_builder import NodeBuilder, working_copy
from ..rules.centered import part_size
from ..strategies import Request, graph_strategy

aten = torch.ops.aten


@graph_strategy(Gpu, rank=1)
def online_softmax(gm: fx.GraphModule, gpu: Gpu, request: Request) -> tuple[fx.GraphModule, str]:
    """The graph with such reductions in parts, and what was done."""
    if not any(_part(gpu, node) for node in gm.graph.nodes):
        return gm, ""
    graph = working_copy(gm)
    done = []
    for node in list(graph.nodes):
        if (size := _part(gpu, node)) is not None:
            done.append(f"{node.name} is joined from parts of {size}")
            _join(node, size)
    return fx.GraphModule(gm, graph), "; ".join(done)


def _part(gpu: Gpu, total: fx.Node) -> int | None:
    """The elements of a part, where a node is a sum of exponentials below the maximum of long rows; else None."""
    if total.target is not aten.sum.dim_IntList or total.kwargs or not _keeps_last(total):
        return None
    powers = total.args[0]
    below = powers.args[0] if powers.target is aten.exp.default else None
    if below is None or below.target is not aten.sub.Tensor or below.kwargs or len(below.args) != 2:
        return None
    x, most = below.args
    if getattr(most, "target", None) is not aten.amax.default or most.args[0] is not x or not _keeps_last(most):
        return None
    val = x.meta["val"]
    if not all_known(val.shape) or 0 in val.shape or not val.is_contiguous():
        return None
    *rows, length = val.shape
    return part_size(gpu, length, 1, prod(rows), down=False, walked=False)


def _keeps_last(node: fx.Node) -> bool:
    """Whether a reduction is over the last dimension, which stays."""
    if len(node.args) != 3 or node.args[2] is not True or not node.args[1]:
        return False
    rank = node.args[0].meta["val"].dim()
    return rank > 0 and [d % rank for d in node.args[1]] == [rank - 1]


def _join(total: fx.Node, size: int) -> None:
    powers = total.args[0]
    below = powers.args[0]
    x, most = below.args
    made, val = NodeBuilder(most), x.meta["val"]
    parts = made(aten.view.default, x, [*val.shape[:-1], val.shape[-1] // size, size])
    tops = made(aten.amax.default, parts, [-1], True)
    nothing = made(aten.eq.Scalar, tops, float("-inf"))  # adds nothing, where exp(-inf - -inf) would be NaN
    finite = made(aten.masked_fill.Scalar, tops, nothing, 0.0)
    totals = made(aten.sum.dim_IntList, _exponentials(made, parts, finite), [-1], True)
    top = made(aten.amax.default, tops, [-2], True)
    scaled = made(aten.mul.Tensor, totals, _exponentials(made, tops, top))
    joined = made(aten.sum.dim_IntList, scaled, [-2], True)
    rows = [*val.shape[:-1], 1]
    total.replace_all_uses_with(made(aten.view.default, joined, rows))
    most.replace_all_uses_with(made(aten.view.default, top, rows))
    for node in (total, powers, below, most):
        if not node.users:
            node.graph.erase_node(node)


def _exponentials(made: NodeBuilder, x: fx.Node, below: fx.Node) -> fx.Node:
    return made(aten.exp.default, made(aten.sub.Tensor, x, below))
