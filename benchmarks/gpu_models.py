"""The rows of ``benchmarks.gpu``: models at the sizes people train and serve them, bfloat16, random weights.

    >>> case = ROWS["gpt2"].build("cuda")
    >>> loss, output = case.forward(case.model)

transformers' models are made from a configuration (nothing is downloaded), with their default attention (sdpa), without
an attention mask and without a cache of keys. Dropout is 0, so that sides can be compared number by number; with
``dropout=0.1`` they are as they are trained. ResNet-50 is torchvision's in channels last, as its users run it.
Rows that are marked as further ones are measured where they are asked for by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Tensor = torch.Tensor
Forward = Callable[[Callable[..., Any], Mapping[str, Tensor]], tuple[Tensor | None, Tensor]]


@dataclass(frozen=True)
class Case:
    """A model, its inputs, and how its loss (None in inference) and its output come of calling it or what was made
    of it.
    """

    model: nn.Module
    inputs: dict[str, Tensor]
    run: Forward

    def forward(self, call: Callable[..., Any]) -> tuple[Tensor | None, Tensor]:
        return self.run(call, self.inputs)

    def to(self, dtype: torch.dtype) -> Case:
        """The same, the numbers as they are by now, in another dtype."""
        inputs = {name: x.to(dtype) if x.is_floating_point() else x for name, x in self.inputs.items()}
        return Case(self.model.to(dtype), inputs, self.run)


Builder = Callable[[bool, float], Case]


@dataclass(frozen=True)
class Row:
    """A case by name. ``builder(small, dropout)`` makes it in float32. ``further``: measured only where it is named."""

    name: str
    title: str
    training: bool
    builder: Builder
    further: bool = False

    def build(self, device: str, small: bool = False, dropout: float = 0.0) -> Case:
        """In bfloat16 on a device; the same numbers each time."""
        torch.manual_seed(0)
        case = self.builder(small, dropout).to(torch.bfloat16)
        inputs = {name: x.to(device) for name, x in case.inputs.items()}
        return Case(case.model.to(device).train(self.training), inputs, case.run)


ROWS: dict[str, Row] = {}


def row(name: str, title: str, training: bool, further: bool = False) -> Callable[[Builder], Builder]:
    """Enter a builder."""

    def enter(builder: Builder) -> Builder:
        if name in ROWS:
            raise AssertionError(f"two rows are called {name}")
        ROWS[name] = Row(name, title, training, builder, further)
        return builder

    return enter


def _own_loss(call: Callable[..., Any], inputs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """transformers' models take labels and return the loss, which is compiled with them."""
    result = call(**inputs)
    return result.loss, result.logits


def _logits(call: Callable[..., Any], inputs: Mapping[str, Tensor]) -> tuple[None, Tensor]:
    return None, call(**inputs).logits


def _tokens(vocabulary: int, batch: int, length: int) -> Tensor:
    return torch.randint(0, vocabulary, (batch, length))


@row("bert", "BERT-base MLM 32x512, training", training=True)
def _bert(small: bool, dropout: float) -> Case:
    """15 % of the tokens have a label."""
    import transformers

    sizes: dict[str, Any] = {}
    if small:
        sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128,
                 "vocab_size": 514}  # fmt: skip
    config = transformers.BertConfig(**sizes, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    tokens = _tokens(config.vocab_size, *((2, 32) if small else (32, 512)))
    labels = tokens.masked_fill(torch.rand(tokens.shape) > 0.15, -100)
    return Case(transformers.BertForMaskedLM(config), {"input_ids": tokens, "labels": labels}, _own_loss)


@row("gpt2", "GPT-2 small LM 16x512, training", training=True)
def _gpt2(small: bool, dropout: float) -> Case:
    import transformers

    sizes: dict[str, Any] = {}
    if small:
        sizes = {"n_embd": 64, "n_layer": 2, "n_head": 2, "vocab_size": 513, "bos_token_id": 0, "eos_token_id": 0}
    drops = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    config = transformers.GPT2Config(**sizes, **drops, use_cache=False)
    tokens = _tokens(config.vocab_size, *((2, 32) if small else (16, 512)))
    return Case(transformers.GPT2LMHeadModel(config), {"input_ids": tokens, "labels": tokens}, _own_loss)


@row("llama", "Llama-like 8x2048, 4x1024, inference", training=False)
def _llama(small: bool, dropout: float) -> Case:
    model, tokens = _llama_like(small)
    return Case(model, {"input_ids": tokens}, _logits)


@row("llama-train", "Llama-like 8x2048, 4x1024, training", training=True)
def _llama_train(small: bool, dropout: float) -> Case:
    model, tokens = _llama_like(small)
    return Case(model, {"input_ids": tokens, "labels": tokens}, _own_loss)


def _llama_like(small: bool) -> tuple[nn.Module, Tensor]:
    import transformers

    sizes = {"hidden_size": 2048, "intermediate_size": 5504, "num_hidden_layers": 8, "num_attention_heads": 16,
             "vocab_size": 32000}  # fmt: skip
    if small:
        sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
                 "vocab_size": 512}  # fmt: skip
    config = transformers.LlamaConfig(**sizes, use_cache=False)
    return transformers.LlamaForCausalLM(config), _tokens(config.vocab_size, *((2, 32) if small else (4, 1024)))


@row("decode", "Llama-like 8x2048, a token in the middle of a static cache of 1024, inference", False, further=True)
def _decode(small: bool, dropout: float) -> Case:
    """The cache is written to in place."""
    import transformers

    model, _ = _llama_like(small)
    longest = 32 if small else 1024
    cache = transformers.StaticCache(config=model.config, max_cache_len=longest)
    inputs = {"input_ids": _tokens(512, 1, 1), "position_ids": torch.full((1, 1), longest // 2)}

    def run(call: Callable[..., Any], inputs: Mapping[str, Tensor]) -> tuple[None, Tensor]:
        place = inputs["position_ids"]
        return None, call(**inputs, past_key_values=cache, cache_position=place[0], use_cache=True).logits

    return Case(model, inputs, run)


@row("vit", "ViT-base 64x224x224, training", training=True)
def _vit(small: bool, dropout: float) -> Case:
    import transformers

    sizes: dict[str, Any] = {"image_size": 224, "num_labels": 1000}
    if small:
        sizes = {"image_size": 32, "num_labels": 10, "hidden_size": 64, "num_hidden_layers": 2,
                 "num_attention_heads": 2, "intermediate_size": 128}  # fmt: skip
    drops = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    config = transformers.ViTConfig(**sizes, **drops, problem_type="single_label_classification")
    images, labels = _images(2 if small else 64, config.image_size, config.num_labels)
    return Case(transformers.ViTForImageClassification(config), {"pixel_values": images, "labels": labels}, _own_loss)


@row("resnet", "ResNet-50 64x224x224, channels last, training", training=True)
def _resnet(small: bool, dropout: float) -> Case:
    import torchvision

    model = torchvision.models.resnet18(num_classes=10) if small else torchvision.models.resnet50()
    return _classified(model, *_images(4 if small else 64, 64 if small else 224, 10 if small else 1000), last=True)


def _classified(model: nn.Module, images: Tensor, labels: Tensor, last: bool = False) -> Case:
    """A model of torchvision's with a loss. ``last``: channels last."""
    memory = torch.channels_last if last else torch.contiguous_format

    def run(call: Callable[..., Any], inputs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        logits = call(inputs["images"])
        return F.cross_entropy(logits, inputs["labels"]), logits

    return Case(model.to(memory_format=memory), {"images": images.to(memory_format=memory), "labels": labels}, run)


def _images(batch: int, size: int, classes: int) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, 3, size, size), torch.randint(0, classes, (batch,))


@row("mlp", "16 x (Linear 64, LayerNorm, GELU), 32 rows, inference", training=False)
def _mlp(small: bool, dropout: float) -> Case:
    blocks = [nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()) for _ in range(4 if small else 16)]

    def run(call: Callable[..., Any], inputs: Mapping[str, Tensor]) -> tuple[None, Tensor]:
        return None, call(inputs["x"])

    return Case(nn.Sequential(*blocks), {"x": torch.randn(32, 64)}, run)


# -- further rows ----------------------------------------------------------------------------------------------------
@row("t5", "T5-base 16 x 256 to 128 tokens, training", training=True, further=True)
def _t5(small: bool, dropout: float) -> Case:
    """An encoder and a decoder; their attention adds a bias of its own that is trained."""
    import transformers

    sizes = {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12}
    if small:
        sizes = {"d_model": 64, "d_kv": 32, "d_ff": 128, "num_layers": 2, "num_heads": 2, "vocab_size": 512}
    config = transformers.T5Config(**sizes, dropout_rate=dropout, decoder_start_token_id=0, use_cache=False)
    batch, source, target = (2, 32, 16) if small else (16, 256, 128)
    tokens, labels = (_tokens(config.vocab_size, batch, length) for length in (source, target))
    return Case(transformers.T5ForConditionalGeneration(config), {"input_ids": tokens, "labels": labels}, _own_loss)


@row("convnext", "ConvNeXt-tiny 64x224x224, channels last, training", training=True, further=True)
def _convnext(small: bool, dropout: float) -> Case:
    """Whole paths are dropped by ``dropout``, at its end."""
    from torchvision.models import convnext

    stages = [(96, 192, 3), (192, 384, 3), (384, 768, 9), (768, None, 3)]
    if small:
        stages = [(24, 48, 1), (48, 96, 1), (96, None, 2)]
    settings = [convnext.CNBlockConfig(*one) for one in stages]
    model = convnext.ConvNeXt(settings, stochastic_depth_prob=dropout, num_classes=10 if small else 1000)
    return _classified(model, *_images(4 if small else 64, 64 if small else 224, 10 if small else 1000), last=True)


@row("swin", "Swin-tiny 64x224x224, training", training=True, further=True)
def _swin(small: bool, dropout: float) -> Case:
    """Whole paths are dropped by ``dropout``, at its end."""
    from torchvision.models import swin_transformer

    sizes: dict[str, Any] = {"embed_dim": 96, "depths": [2, 2, 6, 2], "num_heads": [3, 6, 12, 24], "num_classes": 1000}
    if small:
        sizes = {"embed_dim": 32, "depths": [2, 2], "num_heads": [2, 4], "num_classes": 10}
    model = swin_transformer.SwinTransformer([4, 4], window_size=[7, 7], stochastic_depth_prob=dropout, **sizes)
    return _classified(model, *_images(2 if small else 64, 64 if small else 224, sizes["num_classes"]))
