"""Weights in oneDNN's own layout, one for each call in a wrapper: ``y = packed_linear_0(x, weight, bias)``.

A weight is packed at the first call, and again when it is another tensor, has other memory, or was written to since
(its version counter says so). Writes that PyTorch does not count, through ``.data`` or NumPy, are not noticed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from ..torch_compat import packed_convolution, packed_linear, packed_weight


class Packed:
    """The packed weight of one call. ``kind`` names the product: linear or convolution."""

    def __init__(self, kind: str) -> None:
        products: dict[str, Callable[..., torch.Tensor]] = {"linear": packed_linear, "convolution": packed_convolution}
        self._run = products[kind]
        self._of: weakref.ref[torch.Tensor] | None = None
        self._version = self._address = -1
        self._packed: Any = None

    def __call__(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *geometry: Any
    ) -> torch.Tensor:
        """The product of ``x`` and ``weight``, plus ``bias``. ``geometry``: stride, padding, dilation, groups."""
        same = weight._version == self._version and weight.data_ptr() == self._address
        if not same or self._of is None or self._of() is not weight:
            self._packed = packed_weight(x, weight.detach(), *geometry)
            self._of = weakref.ref(weight)
            self._version, self._address = weight._version, weight.data_ptr()
        return self._run(x, self._packed, bias, *geometry)
