"""Images channels last between convolutions: oneDNN convolves them faster so, and loops run over any strides.

Before the graph is lowered, and as a graph: a convolution takes its image channels last (a ``clone`` where it lies
otherwise), and what element-wise operators, normalizations, pools, resizes and concatenations make of such values lies
channels last too. Every other operator, and the user, get the strides that eager's values have::

    conv   = convolution(clone_1(image), w)      channels last
    relu   = relu(conv)                          channels last
    pooled = mean(relu, [2, 3])                  reads any strides
    return clone_2(relu), pooled                 relu as eager lays it out

What backward is given lies as the forward left it (``input_strides``). A convolution whose weights are larger than its
images stays as it is: they would have to be turned, too, which costs more than the images gain (512 channels of 7 x 7
at batch 4: 1.4 times as long, its backward twice; 64 channels of 64 x 64: 0.8 times).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from ...aten.sizes import hint_of
from ...records.size_environment import integers
from ...records.sizes import Size, all_known, hint, product
from ...records.symbolic_ints import SizesUnfit, size_of, sizes_of
from ...records.target import Cpu
from ...torch_compat import OpOverload
from ..context import layout_of
from ..node_builder import working_copy
from ..rules.views import SPLITTING_OPS, VIEW_OPS
from ..strategies import Request, graph_strategy
from ..strides import channels_last, is_dense
from ..table import find_rule
from .split_reduction import forward_in_parts, gradient_in_parts, parts_of

aten = torch.ops.aten

CONVOLUTIONS = {aten.convolution.default: (0,), aten.convolution_backward.default: (0, 1)}
"""Operator to the positions of its images; its weights come behind them, and its first result is an image as well."""

IMAGES = frozenset(
    ["native_batch_norm", "_native_batch_norm_legit_functional", "_native_batch_norm_legit", "native_group_norm"]
    + ["_native_batch_norm_legit_no_training", "native_batch_norm_backward", "native_group_norm_backward"]
    + ["max_pool2d_with_indices", "max_pool2d_with_indices_backward", "avg_pool2d", "avg_pool2d_backward"]
    + ["_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", "cat", "constant_pad_nd", "slice_backward"]
    + ["upsample_nearest2d", "upsample_nearest2d_backward", "upsample_bilinear2d", "upsample_bilinear2d_backward"]
    + ["_upsample_nearest_exact2d", "upsample_bicubic2d", "reflection_pad2d", "replication_pad2d"]
)
"""Operators from images to images: channels last in, channels last out."""

READERS = frozenset(
    ["sum", "mean", "amax", "amin", "var", "std", "var_mean", "linalg_vector_norm", "native_layer_norm"]
)
"""Operators that read any strides alike, and whose results lie as eager's whatever they read."""

VIEWS = frozenset((*VIEW_OPS, *SPLITTING_OPS)) - {"as_strided"}


class _Refused(Exception):
    """A value that cannot be laid out as eager does by a copy."""


@dataclass
class _Pass:
    """A graph under way. ``eager``: how the values of nodes lay that lie otherwise now."""

    graph: fx.Graph
    cpu: Cpu
    eager: dict[fx.Node, Any] = field(default_factory=dict)
    copies: dict[tuple[fx.Node, bool], fx.Node] = field(default_factory=dict)
    frozen: frozenset[str] = frozenset()
    convolutions: int = 0
    convolved: int = 0  # bytes of their images

    def move(self, node: fx.Node, val: Any) -> None:
        self.eager.setdefault(node, node.meta["val"])
        node.meta["val"] = val

    def is_moved(self, node: Any) -> bool:
        return isinstance(node, fx.Node) and node in self.eager

    def copy(self, node: fx.Node, before: fx.Node, last: bool) -> fx.Node:
        """``node`` laid out channels last, or as eager does, ahead of the node ``before``."""
        found = self.copies.get((node, last))
        if found is None:
            val = self.eager.get(node, node.meta["val"])
            if not last and not is_dense(*layout_of(val)):
                raise _Refused
            val = val.new_empty_strided(val.shape, channels_last(val.shape)) if last else val
            with self.graph.inserting_before(before):
                found = self.graph.call_function(aten.clone.default, (node,))
            found.meta = {**before.meta, "val": val}
            self.copies[node, last] = found
        return found


@graph_strategy(Cpu, rank=1)
def propagate_layouts(gm: fx.GraphModule, cpu: Cpu, request: Request) -> tuple[fx.GraphModule, str]:
    """The graph with images channels last where that pays, and what was decided.

    Results that are kept for backward may lie so, too. Frozen weights need not be turned, since they are packed.
    """
    backward = any(strides is not None for strides in request.input_strides)
    if not (_elsewhere(gm.graph, request) or _convolves_at_all(gm.graph, cpu)):
        return gm, ""
    work = _started(gm, cpu, request)
    if any(isinstance(n.target, OpOverload) and n.target._schema.is_mutable for n in gm.graph.nodes):
        return _as_eager(gm, work)
    try:
        for node in list(work.graph.nodes):
            _visit(work, node, request.returned)
    except _Refused:
        return _as_eager(gm, _started(gm, cpu, request))
    weights = {n.args[p[-1] + 1] for n in work.graph.nodes if (p := CONVOLUTIONS.get(n.target))}
    edges = [copy for copy in work.copies.values() if copy not in weights]
    copied = sum(_bytes(copy.meta["val"]) for copy in edges)
    if not backward and copied * cpu.lowering.layout_gain > work.convolved:
        return gm, f"images stay as they are: {copied} bytes to copy for {work.convolved} bytes of convolutions"
    if not work.eager and not work.copies:
        return gm, ""
    how = f"{work.convolutions} convolutions, {len(edges)} copies of images at the edges ({copied} bytes)"
    return fx.GraphModule(gm, work.graph), f"images channels last: {how}"


def _started(gm: fx.GraphModule, cpu: Cpu, request: Request) -> _Pass:
    """A copy of the graph whose inputs lie as they arrive."""
    graph = working_copy(gm)
    work = _Pass(graph, cpu, frozen=request.frozen)
    for node, strides in _elsewhere(graph, request).items():
        val = node.meta["val"]
        work.move(node, val.new_empty_strided(val.shape, integers(strides, val)))
    return work


def _elsewhere(graph: fx.Graph, request: Request) -> dict[fx.Node, tuple[Size, ...]]:
    """The inputs that lie otherwise than eager's, and how."""
    given = [(n, n.meta["val"], s) for n, s in zip(graph.find_nodes(op="placeholder"), request.input_strides)]
    tensors = [(n, val, s) for n, val, s in given if s is not None and isinstance(val, torch.Tensor)]
    return {node: strides for node, val, strides in tensors if not _lies(val, strides)}


def _as_eager(gm: fx.GraphModule, work: _Pass) -> tuple[fx.GraphModule, str]:
    """A graph that cannot be laid out anew: inputs that lie otherwise are copied at once."""
    inputs = work.graph.find_nodes(op="placeholder")
    first = next(n for n in work.graph.nodes if n.op != "placeholder")
    for node in [n for n in inputs if n in work.eager]:
        users = list(node.users)
        laid = work.copy(node, first, False)
        for user in users:
            user.replace_input_with(node, laid)
    return (fx.GraphModule(gm, work.graph) if work.eager else gm), ""


def _convolves_at_all(graph: fx.Graph, cpu: Cpu) -> bool:
    return any(node.target in CONVOLUTIONS and _convolves_images(node, cpu) for node in graph.nodes)


def _convolves_images(node: fx.Node, cpu: Cpu) -> bool:
    if not cpu.onednn:
        return False
    places = CONVOLUTIONS[node.target]
    operands = [node.args[k] for k in (*places, places[-1] + 1)]
    if not all(isinstance(n, fx.Node) and _is_image(n.meta.get("val")) for n in operands):
        return False
    *images, weight = (n.meta["val"] for n in operands)
    if not all_known(weight.shape):
        return False
    first = node.meta["val"] if len(images) == 1 else images[0]
    return _bytes(images[-1]) + _bytes(first) >= (_bytes(weight) if math.prod(weight.shape[2:]) > 1 else 0)


def _is_image(val: Any) -> bool:
    return (
        isinstance(val, torch.Tensor) and val.dim() == 4 and val.device.type == "cpu" and val.layout == torch.strided
        and val.dtype in (torch.float32, torch.bfloat16, torch.float16)
        and min(map(hint_of, (*val.shape, *val.stride()))) > 0
    )  # fmt: skip


# -- one node ------------------------------------------------------------------------------------------------------
def _visit(work: _Pass, node: fx.Node, returned: int | None) -> None:
    if node.op == "output":
        (results,) = node.args
        results = results if isinstance(results, (tuple, list)) else (results,)
        kept = len(results) if returned is None else returned
        laid = [work.copy(r, node, False) if k < kept and work.is_moved(r) else r for k, r in enumerate(results)]
        node.args = (tuple(laid),)
    elif node.op != "call_function":
        return
    elif node.target in CONVOLUTIONS and _convolves_images(node, work.cpu):
        _convolution(work, node)
    elif not any(work.is_moved(n) for n in node.all_input_nodes):
        return
    elif isinstance(node.target, OpOverload):
        _operator(work, node)
    elif getattr(node.target, "__name__", "") == "getitem":
        _item(work, node)
    else:
        _as_eager_gives(work, node)


def _convolution(work: _Pass, node: fx.Node) -> None:
    """Forward: always channels last. Backward: where one of its images lies so."""
    places = CONVOLUTIONS[node.target]
    images = [node.args[k] for k in places]
    if len(places) > 1 and not any(_lies_last(n.meta["val"]) for n in images):
        return _as_eager_gives(work, node)
    args = list(node.args)
    for k in places:
        image = args[k]
        assert isinstance(image, fx.Node)
        if not _lies_last(image.meta["val"]):
            args[k] = work.copy(image, node, True)
    weight = args[places[-1] + 1]
    assert isinstance(weight, fx.Node)
    if not _lies_last(weight.meta["val"]) and weight.name not in work.frozen:
        args[places[-1] + 1] = work.copy(weight, node, True)
    node.args = tuple(args)
    before = work.eager.get(node, node.meta["val"])
    if not _moves(work, node, lambda val: channels_last(val.shape), first=True):
        return
    out = before[0] if isinstance(before, (tuple, list)) else before
    work.convolutions += 1
    work.convolved += _bytes(out) + sum(_bytes(n.meta["val"]) for n in images)
    if weight.name not in work.frozen and (parts := parts_of(node, work.cpu)) > 1:
        _divide(work, node, weight, parts, out)


def _divide(work: _Pass, node: fx.Node, weight: fx.Node, parts: int, before: Any) -> None:
    """A convolution in parts, whose sums are as exact as those of eager, whose image lies otherwise (``before``)."""
    if node.target is aten.convolution.default:
        total = forward_in_parts(node, weight, parts)
        node.replace_all_uses_with(total)
    else:
        image = next((user for user in node.users if user.args[1] == 0), None)
        if image is None:
            return
        total = gradient_in_parts(node, parts)
        image.replace_all_uses_with(total)
        node.args = (*node.args[:10], [False, *node.args[10][1:]])
        node.meta["val"] = (None, *node.meta["val"][1:])
    work.eager[total] = before


def _operator(work: _Pass, node: fx.Node) -> None:
    name = node.target._schema.name.partition("::")[2]
    ours = node.target._schema.name.startswith("aten::")
    rule = find_rule(node.target)
    if ours and name in READERS:
        return
    if ours and name in VIEWS and _view(work, node):
        return
    inputs = [n for n in node.all_input_nodes if work.is_moved(n) and isinstance(n.meta["val"], torch.Tensor)]
    if ours and name in IMAGES and all(_is_last(n.meta["val"]) for n in inputs):
        _moves(work, node, lambda val: channels_last(val.shape))
    elif getattr(rule, "elementwise", False) and (strides := _common(node, inputs)) is not None:
        _moves(work, node, lambda val: strides)
    else:
        _as_eager_gives(work, node)


def _common(node: fx.Node, inputs: list[fx.Node]) -> tuple[int, ...] | None:
    """How the result of an element-wise operator lies: as the first of its inputs that has its shape."""
    val = node.meta["val"]
    if not isinstance(val, torch.Tensor):
        return None
    for n in inputs:
        like = n.meta["val"]
        if sizes_of(like.shape) == sizes_of(val.shape) and _is_packed(like):
            return tuple(like.stride())
    last = val.dim() == 4 and any(_is_last(n.meta["val"]) for n in inputs)
    return channels_last(val.shape) if last else None


def _view(work: _Pass, node: fx.Node) -> bool:
    """A view of what lies otherwise, where it can be had without a copy."""
    vals = fx.map_arg((node.args, dict(node.kwargs)), lambda n: n.meta["val"])
    try:
        val = node.target(*vals[0], **vals[1])
    except (RuntimeError, ValueError, SizesUnfit):  # not without a copy, or not certainly
        return False
    before = node.meta["val"]
    if isinstance(val, torch.Tensor) and _same(val, before):
        node.meta["val"] = val
    else:
        work.move(node, val)
    return True


def _item(work: _Pass, node: fx.Node) -> None:
    source, place = node.args
    assert isinstance(source, fx.Node)
    val = source.meta["val"][place]
    if isinstance(val, torch.Tensor) and not _same(val, node.meta["val"]):
        work.move(node, val)


def _moves(work: _Pass, node: fx.Node, strides: Any, first: bool = False) -> bool:
    """Lay out a node's images (the ``first`` result alone, or all); whether that changes anything."""
    vals = node.meta["val"]
    each = vals if isinstance(vals, (tuple, list)) else [vals]
    new = list(each)
    for k, val in enumerate(each):
        wanted = isinstance(val, torch.Tensor) and (val.dim() == 4 or each is not vals) and not (first and k)
        if wanted and 0 not in sizes_of(val.shape) and not _lies(val, strides(val)):
            new[k] = val.new_empty_strided(val.shape, strides(val))
    if all(a is b for a, b in zip(new, each)):
        return False
    work.move(node, type(vals)(new) if each is vals else new[0])
    return True


def _as_eager_gives(work: _Pass, node: fx.Node) -> None:
    """The operator gets its inputs as in eager."""
    for n in list(node.all_input_nodes):
        if work.is_moved(n) and isinstance(n.meta["val"], torch.Tensor):
            node.replace_input_with(n, work.copy(n, node, False))


# -- strides -------------------------------------------------------------------------------------------------------
def _lies(val: torch.Tensor, strides: Sequence[Any]) -> bool:
    """Whether a tensor has these strides, but for dimensions of one element."""
    return all(a == b or d == 1 for a, b, d in zip(*map(sizes_of, (val.stride(), strides, val.shape))))


def _same(val: torch.Tensor, other: torch.Tensor) -> bool:
    return _lies(val, other.stride()) and size_of(val.storage_offset()) == size_of(other.storage_offset())


def _lies_last(val: Any) -> bool:
    return isinstance(val, torch.Tensor) and val.dim() == 4 and _lies(val, channels_last(val.shape))


def _is_last(val: torch.Tensor) -> bool:
    """Whether channels are neighbours, as in part of the channels of an image channels last."""
    if val.dim() != 4:
        return False
    (_, c, h, w), (_, sc, sh, sw) = (map(hint, sizes) for sizes in layout_of(val))
    return (c == 1 or sc == 1) and (w == 1 or sw >= c) and (h == 1 or sh >= w * sw)


def _is_packed(val: torch.Tensor) -> bool:
    """Whether distinct elements have distinct places and nothing lies between them."""
    shape, strides = layout_of(val)
    last = sum(((d - 1) * s for d, s in zip(shape, strides)), 0) + 1
    return 0 not in shape and is_dense(shape, strides) and last == product(shape)


def _bytes(val: torch.Tensor) -> int:
    return hint(size_of(val.numel())) * val.element_size()
