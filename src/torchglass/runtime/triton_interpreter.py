"""What Triton's interpreter lacks: libdevice's functions, in whose place it gets PyTorch's on the CPU, and our helpers
that are in a GPU's own instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from .loop_evaluator import OPERATIONS

FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    **OPERATIONS,
    "rint": torch.round,
    "normcdf": torch.special.ndtr,
}
"""libdevice's names are those of the loops' operations but for these."""


def supply(libdevice: ModuleType) -> None:
    """Give ``triton.language.extra.libdevice`` functions that can be interpreted. For the life of the process, which
    interprets all of its kernels or none.
    """
    for name, function in FUNCTIONS.items():
        if hasattr(libdevice, name):
            setattr(libdevice, name, _on_blocks(function))


def supply_helpers(module: ModuleType) -> None:
    """Give a kernels file helpers that can be interpreted for those it has: ``tg_index`` raises IndexError."""
    for name, helper in (("tg_index", _index), ("tg_keep", lambda half: half)):
        if type(getattr(module, name, None)).__module__.startswith("triton."):
            setattr(module, name, helper)


def _index(index: Any, size: Any) -> Any:
    most = int(size.handle.data.item() if hasattr(size, "handle") else getattr(size, "value", size))
    numbers = index.handle.data
    wrong = numbers[(numbers < 0) | (numbers >= most)]
    if wrong.size:
        raise IndexError(f"index {int(wrong.flat[0])} is out of range of {most} elements")
    return index


def _on_blocks(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def call(*blocks: Any) -> Any:
        result = function(*(torch.from_numpy(block.handle.data) for block in blocks))
        scalar = blocks[0].type.scalar
        kind = tl.block_type(scalar, list(result.shape)) if result.shape else scalar
        return tl.tensor(TensorHandle(result.numpy(), scalar), kind)

    return call
