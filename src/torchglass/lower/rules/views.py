"""Operators that look at the same memory in another way: no loop, no node, only new strides.

``aten.transpose(x, 0, 1)`` of a (2, 3) buffer is the View (3, 2) with strides (1, 3). The strides and offset are those
eager gives (the FX value has them); buffers are laid out as in eager, so they hold for ours.
"""

from __future__ import annotations

from typing import Any

from torch import fx

from ...records.loops import View
from ...records.symbolic_ints import size_of, sizes_of
from ..context import Lowering, Splat, layout_of
from ..table import NotLowered, rule

VIEW_OPS = (
    "view", "_unsafe_view", "_reshape_alias", "expand", "t", "transpose", "permute", "slice", "select", "unsqueeze",
    "squeeze", "diagonal", "unfold", "alias", "detach", "as_strided", "lift_fresh", "movedim",
)  # fmt: skip
SPLITTING_OPS = ("split", "split_with_sizes", "unbind", "chunk", "unsafe_split", "unsafe_split_with_sizes")


def same_memory(base: Any, base_val: Any, val: Any) -> Any:
    """``base`` as ``val`` looks at it, where ``base_val`` and ``val`` are the FX values of the two."""
    if isinstance(base, Splat):
        return Splat(base.value, base.dtype, sizes_of(val.shape))
    if not isinstance(base, View) or val.dtype != base_val.dtype:
        raise NotLowered("a view of another dtype")
    offset = base.offset + size_of(val.storage_offset()) - size_of(base_val.storage_offset())
    return View(base.buffer, *layout_of(val), offset)


@rule(*VIEW_OPS)
def _view(low: Lowering, node: fx.Node, x: Any, *args: Any, **kwargs: Any) -> Any:
    base = node.args[0]
    assert isinstance(base, fx.Node)
    return same_memory(x, base.meta["val"], node.meta["val"])


@rule(*SPLITTING_OPS)
def _split(low: Lowering, node: fx.Node, x: Any, *args: Any, **kwargs: Any) -> Any:
    base = node.args[0]
    assert isinstance(base, fx.Node)
    return tuple(same_memory(x, base.meta["val"], val) for val in node.meta["val"])
