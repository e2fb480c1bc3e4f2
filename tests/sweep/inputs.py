"""Inputs for any transformers model, from its main input's name, its forward signature and its configuration.

    for inputs in candidate_inputs(model): ...     # the first that the model takes is used
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch

BATCH, LENGTH, FRAMES = 2, 9, 4


def candidate_inputs(model: torch.nn.Module) -> Iterator[dict[str, Any]]:
    parameters = inspect.signature(model.forward).parameters
    named = [p for p in parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    main = model.main_input_name if isinstance(model.main_input_name, str) else "input_ids"
    wanted = [p.name for p in named if p.default is inspect.Parameter.empty]
    if main in parameters and main not in wanted:
        wanted.insert(0, main)
    if not wanted:
        wanted = [named[0].name]
    more = [n for n in ("decoder_input_ids", "pixel_values", "input_ids") if n in parameters and n not in wanted]
    choices = [wanted, *([*wanted, n] for n in more), [*wanted, *more], *(["input_ids"] if "input_ids" in parameters else [],)]
    if getattr(model.config, "is_encoder_decoder", False) and "decoder_input_ids" in more:
        choices.insert(0, choices.pop(1 + more.index("decoder_input_ids")))
    seen = set()
    for names in choices:
        for variant in range(4):
            made = {n: make(n, model, variant) for n in names}
            made = {n: v for n, v in made.items() if v is not None}
            key = str([(n, getattr(v, "shape", v)) for n, v in made.items()])
            if made and key not in seen:
                seen.add(key)
                yield made


def settings(config: Any) -> Iterator[Any]:
    """The configuration and those inside it, the vision and audio ones first."""
    inner = [(n, v) for n, v in vars(config).items() if hasattr(v, "to_dict") and hasattr(v, "model_type")]
    inner.sort(key=lambda pair: not any(w in pair[0] for w in ("vision", "audio", "backbone", "encoder")))
    for _, value in inner:
        yield from settings(value)
    yield config


def first(config: Any, names: tuple[str, ...], default: int) -> int:
    for part in [config, *settings(config)]:
        for name in names:
            value = getattr(part, name, None)
            if isinstance(value, (list, tuple)) and value and type(value[0]) is int:
                value = value[0]
            if type(value) is int and value > 0:
                return value
    return default


def make(name: str, model: torch.nn.Module, variant: int) -> Any:
    """A tensor for the parameter ``name``; variants differ in the order or number of axes."""
    config, random = model.config, torch.Generator().manual_seed(0)
    if name in ("input_ids", "decoder_input_ids", "inputs", "question_ids"):
        size = next((s.vocab_size for s in settings(config) if type(getattr(s, "vocab_size", None)) is int), 99)
        if name == "inputs" and variant % 2:
            return torch.randn(BATCH, LENGTH, first(config, ("d_model", "hidden_size"), 32), generator=random)
        shape = (BATCH, LENGTH, first(config, ("num_codebooks", "num_quantizers"), 1)) if variant == 1 else (BATCH, LENGTH)
        return torch.randint(3, max(4, min(90, size)), shape, generator=random)
    if name in ("attention_mask", "decoder_attention_mask"):
        return torch.ones(BATCH, LENGTH, dtype=torch.long)
    if name == "bbox":
        return torch.randint(0, 30, (BATCH, LENGTH, 1), generator=random).expand(BATCH, LENGTH, 4).contiguous()
    if name in ("pixel_values", "pixel_values_videos", "pixel_values_images", "image", "images"):
        size = first(config, ("image_size", "img_size"), 64 if variant < 2 else 224)
        channels = first(config, ("num_channels", "in_channels", "in_chans"), 3)
        frames = first(config, ("num_frames", "frames"), FRAMES)
        video = name == "pixel_values_videos" or variant % 2
        shape = (BATCH, frames, channels, size, size) if video else (BATCH, channels, size, size)
        return torch.randn(shape, generator=random)
    if name in ("input_values", "audio_values", "waveform"):
        if hasattr(config, "max_length") and hasattr(config, "num_mel_bins"):
            return torch.randn(BATCH, config.max_length, config.num_mel_bins, generator=random)
        return torch.randn((BATCH, 1, 1600) if variant % 2 else (BATCH, 1600), generator=random)
    if name in ("input_features", "audio_features", "spectrogram"):
        bins = first(config, ("num_mel_bins", "feature_size", "feature_projection_input_dim", "input_feat_per_channel",
                              "n_mels", "num_mel_filters", "input_channels", "input_size"), 80)  # fmt: skip
        frames = 2 * first(config, ("max_source_positions",), 32)
        shapes = [(BATCH, bins, frames), (BATCH, frames, bins), (BATCH, 1, frames, bins), (BATCH, frames, 2 * bins)]
        return torch.randn(shapes[variant], generator=random)
    if name in ("past_values", "past_observed_mask", "past_time_features", "future_values", "future_time_features"):
        return _series(name, config, random, variant)
    if name in ("hidden_states", "inputs_embeds", "query_embeds", "encoder_hidden_states"):
        return torch.randn(BATCH, LENGTH, first(config, ("hidden_size", "d_model"), 32), generator=random)
    return None


def _series(name: str, config: Any, random: torch.Generator, variant: int) -> torch.Tensor:
    lags = getattr(config, "lags_sequence", None) or [0]
    length = first(config, ("context_length",), 32) + (max(lags) if variant < 2 else 0)
    future = first(config, ("prediction_length",), 8)
    channels = first(config, ("num_input_channels",), 1)
    count = future if name.startswith("future") else length
    if name.endswith("features"):
        return torch.randn(BATCH, count, first(config, ("num_time_features",), 1), generator=random)
    shape = (BATCH, count) if variant % 2 else (BATCH, count, channels)
    return torch.ones(shape) if name.endswith("mask") else torch.randn(shape, generator=random)
