"""Tiny transformers through capture and autodiff: outputs, gradients, and bytes saved beside eager's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from autodiff_helpers import compiled

import torchglass as tg
from torchglass import autodiff
from torchglass.records.partition import Partition

transformers = pytest.importorskip("transformers")


def small(name: str, attention: str) -> torch.nn.Module:
    torch.manual_seed(0)
    common: dict[str, Any] = {"vocab_size": 64, "attn_implementation": attention}
    if name == "bert":
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
        off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        return transformers.BertModel(transformers.BertConfig(**common, **sizes, **off))
    if name == "gpt2":
        sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "use_cache": False}
        off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        return transformers.GPT2Model(transformers.GPT2Config(**common, **sizes, **off))
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    return transformers.LlamaModel(transformers.LlamaConfig(**common, **sizes, use_cache=False))


def step(call: Any, model: torch.nn.Module, ids: torch.Tensor) -> list[torch.Tensor | None]:
    model.zero_grad()
    out = call(ids).last_hidden_state
    (out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum().backward()
    return [out, *(p.grad for p in model.parameters())]


def eagers_bytes(model: torch.nn.Module, ids: torch.Tensor) -> int:
    """What eager keeps for backward beside parameters, each memory once."""
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(value: torch.Tensor) -> torch.Tensor:
        storage = value.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        out = model(ids)
    assert out[0].requires_grad
    return sum(storage.nbytes() for storage in kept.values())


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_training_step(name: str, attention: str):
    model = small(name, attention).train()
    ids = torch.randint(0, 64, (2, 16))
    partitions: list[Partition] = []

    def backend(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Any:
        partitions.append(autodiff.trace_training(gm, example_inputs))
        return compiled(partitions[-1])

    expected = step(model, model, ids)
    actual = step(tg.compile(model, backend=backend, fullgraph=True), model, ids)
    (partition,) = partitions
    for want, got in zip(expected, actual):
        assert (want is None) == (got is None)
        if want is not None and got is not None:
            torch.testing.assert_close(got, want)
    ours = sum(saved.bytes for saved in partition.saved if saved.place.kind == "output")
    assert ours <= eagers_bytes(model, ids)
