"""Attention on symbolic sizes. PyTorch asks whether a mask's first sizes are 1 before it asks whether they fit."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..process.tables import enters
from ..records.symbolic_ints import environment_of, sizes_of
from ..torch_compat import ON_SYMBOLS
from .symbolic_shapes import meet, spreads

_FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@enters(ON_SYMBOLS)(torch.nn.functional.scaled_dot_product_attention)
def scaled_dot_product_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, **kwargs: Any,
) -> torch.Tensor:  # fmt: skip
    """The operator that PyTorch's function comes to, where that is the CPU's fused one for all sizes."""
    fused = {*kwargs} <= {"scale", "enable_gqa"} and not kwargs.get("enable_gqa") and dropout_p == 0
    if not (fused and not (is_causal and attn_mask is not None) and _fits(query, key, value, attn_mask)):
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, **kwargs
        )
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        attn_mask = torch.where(attn_mask, 0.0, torch.scalar_tensor(-math.inf, dtype=query.dtype))
    found = _FLASH(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=kwargs.get("scale"))
    result: torch.Tensor = found[0]
    return result


def _fits(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None) -> bool:
    """Whether the fused kernel of the CPU takes such tensors, whatever their sizes are."""
    operands = (query, key, value)
    plain = all(t.device.type == "cpu" and t.dim() == 4 and t.dtype is query.dtype for t in operands)
    if not plain or query.dtype not in _DTYPES or not torch.backends.cuda.flash_sdp_enabled():
        return False
    environment = environment_of(operands)
    if environment is None or any(sizes_of(t.stride())[-1] != 1 for t in operands):
        return False
    q, k, v = (sizes_of(t.shape) for t in operands)
    for pair in zip((*q[:2], *k[:2], k[2], q[3], k[3]), (*k[:2], *v[:2], v[2], k[3], v[3])):
        meet(environment, [(one,) for one in pair])
    q, k, v = (sizes_of(t.shape) for t in operands)
    alike = q[:2] == k[:2] == v[:2] and k[2] == v[2] and q[3] == k[3] == v[3]
    if not alike or not all(environment.decide(size, ">=", 1) for size in (*q, k[2])):
        return False
    if mask is None:
        return True
    if mask.dtype not in (torch.bool, query.dtype) or mask.requires_grad or mask.dim() not in (2, 4):
        return False
    scores = *q[:3], k[2]
    meet(environment, [sizes_of(mask.shape), scores])
    return spreads(sizes_of(mask.shape), tuple(map(environment.canonical, scores)))
