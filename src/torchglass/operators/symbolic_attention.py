"""Attention on symbolic sizes. PyTorch asks whether a mask's first sizes are 1 before it asks whether they fit, and on
a GPU comes to the composite of products and a softmax, which is several times as slow, where it is not sure of strides.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

import torch

from ..aten.sizes import hints
from ..process.tables import enters
from ..records.size_environment import SizeEnvironment
from ..records.sizes import product
from ..records.symbolic_ints import environment_of, sizes_of
from ..torch_compat import (
    ON_SYMBOLS,
    DispatchMode,
    OpOverload,
    fake_like,
    is_functional,
    unwrap_functional,
    without_dispatch_modes,
    without_functionalization,
)
from .symbolic_shapes import Layout, Sizes, gives, meet, spreads

aten = torch.ops.aten
_FLASH = aten._scaled_dot_product_flash_attention_for_cpu.default
_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_EFFICIENT = aten._scaled_dot_product_efficient_attention.default
_FUSED = frozenset(
    [_EFFICIENT, aten._scaled_dot_product_flash_attention.default, aten._scaled_dot_product_cudnn_attention.default]
)
"""Of a GPU."""
_ALIGNED = 16
"""Elements of which a row of a mask must be a multiple in memory."""


@enters(ON_SYMBOLS)(torch.nn.functional.scaled_dot_product_attention)
def scaled_dot_product_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, **kwargs: Any,
) -> torch.Tensor:  # fmt: skip
    """The operator that PyTorch's function comes to, where that is a fused one for all sizes."""
    if query.device.type == "cuda" and {*kwargs} <= {"scale"}:
        found = _on_gpu(query, key, value, attn_mask, dropout_p, is_causal, kwargs)
        if found is not None:
            return found
    fused = {*kwargs} <= {"scale", "enable_gqa"} and not kwargs.get("enable_gqa") and dropout_p == 0
    if not (fused and not (is_causal and attn_mask is not None) and _fits(query, key, value, attn_mask)):
        _meet_all(query, key, value, attn_mask)  # PyTorch's composite asks of each pair whether one of it is 1
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, **kwargs
        )
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        attn_mask = _added(attn_mask, query)
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
    if not _alike(environment, query, key, value, least=1):
        return False
    return mask is None or (not mask.requires_grad and _spreads(environment, query, key, mask))


def _alike(
    environment: SizeEnvironment, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, least: int
) -> bool:
    """Whether sizes agree, those of heads, too, and queries and keys are so many at least."""
    _meet_operands(environment, query, key, value)
    q, k, v = (sizes_of(t.shape) for t in (query, key, value))
    alike = q[:2] == k[:2] == v[:2] and k[2] == v[2] and q[3] == k[3] == v[3]
    there = all(environment.decide(size, ">=", 1) for size in (*q[:2], q[3]))
    return alike and there and all(environment.decide(size, ">=", least) for size in (q[2], k[2]))


def _meet_operands(environment: SizeEnvironment, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
    q, k, v = (sizes_of(t.shape) for t in (query, key, value))
    for pair in zip((*q[:2], *k[:2], k[2], q[3], k[3]), (*k[:2], *v[:2], v[2], k[3], v[3])):
        meet(environment, [(one,) for one in pair])


def _meet_all(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None) -> None:
    environment = environment_of((query, key, value))
    if environment is not None and all(t.dim() == 4 for t in (query, key, value)):
        _meet_operands(environment, query, key, value)
        if mask is not None:
            meet(environment, [sizes_of(mask.shape), _scores(query, key)])


def _scores(query: torch.Tensor, key: torch.Tensor) -> Sizes:
    return *sizes_of(query.shape)[:3], sizes_of(key.shape)[2]


def _spreads(environment: SizeEnvironment, query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor) -> bool:
    """Whether a mask is one for the scores."""
    if mask.dtype not in (torch.bool, query.dtype) or mask.dim() not in (2, 4):
        return False
    scores = _scores(query, key)
    meet(environment, [sizes_of(mask.shape), scores])
    return spreads(sizes_of(mask.shape), tuple(map(environment.canonical, scores)))


def _added(mask: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """What is added to the scores for a mask of those that count."""
    return torch.where(mask, 0.0, torch.scalar_tensor(-math.inf, dtype=query.dtype, device=query.device))


# --- a GPU's ----------------------------------------------------------------------------------------------------------
class _Fused(DispatchMode):
    """Notes the fused operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[OpOverload, tuple[Any, ...], dict[str, Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _FUSED:
            self.calls.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def _on_gpu(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, dropout: float,
    causal: bool, kwargs: dict[str, Any],
) -> torch.Tensor | None:  # fmt: skip
    """The fused operator that PyTorch's function comes to with the sizes as they are; None where there is none.

    Of the two with a mask the one that says what it asks of it: that rows begin at multiples of 16 elements.
    """
    operands = (query, key, value)
    environment = environment_of(operands)
    if environment is None or not all(t.dim() == 4 and t.dtype is query.dtype for t in operands):
        return None
    if any(sizes_of(t.stride())[-1] != 1 for t in operands) or not _alike(environment, query, key, value, least=2):
        return None
    if mask is not None and (causal or not _spreads(environment, query, key, mask)):
        return None
    call = _called(query, key, value, mask, dropout, causal, kwargs)
    if call is None:
        return None
    operator, args, named = call
    if mask is None:
        found = operator(*operands, *args, **named)
    else:
        _, logs, *_ = args
        bias = _aligned(_added(mask, query) if mask.dtype is torch.bool else mask, query, key)
        found = _EFFICIENT(*operands, bias, logs, dropout, False, **kwargs)
    result: torch.Tensor = found[0]
    return result


def _called(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, dropout: float,
    causal: bool, kwargs: dict[str, Any],
) -> tuple[OpOverload, tuple[Any, ...], dict[str, Any]] | None:  # fmt: skip
    """The call that PyTorch's function makes of operands with the sizes as they are, less the operands."""
    mode = getattr(unwrap_functional(query) if is_functional(query) else query, "fake_mode", None)
    if mode is None:
        return None
    outside = without_functionalization() if is_functional(query) else contextlib.nullcontext()
    with outside, without_dispatch_modes(), mode:
        operands = [
            fake_like(mode, t, hints(t.shape), hints(t.stride())).requires_grad_(t.requires_grad)
            for t in (query, key, value, mask)
            if t is not None
        ]
        with _Fused() as fused:
            torch.nn.functional.scaled_dot_product_attention(*operands, dropout_p=dropout, is_causal=causal, **kwargs)
    if len(fused.calls) != 1:
        return None
    operator, args, named = fused.calls[0]
    if not all(one is other for one, other in zip(args, operands[:3])):
        return None  # they were cast or padded before
    return operator, args[3:], named


def _aligned(bias: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """The same numbers for all heads, in rows that begin at multiples of ``_ALIGNED``."""
    keys = key.shape[2]
    if bias.shape[-1] == 1:
        bias = bias.expand(*bias.shape[:-1], keys)
    padded = torch.nn.functional.pad(bias, (0, -keys % _ALIGNED))
    return padded.narrow(-1, 0, keys).expand(*query.shape[:3], keys)


@gives(_EFFICIENT)
def _efficient(
    query: Layout, key: Layout, value: Layout, bias: Layout | None, logs: bool, *args: Any, **kwargs: Any
) -> list[Sizes]:
    """With the logarithms of the sums, in blocks of 32, where the backward asks for them."""
    batch, heads, count, _ = query.sizes
    return [(batch, heads, count, value.sizes[-1]), (batch, heads, (count + 31) // 32 * 32 if logs else 0), (), ()]


@gives(aten._scaled_dot_product_efficient_attention_backward.default)
def _efficient_backward(grad: Layout, *args: Any, **kwargs: Any) -> list[Sizes | Layout | None]:
    query, key, value, bias = args[:4]
    return [query.sizes, key.sizes, value.sizes, _aligned_like(bias) if args[9][3] else None]


def _aligned_like(bias: Layout) -> Layout:
    """How the gradient of a mask lies: each row begins at a multiple of ``_ALIGNED``."""
    *outer, keys = bias.sizes
    row = (keys + _ALIGNED - 1) // _ALIGNED * _ALIGNED
    strides = tuple(product((*outer[k + 1 :], row)) for k in range(len(outer)))
    return Layout(bias.sizes, (*strides, 1), 0)
