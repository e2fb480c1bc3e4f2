"""The models that are measured: nine architectures with random weights, 4 layers, hidden size 256 to 512, float32.

    >>> model, inputs = WORKLOADS["bert"].build(attention="sdpa")
    >>> output_of(model(**inputs)).shape
    torch.Size([4, 128, 256])

Seven are transformers' own, made from a configuration (nothing is downloaded); an MLP and a U-Net are plain PyTorch.
Dropout is 0, so that sides can be compared number by number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

LAYERS, HIDDEN, HEADS, VOCABULARY = 4, 256, 4, 1000
BATCH, TOKENS = 4, 128

Built = tuple[nn.Module, dict[str, torch.Tensor]]
Builder = Callable[[str, int], Built]


@dataclass(frozen=True)
class Workload:
    """A model by name. ``attends``: whether the choice of attention changes what it computes with."""

    name: str
    builder: Builder
    attends: bool

    def build(self, attention: str = "sdpa", seed: int = 0, layers: int = LAYERS) -> Built:
        """The model in float32 and its keyword inputs."""
        torch.manual_seed(seed)
        return self.builder(attention, layers)


WORKLOADS: dict[str, Workload] = {}


def workload(name: str, attends: bool = True) -> Callable[[Builder], Builder]:
    """Enter ``builder(attention, layers) -> (model, inputs)`` as a model to measure."""

    def enter(builder: Builder) -> Builder:
        if name in WORKLOADS:
            raise AssertionError(f"two models are called {name}")
        WORKLOADS[name] = Workload(name, builder, attends)
        return builder

    return enter


def output_of(result: Any) -> torch.Tensor:
    """The tensor a model's result is judged by."""
    return result if isinstance(result, torch.Tensor) else result.last_hidden_state


def _pretrained(model: str, config: str, attention: str, **settings: Any) -> nn.Module:
    import transformers

    made = getattr(transformers, config)(**settings)
    made._attn_implementation = attention
    return getattr(transformers, model)(made)


def _tokens() -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (BATCH, TOKENS))


@workload("bert")
def _bert(attention: str, layers: int) -> Built:
    model = _pretrained(
        "BertModel", "BertConfig", attention, vocab_size=VOCABULARY, hidden_size=HIDDEN, num_hidden_layers=layers,
        num_attention_heads=HEADS, intermediate_size=4 * HIDDEN, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return model, {"input_ids": _tokens()}


@workload("gpt2")
def _gpt2(attention: str, layers: int) -> Built:
    model = _pretrained(
        "GPT2Model", "GPT2Config", attention, vocab_size=VOCABULARY, n_embd=HIDDEN, n_layer=layers, n_head=HEADS,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=0, eos_token_id=0,  # within the small vocabulary, else transformers warns
    )  # fmt: skip
    return model, {"input_ids": _tokens()}


@workload("llama")
def _llama(attention: str, layers: int) -> Built:
    model = _pretrained(
        "LlamaModel", "LlamaConfig", attention, vocab_size=VOCABULARY, hidden_size=HIDDEN, num_hidden_layers=layers,
        num_attention_heads=HEADS, intermediate_size=4 * HIDDEN,
    )  # fmt: skip
    return model, {"input_ids": _tokens()}


@workload("t5")
def _t5(attention: str, layers: int) -> Built:
    """Encoder and decoder; each adds its first layer's relative positions to every layer's scores."""
    model = _pretrained(
        "T5Model", "T5Config", attention, vocab_size=VOCABULARY, d_model=HIDDEN, d_kv=HIDDEN // HEADS,
        d_ff=4 * HIDDEN, num_layers=layers, num_heads=HEADS, dropout_rate=0.0, decoder_start_token_id=0,
    )  # fmt: skip
    return model, {"input_ids": _tokens(), "decoder_input_ids": _tokens()}


@workload("vit")
def _vit(attention: str, layers: int) -> Built:
    model = _pretrained(
        "ViTModel", "ViTConfig", attention, hidden_size=HIDDEN, num_hidden_layers=layers, num_attention_heads=HEADS,
        intermediate_size=4 * HIDDEN, image_size=160, patch_size=16, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return model, {"pixel_values": torch.randn(BATCH, 3, 160, 160)}


@workload("convnext", attends=False)
def _convnext(attention: str, layers: int) -> Built:
    """Four stages of depthwise convolutions, the third with what ``layers`` has over three."""
    import transformers

    config = transformers.ConvNextConfig(hidden_sizes=[64, 128, 256, 512], depths=[1, 1, max(1, layers - 3), 1])
    return transformers.ConvNextModel(config), {"pixel_values": torch.randn(BATCH, 3, 128, 128)}


@workload("mixtral")
def _mixtral(attention: str, layers: int) -> Built:
    """A mixture of four experts of which each token visits two."""
    model = _pretrained(
        "MixtralModel", "MixtralConfig", attention, vocab_size=VOCABULARY, hidden_size=HIDDEN,
        num_hidden_layers=layers, num_attention_heads=HEADS, num_key_value_heads=HEADS // 2,
        intermediate_size=2 * HIDDEN, num_local_experts=4, num_experts_per_tok=2,
    )  # fmt: skip
    return model, {"input_ids": _tokens()}


@workload("mlp", attends=False)
def _mlp(attention: str, layers: int) -> Built:
    blocks = [
        nn.Sequential(nn.Linear(2 * HIDDEN, 2 * HIDDEN), nn.LayerNorm(2 * HIDDEN), nn.GELU()) for _ in range(layers)
    ]
    return nn.Sequential(*blocks, nn.Linear(2 * HIDDEN, HIDDEN)), {"input": torch.randn(BATCH * TOKENS, 2 * HIDDEN)}


class UNet(nn.Module):
    """Two halvings and two doublings of the image, with skip connections by concatenation; 32 to 128 channels."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.first = self._twice(3, width)
        self.second = self._twice(width, 2 * width)
        self.bottom = self._twice(2 * width, 4 * width)
        self.up_second = self._twice(6 * width, 2 * width)
        self.up_first = self._twice(3 * width, width)
        self.head = nn.Conv2d(width, 3, 1)

    @staticmethod
    def _twice(inputs: int, outputs: int) -> nn.Module:
        first = [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        second = [nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.SiLU()]
        return nn.Sequential(*first, *second)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        first = self.first(image)
        second = self.second(nn.functional.max_pool2d(first, 2))
        bottom = self.bottom(nn.functional.max_pool2d(second, 2))
        up = nn.functional.interpolate(bottom, scale_factor=2, mode="bilinear")
        up = self.up_second(torch.cat([up, second], 1))
        up = nn.functional.interpolate(up, scale_factor=2, mode="nearest")
        return self.head(self.up_first(torch.cat([up, first], 1)))


@workload("unet", attends=False)
def _unet(attention: str, layers: int) -> Built:
    return UNet(), {"image": torch.randn(BATCH, 3, 64, 64)}
