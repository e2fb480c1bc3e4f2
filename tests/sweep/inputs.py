"""Inputs for any transformers model, from its main input's name, its forward signature and its configuration.

for candidate in candidate_inputs(model): candidate.made() ...     # the first that the model takes is used
candidate.made(Extent(batch=3, length=8))                          # the same for other sizes
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

FRAMES = 4
LARGEST_IMAGE = 256
VARIANTS = 4  # of one input's axes: channels first or last, with frames or without


@dataclass(frozen=True)
class Extent:
    """How large inputs are: items, tokens, and by how many halves of their usual size images and sounds are made."""

    batch: int = 2
    length: int = 9
    halves: int = 2


USUAL = Extent()


@dataclass(frozen=True)
class Candidate:
    """Inputs that a model may take."""

    config: Any
    names: tuple[str, ...]
    variant: int

    def made(self, extent: Extent = USUAL) -> dict[str, Any]:
        wish = Wish(self.config, self.variant, torch.Generator().manual_seed(0), extent)
        return {name: MAKERS[name](wish, name) for name in self.names}


def candidate_inputs(model: torch.nn.Module) -> Iterator[Candidate]:
    """The likeliest first: what is required, then with more of what the model could take."""
    seen = set()
    for names in _choices(model):
        if any(n not in MAKERS for n in names):
            continue
        for variant in range(VARIANTS):
            candidate = Candidate(model.config, tuple(names), variant)
            key = str([(n, v.shape) for n, v in candidate.made().items()])
            if names and key not in seen:
                seen.add(key)
                yield candidate


def _choices(model: torch.nn.Module) -> list[list[str]]:
    parameters = inspect.signature(model.forward).parameters
    named = [p for p in parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    main = model.main_input_name if isinstance(model.main_input_name, str) else "input_ids"
    wanted = [p.name for p in named if p.default is inspect.Parameter.empty]
    if main in parameters and main not in wanted:
        wanted.insert(0, main)
    wanted = wanted or [p.name for p in named[:1]]
    more = [n for n in OPTIONAL if n in parameters and n not in wanted]
    choices = [wanted, *([*wanted, n] for n in more), [*wanted, *more]]
    if getattr(model.config, "is_encoder_decoder", False) and "decoder_input_ids" in more:
        choices.insert(0, [*wanted, "decoder_input_ids"])
    if "input_ids" in parameters:
        choices.append(["input_ids"])
    return choices


@dataclass
class Wish:
    """What inputs are made from. ``first`` looks in the configuration and those inside it, vision and audio first."""

    config: Any
    variant: int
    random: torch.Generator
    extent: Extent

    def batch_of(self, *shape: int) -> torch.Tensor:
        return self.normal(self.extent.batch, *shape)

    def tokens_of(self, *shape: int) -> torch.Tensor:
        return self.batch_of(self.extent.length, *shape)

    def scaled(self, size: int) -> int:
        return size * self.extent.halves // 2

    def first(self, *names: str, default: int) -> int:
        for part in [self.config, *settings(self.config)]:
            for name in names:
                value = getattr(part, name, None)
                if isinstance(value, (list, tuple)) and value:
                    value = value[0]
                if type(value) is int and value > 0:
                    return value
        return default

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.random)

    def integers(self, low: int, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=self.random)


def settings(config: Any) -> Iterator[Any]:
    inner = [(n, v) for n, v in vars(config).items() if hasattr(v, "to_dict") and hasattr(v, "model_type")]
    inner.sort(key=lambda pair: not any(w in pair[0] for w in ("vision", "audio", "backbone", "encoder")))
    for _, value in inner:
        yield from settings(value)
    yield config


Maker = Callable[[Wish, str], torch.Tensor]
MAKERS: dict[str, Maker] = {}
OPTIONAL = ("decoder_input_ids", "pixel_values", "input_ids", "bbox", "attention_mask", "encoder_hidden_states")


def makes(*names: str) -> Callable[[Maker], Maker]:
    def register(maker: Maker) -> Maker:
        for name in names:
            if name in MAKERS:
                raise ValueError(f"{name}: already made")
            MAKERS[name] = maker
        return maker

    return register


@makes("input_ids", "decoder_input_ids", "question_ids")
def token_ids(wish: Wish, name: str) -> torch.Tensor:
    sizes = [s.vocab_size for s in settings(wish.config) if type(getattr(s, "vocab_size", None)) is int]
    shape = [wish.extent.batch, wish.extent.length]
    if wish.variant in (1, 2):  # several codebooks, last; at the next variant before the length
        shape.insert(3 - wish.variant, wish.first("num_codebooks", "num_quantizers", "num_vq", default=4))
    return wish.integers(3, max(4, min([90, *sizes])), *shape)


@makes("inputs")
def any_input(wish: Wish, name: str) -> torch.Tensor:
    if wish.variant % 2:
        return wish.tokens_of(wish.first("d_model", "hidden_size", default=32))
    return token_ids(wish, name)


@makes("attention_mask", "decoder_attention_mask")
def mask(wish: Wish, name: str) -> torch.Tensor:
    return torch.ones(wish.extent.batch, wish.extent.length, dtype=torch.long)


@makes("bbox")
def boxes(wish: Wish, name: str) -> torch.Tensor:
    corner = wish.integers(0, 20, wish.extent.batch, wish.extent.length, 2)
    both = torch.cat([corner, corner + 5], -1)
    return both if wish.variant % 2 == 0 else both.float() / 32


@makes("pixel_values", "pixel_values_videos", "pixel_values_images", "image", "images")
def pixels(wish: Wish, name: str) -> torch.Tensor:
    size = min(wish.first("image_size", "img_size", default=64 if wish.variant < 2 else 224), LARGEST_IMAGE)
    size = wish.scaled(size)
    channels = wish.first("num_channels", "in_channels", "in_chans", default=3)
    if name == "pixel_values_videos" or wish.variant % 2:
        return wish.batch_of(wish.first("num_frames", "frames", default=FRAMES), channels, size, size)
    return wish.batch_of(channels, size, size)


@makes("input_values", "audio_values", "waveform")
def sound(wish: Wish, name: str) -> torch.Tensor:
    if hasattr(wish.config, "max_length") and hasattr(wish.config, "num_mel_bins"):
        return wish.batch_of(wish.config.max_length, wish.config.num_mel_bins)
    return wish.batch_of(*[1] * (wish.variant % 2), wish.scaled(1600))


@makes("input_features", "audio_features", "spectrogram")
def spectrum(wish: Wish, name: str) -> torch.Tensor:
    bins = wish.first(
        "num_mel_bins", "feature_size", "feature_projection_input_dim", "input_feat_per_channel", "n_mels",
        "num_mel_filters", "input_channels", "input_size", default=80,
    )  # fmt: skip
    frames = wish.scaled(2 * wish.first("max_source_positions", default=32))
    shapes = [(bins, frames), (frames, bins), (1, frames, bins), (frames, 2 * bins)]
    return wish.batch_of(*shapes[wish.variant])


@makes("past_values", "past_observed_mask", "past_time_features", "future_values", "future_time_features")
def series(wish: Wish, name: str) -> torch.Tensor:
    lags = getattr(wish.config, "lags_sequence", None) or [0]
    length = wish.first("context_length", default=32) + (max(lags) if wish.variant < 2 else 0)
    count = wish.first("prediction_length", default=8) if name.startswith("future") else length
    if name.endswith("features"):
        return wish.batch_of(count, wish.first("num_time_features", default=1))
    channels = [] if wish.variant % 2 else [wish.first("num_input_channels", default=1)]
    made = wish.batch_of(count, *channels)
    return torch.ones_like(made) if name.endswith("mask") else made


@makes("hidden_states", "inputs_embeds", "query_embeds", "encoder_hidden_states")
def embedded(wish: Wish, name: str) -> torch.Tensor:
    width = wish.first("encoder_hidden_size", "hidden_size", "d_model", default=32)
    return wish.tokens_of(width if name.startswith("encoder") else wish.first("hidden_size", default=32))
