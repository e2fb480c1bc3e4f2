"""libdevice's functions for Triton's interpreter, which has none of them: PyTorch's on the CPU take their place."""

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


def _on_blocks(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def call(*blocks: Any) -> Any:
        result = function(*(torch.from_numpy(block.handle.data) for block in blocks))
        scalar = blocks[0].type.scalar
        kind = tl.block_type(scalar, list(result.shape)) if result.shape else scalar
        return tl.tensor(TensorHandle(result.numpy(), scalar), kind)

    return call
