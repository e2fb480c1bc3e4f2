"""Weights in oneDNN's own layout, one for each call in a wrapper: ``y = packed_linear_0(x, weight, bias)``.

A weight is packed at the first call, and again when it, or what is folded into it, is another tensor, has other memory,
or was written to since (its version counter says so). Writes that PyTorch does not count, through ``.data`` or NumPy,
are not noticed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..torch_compat import packed_convolution, packed_linear, packed_weight

PRODUCTS: dict[str, Callable[..., Tensor]] = {"linear": packed_linear, "convolution": packed_convolution}
NORMALIZED = "normalized_"


class Packed:
    """The packed weight of one call. ``kind`` names the product: linear or convolution, ``normalized_`` before it."""

    def __init__(self, kind: str) -> None:
        self._run = PRODUCTS[kind.removeprefix(NORMALIZED)]
        self._operands = 7 if kind.startswith(NORMALIZED) else 2  # weight, bias; then gamma, beta, mean, variance, eps
        self._of: list[weakref.ref[Tensor]] = []
        self._states: list[tuple[int, int]] = []
        self._packed: Any = None
        self._bias: Tensor | None = None

    def __call__(self, x: Tensor, *arguments: Any) -> Tensor:
        """The product of ``x`` and the weight, plus the bias, normalized. Behind the operands stands the geometry:
        stride, padding, dilation, groups.
        """
        operands, geometry = arguments[: self._operands], arguments[self._operands :]
        read = [t for k, t in enumerate(operands) if isinstance(t, Tensor) and (k != 1 or len(operands) > 2)]
        if not self._is_current(read):
            weight, self._bias = folded(*(t.detach() if isinstance(t, Tensor) else t for t in operands))
            self._packed = packed_weight(x, weight, *geometry)
            self._of = [weakref.ref(t) for t in read]
            self._states = [_state(t) for t in read]
        bias = operands[1] if len(operands) == 2 else self._bias
        return self._run(x, self._packed, bias, *geometry)

    def _is_current(self, read: list[Tensor]) -> bool:
        same = len(self._of) == len(read) and all(of() is t for of, t in zip(self._of, read))
        return same and not any(t.is_inference() for t in read) and self._states == [_state(t) for t in read]


def _state(tensor: Tensor) -> tuple[int, int]:
    """What changes when a tensor is written to or gets other memory; inference tensors count no writes."""
    return -1 if tensor.is_inference() else tensor._version, tensor.data_ptr()


def folded(
    weight: Tensor,
    bias: Tensor | None,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    mean: Tensor | None = None,
    var: Tensor | None = None,
    eps: float = 0.0,
) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of ``normalize(product)``, where the statistics are known; computed in float64, then rounded."""
    if mean is None or var is None:
        return weight, bias
    scale = torch.rsqrt(var.double() + eps) * (1.0 if gamma is None else gamma.double())
    shift = ((0.0 if bias is None else bias.double()) - mean.double()) * scale
    shift = shift if beta is None else shift + beta.double()
    scaled = weight.double() * scale.view(-1, *(1,) * (weight.dim() - 1))
    return scaled.to(weight.dtype), shift.to(weight.dtype)
