"""Writing to a tensor never changes how it lies in memory; the pure operations that stand for writes may.

``x.masked_fill_(mask, 0)`` becomes ``masked_fill(x, mask, 0)``, whose result is contiguous whatever ``x`` is, and
``x.mul_(2)`` on every second column becomes ``mul(x, 2)``, whose result has no gaps. Code behind the write would see
other strides than in eager. Input: a captured call and its functional arguments. Output: its result; arguments that it
wrote to have their strides again, by ``copy`` into the old layout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from ..aten.nested import tensors_in
from ..torch_compat import replace_functional, unwrap_functional, without_functionalization
from .recorder import AutodiffError

Strides = tuple[int, ...]


def keeping_layouts(node: torch.fx.Node, call: Callable[[torch.fx.Node, Any, Any], Any], args: Any, kwargs: Any) -> Any:
    """``call(node, args, kwargs)``; see the module's docstring."""
    before = [(t, t.shape, t.stride(), t.storage_offset()) for t in tensors_in((*args, *kwargs.values()))]
    result = call(node, args, kwargs)
    for tensor, shape, strides, offset in before:
        if tensor.shape == shape and (tensor.stride(), tensor.storage_offset()) != (strides, offset):
            if not _turns_in_place(node.target):
                _lay_out(tensor, strides)
            elif tensor.storage_offset() != offset:
                raise AutodiffError(f"{node.target} changes in place where a tensor begins")
    return result


def out_of_place(target: Any) -> Callable[..., torch.Tensor] | None:
    """``transpose`` of ``transpose_``; None of a call that does not turn a tensor in place."""
    name = _name(target)
    return getattr(torch.Tensor, name[:-1]) if name in TURNS else None


TURNS = frozenset({"as_strided_", "squeeze_", "swapaxes_", "swapdims_", "t_", "transpose_", "unsqueeze_"})
"""What shows the same memory in another layout, in place."""


def _name(target: Any) -> str:
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return str(name.partition(".")[0])


def _turns_in_place(target: Any) -> bool:
    """Whether the call is one of ``t_``, ``resize_``, ...: made to change the layout."""
    packet = getattr(torch.ops.aten, _name(target), None)
    return packet is not None and any(
        torch.Tag.inplace_view in getattr(packet, overload).tags for overload in packet.overloads()
    )


def _lay_out(tensor: torch.Tensor, strides: Strides) -> None:
    """Give a functional tensor's value these strides."""
    value = unwrap_functional(tensor)
    if value.stride() == strides:
        return
    with without_functionalization():
        memory = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
        replaced = torch.ops.aten.copy.default(memory, value)
    replace_functional(tensor, replaced)
