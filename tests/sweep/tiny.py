"""Tiny configurations of any transformers architecture, by looking at what its configuration class holds.

    for config in tiny_configs("bert"): ...     # from small to nearly as configured

Widths shrink in proportion to the configuration's own hidden size, and whatever equals some hidden size of the tree of
configurations becomes the small one, so that what was equal or divisible stays so. Per-layer lists and derived values
are left to the configuration's own constructor, which computes them for two layers as it does for thirty.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

HIDDEN = 32
HEADS = 4
VOCABULARY = 128
POSITIONS = 64
FIRST_SPECIAL_ID = 100  # token ids that mean something (an image here, a mask) are not among those drawn as text
IMAGE, PATCH = 32, 8

HIDDEN_NAMES = ("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "hidden_dim")
HEADS_NAMES = ("num_attention_heads", "num_heads", "n_head", "n_heads", "encoder_attention_heads",
               "decoder_attention_heads", "decoder_num_attention_heads", "encoder_num_attention_heads")  # fmt: skip
LAYERS = re.compile(r"(^|_)(layers?|depth|blocks|n_layer|num_stages_)$")
NOT_LAYERS = re.compile(r"insert|feature_layer|nextn|shared_layers|hidden_layer_index|max_window")
WIDTH = re.compile(r"(size|dim|width|channels?|d_ff|n_inner|d_kv|rank|filters|embd|d_model|planes|heads_dim|queries)$")
NOT_WIDTH = re.compile(
    r"kernel|vocab|window|image|patch|chunk|merge|pool|in_channels|num_channels|batch|type|audio_channels|feed_forward"
    r"|block_size|codebook|feature_size|input_size|query_dim|conv_kernel|context|label|sample|downsampl|group"
)
SPECIAL_ID = re.compile(r"(token_id|token_index|_id|_ids)$")
DROPOUT = re.compile(r"drop")
HEAD_WIDTHS = {"head_dim": 8, "d_kv": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
               "qk_head_dim": 16, "kv_lora_rank": 16, "q_lora_rank": 16, "global_head_dim": 8, "swa_head_dim": 8,
               "linear_key_head_dim": 8, "linear_value_head_dim": 8, "index_head_dim": 16,
               "mamba_d_head": 8, "mamba_head_dim": 8, "linear_head_dim": 8, "rotary_dim": 4,
               "attention_head_dim": 8}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """How far to go. Rebuilding lets the constructor derive; else attributes of the default are overwritten."""

    rebuild: bool = True
    widths: bool = True
    heads: bool = True
    head_widths: bool = True
    images: bool = True
    sections: bool = False
    layers: int = 2
    image: int = IMAGE


# From small to nearly as configured; the first with which the model runs in eager is taken.
PLANS = (
    Plan(), Plan(sections=True), Plan(head_widths=False), Plan(heads=False, head_widths=False), Plan(rebuild=False),
    Plan(image=64), Plan(images=False), Plan(images=False, heads=False, head_widths=False),
    Plan(layers=4), Plan(layers=4, images=False, head_widths=False),
    Plan(rebuild=False, heads=False, head_widths=False, images=False), Plan(widths=False, heads=False, images=False),
    Plan(widths=False, heads=False, images=False, rebuild=False),
)  # fmt: skip


def tiny_configs(model_type: str) -> Iterator[Any]:
    from transformers import CONFIG_MAPPING

    seen = set()
    for plan in PLANS:
        default = CONFIG_MAPPING[model_type]()
        widths = set(_hidden_sizes(default))
        with contextlib.suppress(Exception):
            config = _shrunk(default, plan, widths)
            text = str(config.to_dict())
            if text not in seen:
                seen.add(text)
                yield config


def is_config(value: Any) -> bool:
    return hasattr(value, "to_dict") and hasattr(value, "model_type")


def _read(config: Any, name: str) -> Any:
    """An attribute; None where there is none, or where it differs from layer to layer."""
    with contextlib.suppress(Exception):
        return getattr(config, name, None)
    return None


def _hidden_sizes(config: Any, depth: int = 0) -> Iterator[int]:
    for name in HIDDEN_NAMES:
        value = _read(config, name)
        if type(value) is int and value > HIDDEN:
            yield value
            break
    for inner in vars(config).values():
        if depth < 3 and is_config(inner):
            yield from _hidden_sizes(inner, depth + 1)


def _shrunk(default: Any, plan: Plan, widths: set[int]) -> Any:
    own = next((v for n in HIDDEN_NAMES if type(v := _read(default, n)) is int), None)
    heads = next((v for n in HEADS_NAMES if isinstance(v := _read(default, n), (int, list, tuple))), None)
    changes: dict[str, Any] = {}
    for name in list(vars(default)):
        if name.startswith("_") or name == "chunk_size_feed_forward":
            continue
        value = vars(default)[name]
        if is_config(value):
            changes[name] = _shrunk(value, plan, widths)
        else:
            new = _small(name, value, plan, own, heads, widths, default)
            if new is not value:
                changes[name] = new
    if plan.rebuild:
        accepted = _parameters(type(default))
        with contextlib.suppress(Exception):
            return _finish(type(default)(**{k: v for k, v in changes.items() if k in accepted}), plan)
    for name, value in changes.items():
        with contextlib.suppress(Exception):  # some are computed from others and have no setter
            setattr(default, name, value)
    return _finish(default, plan)


def _parameters(cls: type) -> set[str]:
    names = set(getattr(cls, "__dataclass_fields__", ())) | set(inspect.signature(cls.__init__).parameters)
    return names - {"self", "kwargs", "args"}


def _finish(config: Any, plan: Plan) -> Any:
    """Per-layer lists that the constructor took from the default rather than computed."""
    _fit_state_heads(config, plan)
    layers = _read(config, "num_hidden_layers")
    for name in ("layer_types", "mlp_layer_types", "layers_block_type", "indexer_types", "no_rope_layers"):
        kinds = _read(config, name)
        if isinstance(kinds, list) and type(layers) is int and len(kinds) > layers:
            with contextlib.suppress(Exception):
                setattr(config, name, _varied(kinds, layers))
    return config


def _fit_state_heads(config: Any, plan: Plan) -> None:
    """The heads of a state-space layer share the expanded hidden size."""
    if not plan.head_widths:
        return
    for expand, heads, width in (
        ("expand", "num_heads", "head_dim"),
        ("mamba_expand", "mamba_n_heads", "mamba_d_head"),
        ("mamba_expand", "mamba_num_heads", "mamba_head_dim"),
        ("mamba_expand", "n_mamba_heads", "mamba_headdim"),
    ):
        values = [_read(config, n) for n in (expand, heads, "hidden_size")]
        if all(type(v) is int and v for v in values) and type(_read(config, width)) is int:
            with contextlib.suppress(Exception):
                setattr(config, width, values[0] * values[2] // values[1])


def _varied(kinds: list[Any], count: int) -> list[Any]:
    """As many as there are layers, the different kinds first."""
    distinct = list(dict.fromkeys(kinds))
    return (distinct + kinds)[:count]


def _small(name: str, value: Any, plan: Plan, own: int | None, heads: Any, widths: set[int], config: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return 2 if name == "num_experts_per_tok" and value is None else value
    if isinstance(value, float):
        return 0.0 if DROPOUT.search(name) and value < 1 else value
    if isinstance(value, (list, tuple)):
        return _small_list(name, value, plan, config)
    if isinstance(value, dict):
        return _small_rope(name, value, plan, config)
    if isinstance(value, int):
        return _small_int(name, value, plan, own, heads, widths)
    return value


def _small_int(name: str, value: int, plan: Plan, own: int | None, heads: Any, widths: set[int]) -> int:
    if "vocab" in name and value > VOCABULARY:
        return VOCABULARY
    if SPECIAL_ID.search(name):
        return value if value < 3 else FIRST_SPECIAL_ID + sum(map(ord, name)) % (VOCABULARY - FIRST_SPECIAL_ID)
    if "position" in name and value > POSITIONS and "embedding_type" not in name:
        return POSITIONS
    if name == "context_length":
        return min(value, 16 * POSITIONS)
    if LAYERS.search(name) and not NOT_LAYERS.search(name):
        return min(value, plan.layers)
    if name == "first_k_dense_replace":
        return min(value, 1)
    if name in ("n_group", "topk_group", "num_expert_group", "n_groups", "mamba_n_groups", "mamba_ngroups"):
        return 1
    if "expert" in name and not WIDTH.search(name):
        return min(value, 2 if "_per_" in name or "top" in name or "shared" in name else 4)
    if name in ("image_size", "patch_size", "img_size"):
        wanted = PATCH if name == "patch_size" else plan.image
        return min(value, wanted) if plan.images else value
    if name in HEADS_NAMES and plan.heads:
        return min(value, HEADS)
    if name == "num_key_value_heads" and plan.heads:
        return {1: 1, heads: HEADS}.get(value, 2)
    if name in HEAD_WIDTHS:
        return min(value, HEAD_WIDTHS[name]) if plan.head_widths else value
    if not plan.widths or not WIDTH.search(name) or NOT_WIDTH.search(name) or value <= HIDDEN:
        return value
    if isinstance(heads, (list, tuple)):  # stages: the first is as wide as its heads ask for
        return value // 4 if value % (4 * heads[0]) == 0 else value
    if value in widths or name in HIDDEN_NAMES:
        return HIDDEN if heads is None or plan.heads or HIDDEN % heads == 0 else heads * 8
    base = HIDDEN if heads is None or plan.heads else heads * 8
    scaled = value * base // own if own else value // 8
    return min(value, max(16, scaled // 16 * 16), 256)


def _small_list(name: str, value: Any, plan: Plan, config: Any) -> Any:
    kind = type(value)
    if not value or not all(type(v) is int for v in value):
        return value
    if name in ("depths", "layers", "block_repeats", "stage_blocks", "layer_depths"):
        return kind(min(v, 1 if plan.layers == 2 else 2) for v in value)
    if name in ("image_size", "img_size") and plan.images:
        return kind(plan.image for _ in value)
    if not plan.widths or not re.search(r"(sizes|dims?|channels?|widths?|filters)$", name) or NOT_WIDTH.search(name):
        return value
    smallest = min(value)
    return value if smallest <= 16 else kind(max(16, v * 16 // smallest) for v in value)


def _small_rope(name: str, value: dict[str, Any], plan: Plan, config: Any) -> Any:
    """Sections of a multi-part rotary embedding add up to half a head's width; others do not look at them."""
    if not name.startswith("rope") or not plan.sections:
        return value
    if value and all(isinstance(v, dict) for v in value.values()):  # one for each kind of layer
        return {k: _small_rope(name, v, plan, config) for k, v in value.items()}
    sections = value.get("mrope_section") or (0, 0, 0)
    half = HEAD_WIDTHS["head_dim"] // 2
    split = [half - (len(sections) - 1) * (half // len(sections))] + [half // len(sections)] * (len(sections) - 1)
    return {**value, "mrope_section": split}
