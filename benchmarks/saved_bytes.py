"""Bytes kept from forward to backward: ours, eager's and torch.compile's; and what ``memory_budget`` trades.

    python -m benchmarks.saved_bytes [--layers 4] [--only NAME ... | --more] [--peer NAME] [--budget NAME]

Counted after one forward in training, each memory once, parameters and buffers left out: for eager what
``torch.autograd.graph.saved_tensors_hooks`` sees, for the compilers what their autograd node holds. The peer's backend
``aot_eager_decomp_partition`` is torch.compile's partitioner with Inductor's decompositions and without its code
generation; ``inductor`` gives the same figures and takes minutes. Dropout is on as configured in ``bert`` and
``gpt2``, and off in the rows that say so. ``--budget`` prints the table of saved bytes and seconds of a training step
(the least of the calls, the shares taken turn by turn) for one model instead.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import torchglass as tg

TOKENS, BATCH, WIDTH = 128, 4, 256
SHARES = (1.0, 0.5, 0.2)


class Mlp(nn.Module):
    """Blocks of LayerNorm, Linear, GELU, Linear with a residual."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        block = [nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)]
        self.blocks = nn.ModuleList(nn.Sequential(*(type(b)(*_sizes(b)) for b in block)) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x


class UNet(nn.Module):
    """Two levels down and up again, GroupNorm and SiLU, with skips that are concatenated."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = self._block(3, width)
        self.down = self._block(width, 2 * width)
        self.bottom = self._block(2 * width, 2 * width)
        self.up = self._block(4 * width, width)
        self.last = self._block(2 * width, width)

    @staticmethod
    def _block(inputs: int, outputs: int) -> nn.Module:
        second = [nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU()]
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(), *second)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pool, grow = nn.functional.avg_pool2d, nn.functional.interpolate
        first = self.first(x)
        down = self.down(pool(first, 2))
        bottom = self.bottom(pool(down, 2))
        up = self.up(torch.cat([grow(bottom, scale_factor=2.0), down], 1))
        result: torch.Tensor = self.last(torch.cat([grow(up, scale_factor=2.0), first], 1))
        return result


def _sizes(module: nn.Module) -> tuple[Any, ...]:
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    return (WIDTH,) if isinstance(module, nn.LayerNorm) else ()


def models(layers: int) -> dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]]:
    """The models with their inputs; transformers' are small ones with random weights and eager attention."""
    from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, LlamaConfig, LlamaModel

    eager: dict[str, Any] = {"attn_implementation": "eager"}
    wide = {"hidden_size": WIDTH, "num_hidden_layers": layers, "num_attention_heads": 4, "intermediate_size": 4 * WIDTH}
    gpt2 = {"n_embd": WIDTH, "n_layer": layers, "n_head": 4, "use_cache": False}
    dry_bert = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    dry_gpt2 = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    ids = torch.randint(0, 1000, (BATCH, TOKENS))
    return {
        "bert": lambda: (BertModel(BertConfig(**eager, **wide)), ids),
        "gpt2": lambda: (GPT2Model(GPT2Config(**eager, **gpt2)), ids),
        "llama": lambda: (LlamaModel(LlamaConfig(**eager, **wide, use_cache=False)), ids),
        "mlp": lambda: (Mlp(layers), torch.randn(BATCH, TOKENS, WIDTH)),
        "bert, no dropout": lambda: (BertModel(BertConfig(**eager, **wide, **dry_bert)), ids),
        "gpt2, no dropout": lambda: (GPT2Model(GPT2Config(**eager, **gpt2, **dry_gpt2)), ids),
    }


def more_models(layers: int) -> dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]]:
    """Models that the partition was not tried on while it was written."""
    import transformers as tf

    eager: dict[str, Any] = {"attn_implementation": "eager"}
    wide = {"hidden_size": WIDTH, "num_hidden_layers": layers, "num_attention_heads": 4, "intermediate_size": 4 * WIDTH}
    rotary = {**wide, **eager, "num_key_value_heads": 2, "vocab_size": 1000, "use_cache": False}
    t5 = {"d_model": WIDTH, "d_ff": 4 * WIDTH, "num_layers": layers, "num_heads": 4, "d_kv": WIDTH // 4}
    stages = {"hidden_sizes": [32, 64, 128, 256], "depths": [1, 1, 2, 1]}
    ids = torch.randint(0, 1000, (BATCH, TOKENS))
    picture = torch.randn(2, 3, 64, 64)
    return {
        "t5": lambda: (tf.T5EncoderModel(tf.T5Config(**t5, vocab_size=1000)), ids),
        "vit": lambda: (tf.ViTModel(tf.ViTConfig(**eager, **wide, image_size=64, patch_size=8)), picture),
        "mixtral": lambda: (tf.MixtralModel(tf.MixtralConfig(**rotary, num_local_experts=4)), ids),
        "convnext": lambda: (tf.ConvNextModel(tf.ConvNextConfig(**stages)), picture),
        "unet": lambda: (UNet(32), picture),
        "qwen2": lambda: (tf.Qwen2Model(tf.Qwen2Config(**rotary)), ids),
        "deberta": lambda: (tf.DebertaV2Model(tf.DebertaV2Config(**wide, vocab_size=1000)), ids),
    }


def output_of(result: Any) -> torch.Tensor:
    return result if isinstance(result, torch.Tensor) else result[0]


def bytes_of(tensors: list[torch.Tensor], model: nn.Module) -> int:
    """Bytes of the tensors' memories, the model's own left out."""
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    memories = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(size for pointer, size in memories.items() if pointer not in own)


def kept_by_eager(model: nn.Module, x: torch.Tensor) -> int:
    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        output = output_of(model(x))
    assert output.requires_grad
    return bytes_of(kept, model)


def kept_by_nodes(call: Callable[..., Any], model: nn.Module, x: torch.Tensor) -> int:
    """What the autograd nodes behind a compiled model's output hold."""
    waiting, seen = [output_of(call(x)).grad_fn], set()
    kept: list[torch.Tensor] = []
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            kept += [t for t in getattr(node, "saved_tensors", ()) if t is not None]
            waiting += [following for following, _ in node.next_functions]
    return bytes_of(kept, model)


def compare(name: str, make: Callable[[], tuple[nn.Module, torch.Tensor]], peer: str) -> dict[str, Any]:
    torch.manual_seed(0)
    model, x = make()
    model.train()
    eager = kept_by_eager(model, x)
    ours = kept_by_nodes(tg.compile(model, backend="aot_eager", fullgraph=True), model, x)
    theirs = kept_by_nodes(torch.compile(model, backend=peer), model, x)
    share = {"of_eager": round(ours / eager, 3), "of_peer": round(ours / theirs, 3)}
    return {"model": name, "ours": ours, "eager": eager, peer: theirs, **share}


def budget_table(name: str, make: Callable[[], tuple[nn.Module, torch.Tensor]], turns: int) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    model, x = make()
    model.train()
    calls = {s: tg.compile(model, fullgraph=True, options={"memory_budget": s}) for s in SHARES}
    least = dict.fromkeys(SHARES, float("inf"))
    for _ in range(turns):
        for share, call in calls.items():
            begin = time.process_time()
            output_of(call(x)).sum().backward()
            least[share] = min(least[share], time.process_time() - begin)
    rows = []
    for share, call in calls.items():
        kept = kept_by_nodes(call, model, x)
        rows.append({"model": name, "memory_budget": share, "bytes": kept, "step_cpu_s": round(least[share], 4)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--more", action="store_true", help="models of other kinds as well")
    parser.add_argument("--peer", default="aot_eager_decomp_partition")
    parser.add_argument("--budget", metavar="NAME")
    parser.add_argument("--turns", type=int, default=10)
    chosen = parser.parse_args()
    known = models(chosen.layers) | more_models(chosen.layers)
    if chosen.budget:
        for row in budget_table(chosen.budget, known[chosen.budget], chosen.turns):
            print(json.dumps(row), flush=True)
        return
    for name in chosen.only or (known if chosen.more else models(chosen.layers)):
        print(json.dumps(compare(name, known[name], chosen.peer)), flush=True)


if __name__ == "__main__":
    main()
