"""Caches of keys and values that grow by one with each token: two entries for all lengths after the prompt's."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torchglass as tg

from .test_changing_sizes import entries

WEIGHTS = [torch.randn(16, 48, generator=torch.Generator().manual_seed(n)) / 4 for n in range(2)]


def heads(x: torch.Tensor) -> torch.Tensor:
    return x.view(*x.shape[:2], 4, 4).transpose(1, 2)


def projected(x: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:
    return [heads(part) for part in (x @ weight).chunk(3, -1)]


def joined(x: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    return x + made.transpose(1, 2).reshape(x.shape)


def in_lists(x: torch.Tensor, cache: list[Any]) -> tuple[torch.Tensor, list[Any]]:
    grown = []
    for weight, (keys, values) in zip(WEIGHTS, cache):
        q, k, v = projected(x, weight)
        k, v = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        grown.append((k, v))
        causal = q.shape[2] > 1 and q.shape[2] == k.shape[2]
        x = joined(x, F.scaled_dot_product_attention(q, k, v, is_causal=causal))
    return x, grown


def in_dictionaries(x: torch.Tensor, cache: dict[int, Any]) -> tuple[torch.Tensor, Any]:
    for layer, weight in enumerate(WEIGHTS):
        q, k, v = projected(x, weight)
        if layer in cache:
            k, v = torch.cat([cache[layer]["k"], k], 2), torch.cat([cache[layer]["v"], v], 2)
        cache[layer] = {"k": k, "v": v}
        x = joined(x, F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1))
    return x, cache


class Cache:
    def __init__(self) -> None:
        self.seen = 0
        self.keys: list[Any] = [None, None]
        self.values: list[Any] = [None, None]


def in_attributes(x: torch.Tensor, cache: Cache) -> tuple[torch.Tensor, Cache]:
    places = torch.arange(cache.seen, cache.seen + x.shape[1])
    x = x + (places[:, None] / 10).sin()
    for layer, weight in enumerate(WEIGHTS):
        q, k, v = projected(x, weight)
        if cache.keys[layer] is not None:
            k, v = torch.cat([cache.keys[layer], k], 2), torch.cat([cache.values[layer], v], 2)
        cache.keys[layer], cache.values[layer] = k, v
        mask = torch.arange(k.shape[2])[None] <= places[:, None]
        x = joined(x, F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
    cache.seen += x.shape[1]
    return x, cache


class Room:
    """Memory for all tokens, and how many there are."""

    def __init__(self) -> None:
        self.keys, self.values, self.count = torch.zeros(2, 4, 64, 4), torch.zeros(2, 4, 64, 4), 0


def in_one_room(x: torch.Tensor, room: Room) -> tuple[torch.Tensor, Room]:
    q, k, v = projected(x, WEIGHTS[0])
    begin, room.count = room.count, room.count + x.shape[1]
    room.keys[:, :, begin : room.count] = k
    room.values[:, :, begin : room.count] = v
    k, v = room.keys[:, :, : room.count], room.values[:, :, : room.count]
    return joined(x, F.scaled_dot_product_attention(q, k, v, is_causal=x.shape[1] > 1)), room


LOOPS: dict[Any, Callable[[], Any]] = {
    in_lists: lambda: [(torch.zeros(2, 4, 0, 4),) * 2] * 2, in_dictionaries: dict, in_attributes: Cache,
    in_one_room: Room,
}  # fmt: skip


def decoded(function: Any, cache: Any) -> list[torch.Tensor]:
    generator, made = torch.Generator().manual_seed(1), []
    for length in [7] + [1] * 24:
        y, cache = function(torch.randn(2, length, 16, generator=generator), cache)
        made.append(y)
    return made


@pytest.mark.parametrize("backend", ["aot_eager", "glass"])
@pytest.mark.parametrize("function", LOOPS)
def test_hand_written(function: Any, backend: str) -> None:
    compiled = tg.compile(function, backend=backend)
    with torch.no_grad():
        for ours, eager in zip(decoded(compiled, LOOPS[function]()), decoded(function, LOOPS[function]()), strict=True):
            torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4)
    assert entries(compiled) <= 3
    assert not tg.explain(compiled).to_dict()["fallbacks"]


class Attention(torch.nn.Module):
    """A module that keeps its own cache and counts its tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.keys, self.values = 0, None, None

    def forward(self, x: torch.Tensor, _: None) -> tuple[torch.Tensor, None]:
        q, k, v = projected(x, WEIGHTS[0])
        if self.keys is not None:
            k, v = torch.cat([self.keys, k], 2), torch.cat([self.values, v], 2)
        self.keys, self.values = k, v
        self.count += x.shape[1]
        return joined(x * self.count, F.scaled_dot_product_attention(q, k, v, is_causal=x.shape[1] > 1)), None


def test_in_a_module() -> None:
    compiled = tg.compile(Attention(), backend="aot_eager")
    with torch.no_grad():
        for ours, eager in zip(decoded(compiled, None), decoded(Attention(), None), strict=True):
            torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4)
    assert entries(compiled) <= 3


def language_model(kind: str) -> Any:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    if kind == "llama":
        config = transformers.LlamaConfig(vocab_size=64, num_hidden_layers=1, **sizes, bos_token_id=1, eos_token_id=2)
        model = transformers.LlamaForCausalLM(config)
    elif kind == "gemma2":  # whose first layer sees a window, and counts the tokens that it has seen
        sizes |= {"num_hidden_layers": 2, "head_dim": 8, "sliding_window": 16}
        model = transformers.Gemma2ForCausalLM(
            transformers.Gemma2Config(vocab_size=64, **sizes, bos_token_id=1, eos_token_id=2)
        )
    else:
        sizes = {"n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 128}
        model = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(vocab_size=64, **sizes, bos_token_id=1, eos_token_id=2)
        )
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = None, 0
    return model.eval()


STATIC = {"cache_implementation": "static", "disable_compile": True}


@pytest.mark.parametrize(
    ("kind", "wishes", "whole", "most"),
    [
        ("llama", {}, True, (3, 4, 4)),
        ("gpt2", {}, False, (3, 4, 4)),
        ("llama", STATIC, False, (2, 4, 4)),  # room for another number of tokens
        ("gemma2", {}, False, (3, 6, 6)),  # and where the window fills
    ],
)
def test_generate(kind: str, wishes: dict[str, Any], whole: bool, most: tuple[int, ...]) -> None:
    """The prompt, the first token after it, and all others; the next prompt of another length is one more."""
    plain, model = language_model(kind), language_model(kind)
    if whole:
        model = compiled = tg.compile(model, backend="aot_eager")
    else:
        model.forward = compiled = tg.compile(model.forward, backend="aot_eager")
    made = []
    with torch.no_grad():
        for length, tokens in ((7, 4), (5, 12), (9, 20)):
            prompt = torch.randint(1, 64, (2, length), generator=torch.Generator().manual_seed(length))
            ours, eager = (
                one.generate(prompt, max_new_tokens=tokens, do_sample=False, **wishes) for one in (model, plain)
            )
            assert torch.equal(ours, eager)
            made.append(entries(compiled))
    assert all(map(operator.le, made, most)), made


def speculated(model: Any) -> list[torch.Tensor]:
    """Guesses of 1 to 5 tokens, of which some are taken back from the cache."""
    cache_utils = pytest.importorskip("transformers.cache_utils")
    generator, cache = torch.Generator().manual_seed(0), cache_utils.DynamicCache(config=model.config)
    made = []
    for step in range(24):
        guesses = torch.randint(64, (1, 1 + step % 5 if step else 12), generator=generator)
        made.append(model(guesses, past_key_values=cache, use_cache=True).logits)
        if step % 5:
            cache.crop(-(step % 3))
    return made


def test_speculative_decoding() -> None:
    """Entries for the prompt, one token, and caches that are whole or cut, but for no number of guesses."""
    plain, model = language_model("llama"), language_model("llama")
    model.forward = compiled = tg.compile(model.forward, backend="aot_eager")
    with torch.no_grad():
        for ours, eager in zip(speculated(model), speculated(plain), strict=True):
            torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4)
    assert entries(compiled) <= 5
