"""Small transformers models on a GPU: inference and training are eager's, in one graph of Triton kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.gpu.compiled import DEVICE, alike, generated, needs_gpu, train

import torchglass as tg

transformers = pytest.importorskip("transformers")

pytestmark = needs_gpu

WIDTH = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertForMaskedLM", "BertConfig", {**WIDTH, **NO_DROPOUT, "vocab_size": 97}),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {"n_embd": 64, "n_layer": 2, "n_head": 2, "vocab_size": 97, "bos_token_id": 0, "eos_token_id": 0,
         "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "use_cache": False},
    ),
    "llama": ("LlamaForCausalLM", "LlamaConfig", {**WIDTH, "vocab_size": 96, "use_cache": False}),
}  # fmt: skip


def build(name: str, dtype: torch.dtype) -> tuple[torch.nn.Module, torch.Tensor]:
    model, config, sizes = MODELS[name]
    torch.manual_seed(0)
    made = getattr(transformers, model)(getattr(transformers, config)(**sizes))
    return made.to(DEVICE, dtype), torch.randint(3, 90, (2, 24), device=DEVICE)


@pytest.mark.parametrize("padded", [False, True], ids=["no mask", "padded"])
@pytest.mark.parametrize("name", MODELS)
def test_inference(name: str, padded: bool) -> None:
    model, tokens = build(name, torch.float32)
    inputs = {"input_ids": tokens}
    if padded:
        inputs["attention_mask"] = torch.ones_like(tokens).index_fill_(1, torch.arange(20, 24, device=DEVICE), 0)
    compiled = tg.compile(model.eval(), fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            alike(model(**inputs).logits[:, :20], compiled(**inputs).logits[:, :20], 1e-4)
    generated(compiled)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", MODELS)
def test_training(name: str, dtype: torch.dtype) -> None:
    model, tokens = build(name, dtype)
    tol = 1e-4 if dtype == torch.float32 else 5e-2
    train(model.train(), lambda call: call(input_ids=tokens, labels=tokens).loss, tol)
