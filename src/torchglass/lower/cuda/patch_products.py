"""Convolutions of patches that do not overlap as matrix products: a vision transformer's first layer.

Windows of 16 x 16 that lie side by side multiply each pixel once with each filter. cuDNN turns the image to channels
last, fills its three channels up to eight and gathers windows; as a product over copied patches it is one of cuBLAS's::

    y = convolution(x, w, b, stride=[16, 16])     =>    patches = x as [n, h, w, c, 16, 16], copied
                                                        y = addmm(b, patches, w as [c * 16 * 16, filters])

64 images of 3 x 224 x 224, 768 filters, bfloat16: forward and backward take cuDNN 1 ms of an H100's time, a twentieth
of ViT-base's training step. Half precision alone: numbers of float32 are TF32's in cuDNN, unasked, and not here.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod

import torch
from torch import fx

from ...records.sizes import all_known
from ...records.target import Gpu
from ..node_builder import NodeBuilder, working_copy
from ..strategies import Request, graph_strategy

aten = torch.ops.aten
HALF = (torch.bfloat16, torch.float16)


@graph_strategy(Gpu, rank=0)
def patch_products(gm: fx.GraphModule, gpu: Gpu, request: Request) -> tuple[fx.GraphModule, str]:
    """The graph with products in the place of such convolutions and their gradients, and what was done."""
    forwards, backwards = (aten.convolution.default, aten.convolution_backward.default)
    places = {forwards: (0, 1, 3), backwards: (1, 2, 4)}  # of image, weight and stride among the arguments

    def of_patches(node: fx.Node) -> bool:
        return node.target in places and _are_patches(gpu, node, *places[node.target])

    if not any(map(of_patches, gm.graph.nodes)):
        return gm, ""
    graph = working_copy(gm)
    done = []
    for node in list(filter(of_patches, graph.nodes)):
        done.append(f"{node.name} is a product of patches")
        if node.target is forwards:
            node.replace_all_uses_with(_product(node))
        else:
            gradients = _gradients(node)
            for user in list(node.users):
                if user.users:
                    user.replace_all_uses_with(gradients[user.args[1]])
                graph.erase_node(user)
        graph.erase_node(node)
    return fx.GraphModule(gm, graph), "; ".join(done)


def _are_patches(gpu: Gpu, node: fx.Node, image: int, weight: int, stride: int) -> bool:
    """Whether windows cover the image once, and are large enough to be worth a copy."""
    x, w = (node.args[k].meta["val"] for k in (image, weight))
    step, padding, dilation, transposed, _, groups = node.args[stride : stride + 6]
    if not all_known((*x.shape, *w.shape)) or x.dtype not in HALF or w.dtype not in HALF or 0 in x.shape:
        return False
    if transposed or groups != 1 or any(padding) or any(d != 1 for d in dilation) or x.dim() != w.dim():
        return False
    window = tuple(w.shape[2:])
    if node.target is aten.convolution_backward.default and not all(map(_takes_a_gradient, node.users)):
        return False
    tiled = all(size % k == 0 for size, k in zip(x.shape[2:], window))
    return tiled and _each(step, window) == window and prod(window) >= gpu.lowering.patch_elements


def _takes_a_gradient(user: fx.Node) -> bool:
    return not user.users or (user.target is operator.getitem and user.args[0].args[-1][user.args[1]])


def _each(numbers: Sequence[int], window: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(numbers) * len(window) if len(numbers) == 1 else tuple(numbers)


class _Patches:
    """Nodes for the patches of an image (n, c, h, w): rows of (n * rows * columns, c * window), and back."""

    def __init__(self, node: fx.Node, image: fx.Node, weight: fx.Node) -> None:
        self.made, self.name = NodeBuilder(node), node.name
        self.image, self.weight = image, weight
        self.batch, self.channels, *sizes = image.meta["val"].shape
        self.filters, _, *self.window = weight.meta["val"].shape
        self.grid = [size // k for size, k in zip(sizes, self.window)]
        self.rows, self.columns = self.batch * prod(self.grid), self.channels * prod(self.window)
        # n, c, and for each dimension its patches and the places within one
        self.split = [self.batch, self.channels, *(n for pair in zip(self.grid, self.window) for n in pair)]
        rank = len(self.window)
        self.order = [0, *(2 + 2 * k for k in range(rank)), 1, *(3 + 2 * k for k in range(rank))]

    def of_image(self) -> fx.Node:
        made = self.made
        split = made(aten.view.default, self.image, self.split)
        return self._copied(split, self.order, [self.rows, self.columns], f"{self.name}_patches")

    def of_result(self, result: fx.Node) -> fx.Node:
        """A tensor like the convolution's as rows of filters."""
        last = [0, *range(2, 2 + len(self.grid)), 1]
        return self._copied(result, last, [self.rows, self.filters])

    def filter_rows(self) -> fx.Node:
        """The weight as (filters, a patch's elements)."""
        shape = [self.filters, self.columns]
        return self._copied(self.weight, list(range(2 + len(self.window))), shape)

    def result(self, rows: fx.Node) -> fx.Node:
        """Rows of filters as the convolution's result."""
        made, rank = self.made, len(self.grid)
        images = made(aten.view.default, rows, [self.batch, *self.grid, self.filters])
        return made(aten.permute.default, images, [0, 1 + rank, *range(1, 1 + rank)])

    def image_of(self, rows: fx.Node) -> fx.Node:
        """Rows of patches as an image."""
        apart = self.made(aten.view.default, rows, [self.split[k] for k in self.order])
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return self._copied(apart, back, list(self.image.meta["val"].shape))

    def _copied(self, x: fx.Node, order: list[int], shape: list[int], name: str | None = None) -> fx.Node:
        """``x`` with its dimensions in order, as a shape: a view where it lies so."""
        made = self.made
        moved = made(aten.permute.default, x, order) if order != sorted(order) else x
        if not moved.meta["val"].is_contiguous():
            moved = made(aten.clone.default, moved, name=name, memory_format=torch.contiguous_format)
        return made(aten.view.default, moved, shape)


def _like(made: NodeBuilder, node: fx.Node, val: torch.Tensor) -> fx.Node:
    """The node's value laid out as ``val``."""
    if node.meta["val"].stride() == val.stride():
        return node
    return made(aten.clone.default, node, memory_format=torch.contiguous_format, val=val)


def _product(node: fx.Node) -> fx.Node:
    image, weight, bias = node.args[:3]
    patches = _Patches(node, image, weight)
    made, rows = patches.made, patches.of_image()
    across = made(aten.t.default, patches.filter_rows())
    multiply, added = (aten.mm.default, ()) if bias is None else (aten.addmm.default, (bias,))
    product = made(multiply, *added, rows, across, name=f"{node.name}_product")
    return _like(made, patches.result(product), node.meta["val"])


def _gradients(node: fx.Node) -> list[fx.Node | None]:
    grad, image, weight = node.args[:3]
    patches = _Patches(node, image, weight)
    made, rows = patches.made, patches.of_result(grad)
    wanted, vals = node.args[-1], node.meta["val"]
    found: list[fx.Node | None] = [None, None, None]
    if wanted[0]:
        found[0] = _like(made, patches.image_of(made(aten.mm.default, rows, patches.filter_rows())), vals[0])
    if wanted[1]:
        of_filters = made(aten.mm.default, made(aten.t.default, rows), patches.of_image())
        found[1] = _like(made, made(aten.view.default, of_filters, list(vals[1].shape)), vals[1])
    if wanted[2]:
        found[2] = made(aten.sum.dim_IntList, rows, [0])
    return found
