"""The assumption by which a GPU's kernels count in 32 bits where sizes change: a guard on how far indices reach.

    x of float32[s0, s1, 768], scores of [s0, 12, s1, s1]      768*s0*s1 + 12*s0*s1*s1 <= 1073676288

Divisions of 64 bits take a GPU many times as long. Sizes that are beyond it at first take kernels that count in 64.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch.fx

from ..aten.nested import tensors_in
from ..records.index_range import MOST_ELEMENTS, joined
from ..records.size_environment import SizeEnvironment
from ..records.sizes import Size, hint, is_known, product
from ..records.symbolic_ints import sizes_of


def assumed(joint: torch.fx.GraphModule, environment: SizeEnvironment | None) -> Size | None:
    """More elements than any tensor of the graph has, which is assumed to be at most ``MOST_ELEMENTS``; None where it
    is not, or nothing on a GPU changes its size. Of sizes that data decide nothing is assumed.
    """
    if environment is None or environment.closed:
        return None
    found = {size for size in _reached(joint) if not environment.is_by_data(size)}
    if all(map(is_known, found)):
        return None
    elements = environment.canonical(joined(found))
    if hint(elements) > MOST_ELEMENTS:
        return None
    environment.decide(elements, "<=", MOST_ELEMENTS, "kernels count elements in 32 bits")
    return elements


def _reached(joint: torch.fx.GraphModule) -> Iterator[Size]:
    """The elements of each tensor on a GPU, and what its strides come to."""
    for node in joint.graph.nodes:
        for tensor in tensors_in(node.meta.get("val")):
            if tensor.device.type == "cuda":
                sizes, strides = sizes_of(tensor.shape), sizes_of(tensor.stride())
                yield product(sizes)
                yield from (size * stride for size, stride in zip(sizes, strides))
