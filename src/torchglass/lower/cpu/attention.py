"""Attention of float32 on the CPU by our own loops (csrc/attention.cpp) where they are faster than PyTorch's.

``aten._scaled_dot_product_flash_attention_for_cpu(query, key, value)`` becomes a call that writes into memory we plan::

    extern output, None = attention(query, key, value, None, True, 0.125)

PyTorch's takes blocks of 512 keys, which a causal mask does not shorten, and multiplies them by MKL. Ours keeps the
scores of 32 queries with all keys, so it is for as many keys as stay in cache. The backward pass is PyTorch's; it reads
the logarithms of the sums, which are written where something reads them.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ...records.extern_targets import ATTENTION, OPEN_ATTENTION
from ...records.loops import View
from ...records.sizes import Size, all_known, hint
from ...records.target import Cpu
from ..context import Lowering, known_size
from ..strategies import strategy
from ..table import NotLowered

aten = torch.ops.aten


@strategy(Cpu, aten._scaled_dot_product_flash_attention_for_cpu.default, rank=0)
def attention_in_cache(
    low: Lowering, cpu: Cpu, node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[View, View | None]:
    """The node's output and logarithms of sums by our loops (None where nothing reads them)."""
    query, key, value = args[:3]
    dropout = args[3] if len(args) > 3 else 0.0
    causal = len(args) > 4 and bool(args[4])
    mask, scale = kwargs.get("attn_mask"), kwargs.get("scale")
    output, sums = node.meta["val"]
    if not cpu.avx512:
        raise NotLowered("no AVX-512")
    if dropout or output.dtype != torch.float32 or not all(_is_readable(x, low) for x in (query, key, value)):
        raise NotLowered("dropout, another dtype than float32, or numbers of a head that do not lie together")
    keys = _most_keys(query.shape, key.shape, value.shape, causal, cpu)
    scores = (*query.shape[:3], key.shape[2])
    if mask is not None:
        mask = _expanded(mask, scores) if low.dtype(mask) == "float32" else None
        if mask is None:
            raise NotLowered("a mask of another dtype or shape")
    made = low.result_of(output, node.name)
    wanted = any(u.target is not operator.getitem or (u.args[1] == 1 and u.users) for u in node.users)
    logs = low.result_of(sums, f"{node.name}_logsumexp") if wanted else None
    scale = query.shape[3] ** -0.5 if scale is None else scale
    results = [made.buffer, None if logs is None else logs.buffer]
    known = all_known((*query.shape, *key.shape, *value.shape))
    limits = [] if known else [cpu.lowering.attention_queries, keys]
    call = [query, key, value, mask, causal, scale, *limits]
    low.extern(ATTENTION if known else OPEN_ATTENTION, call, {}, results, out=True)
    return made, logs


def _is_readable(x: Any, low: Lowering) -> bool:
    return isinstance(x, View) and low.dtype(x) == "float32" and x.strides[-1] == 1 and len(x.shape) == 4


def _most_keys(query: Sequence[Size], key: Sequence[Size], value: Sequence[Size], causal: bool, cpu: Cpu) -> int:
    """As many keys as stay in cache; NotLowered unless the sizes are those that our loops take and those that pay."""
    if min(map(hint, (*query, *key, *value))) < 1:
        raise NotLowered("nothing to attend to")
    if query[:2] != key[:2] or key[:3] != value[:3]:
        raise NotLowered("heads of different numbers")
    if hint(query[2]) < cpu.lowering.attention_queries:
        raise NotLowered(f"fewer than {cpu.lowering.attention_queries} queries")
    most = cpu.lowering.attention_scores * (4 if causal else 1) // known_size(key[3] + value[3])
    if hint(key[2]) > most:
        raise NotLowered("more keys than stay in cache")
    return most


def _expanded(mask: View, shape: tuple[Size, ...]) -> View | None:
    """The mask as it spreads over all heads; None if it does not."""
    missing = len(shape) - len(mask.shape)
    sizes, strides = (1,) * missing + tuple(mask.shape), (0,) * missing + tuple(mask.strides)
    if any(size not in (1, all_) for size, all_ in zip(sizes, shape)):
        return None
    return View(mask.buffer, shape, tuple(0 if s == 1 else stride for s, stride in zip(sizes, strides)), mask.offset)
