"""Calls of NumPy that graphs hold, as generated files run them.

numpy_call("np.multiply(x0, 2)", (x,), (3, 1))   ->   (a tensor of these strides,)
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from .traced_arrays import function_of

_function = functools.lru_cache(maxsize=1024)(function_of)


def numpy_call(expression: str, tensors: Sequence[torch.Tensor], strides: Sequence[int]) -> tuple[torch.Tensor]:
    """What an expression of NumPy's gives for the arrays ``x0``, ``x1``, ... of tensors. It lies as it was traced,
    wherever the stages have laid its operands.
    """
    result = torch.from_numpy(_function(expression, len(tensors))(*(tensor.detach().numpy() for tensor in tensors)))
    if result.stride() == tuple(strides):
        return (result,)
    return (torch.empty_strided(result.shape, strides, dtype=result.dtype).copy_(result),)
