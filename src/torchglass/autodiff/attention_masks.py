"""Attention whose mask follows from numbers alone: without the mask, where it says nothing.

Input: the arguments of a captured call, and what is known of its mask. Output: arguments that mean the same. ::

    attention(q, k, v, attn_mask=(arange(n)[:, None] >= 0).expand(n, n))   ->   attention(q, k, v)
    attention(q, k, v, attn_mask=ones(n, n, dtype=bool).tril())            ->   attention(q, k, v, is_causal=True)

Models leave such masks out where they may look into them, and make them where they are told that they are compiled
(transformers' ``masking_utils``). PyTorch's fused kernels take no mask, or not every one: a step of BERT with one takes
twice as long on an H100.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..torch_compat import without_dispatch_modes, without_functionalization

attention = torch.nn.functional.scaled_dot_product_attention

LARGEST = 1 << 24
"""Elements of a mask, and of what it is made of, that are computed while compiling."""


def _parameters(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: Any = 0.0,
    is_causal: Any = False,
    *,
    scale: Any = None,
    enable_gqa: Any = False,
) -> None: ...


_SIGNATURE = inspect.signature(_parameters)  # the function, which is built in, has none


def without_mask(
    args: Sequence[Any], kwargs: Mapping[str, Any], value_of: Callable[[torch.Tensor], torch.Tensor | None]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arguments of ``scaled_dot_product_attention``, less a mask that says nothing."""
    try:
        call = _SIGNATURE.bind(*args, **kwargs)
    except TypeError:  # the function will say what is wrong
        return args, kwargs
    mask = call.arguments.get("attn_mask")
    if not isinstance(mask, torch.Tensor) or mask.requires_grad or call.arguments.get("is_causal"):
        return args, kwargs
    known = value_of(mask)
    if known is None:
        return args, kwargs
    square = call.arguments["query"].shape[-2] == call.arguments["key"].shape[-2]
    with without_functionalization(), without_dispatch_modes():  # it is a real tensor
        known = _once(known)
        if _hides_nothing(known):
            call.arguments["attn_mask"] = None
        elif square and _hides_what_comes_later(known):
            call.arguments["attn_mask"], call.arguments["is_causal"] = None, True
    return call.args, call.kwargs


def _once(mask: torch.Tensor) -> torch.Tensor:
    """The mask with what is repeated along a dimension there once."""
    for dim, step in enumerate(mask.stride()):
        if step == 0 and mask.shape[dim]:
            mask = mask.narrow(dim, 0, 1)
    return mask


def _hides_nothing(mask: torch.Tensor) -> bool:
    return bool(mask.all()) if mask.dtype == torch.bool else bool((mask == 0).all())


def _hides_what_comes_later(mask: torch.Tensor) -> bool:
    if mask.dtype != torch.bool or mask.dim() < 2 or mask.shape[-1] != mask.shape[-2]:
        return False
    return bool((mask == torch.ones_like(mask).tril()).all())
