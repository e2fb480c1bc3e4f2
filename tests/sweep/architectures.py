"""Every transformers architecture that builds from a tiny random configuration, compiled and compared with eager.

    python -m tests.sweep.architectures --jobs 2 [--only bert gpt2] [--backend eager] [--training] --json FILE

Each architecture runs in a process of its own. A row says: whole (one graph), breaks (right, in several graphs), wrong,
crashed, or skipped (the tiny model does not build or run in eager).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import subprocess
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

SMALL = {
    "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "embed_dim": 32, "embedding_size": 32, "emb_dim": 32,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "encoder_layers": 2,
    "decoder_layers": 2,
    "num_encoder_layers": 2, "num_decoder_layers": 2, "num_attention_heads": 4,
    "n_head": 4, "n_heads": 4, "num_heads": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "d_kv": 8,
    "intermediate_size": 64, "d_ff": 64, "ffn_dim": 64, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "hidden_dim": 64,
    "n_inner": 64, "vocab_size": 99, "max_position_embeddings": 64, "n_positions": 64, "n_ctx": 64, "image_size": 32,
    "patch_size": 8, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "max_source_positions": 64, "max_target_positions": 64, "type_vocab_size": 2,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "projection_dim": 32,
    "kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
    "qk_head_dim": 16, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0, "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0,
    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "dropout_rate": 0.0, "hidden_dropout": 0.0,
    "drop_path_rate": 0.0, "layerdrop": 0.0, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0,
}  # fmt: skip


# Widths that some architectures derive from one another: left out when the small model does not run.
HEADS = frozenset(
    ["head_dim", "d_kv", "kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"]
    + ["qk_head_dim", "num_key_value_heads", "projection_dim", "hidden_dim", "dim"]
)
COUNTS = frozenset(n for n in SMALL if "layer" in n or "vocab" in n or "dropout" in n or "drop" in n or "token_id" in n)
# From small to nearly as configured; the first with which the model runs in eager is taken.
CHOICES = (frozenset(SMALL), frozenset(SMALL) - HEADS, frozenset(SMALL) - HEADS - {"image_size", "patch_size"}, COUNTS)


def shrink(config, chosen: frozenset[str], depth: int = 0):
    for name, value in SMALL.items():
        if name not in chosen:
            continue
        if isinstance(getattr(config, name, None), (int, float)) and not isinstance(getattr(config, name), bool):
            with contextlib.suppress(Exception):  # some configurations compute it from others
                setattr(config, name, value)
    for name in list(vars(config)):
        inner = getattr(config, name, None)
        if depth < 2 and hasattr(inner, "to_dict") and hasattr(inner, "model_type"):
            shrink(inner, chosen, depth + 1)
    for name in ("layer_types", "mlp_layer_types"):
        kinds = getattr(config, name, None)
        if isinstance(kinds, list) and len(kinds) > 2:
            setattr(config, name, kinds[:2])
    return config


def build(model_type: str, chosen: frozenset[str]):
    import torch
    from transformers import CONFIG_MAPPING, MODEL_MAPPING

    config_class = CONFIG_MAPPING[model_type]
    model_class = MODEL_MAPPING[config_class]
    if isinstance(model_class, (tuple, list)):
        model_class = model_class[0]
    torch.manual_seed(0)
    model = model_class(shrink(config_class(), chosen))
    if sum(p.numel() for p in model.parameters()) > 60_000_000:
        raise RuntimeError("too large")
    return model


def inputs_of(model, images: bool):
    """Tensors for the model's main input; ``images``: pixels too, for those that want text and pictures."""
    import torch

    generator = torch.Generator().manual_seed(0)
    config, name = model.config, model.main_input_name
    ids = torch.randint(3, 90, (2, 9), generator=generator)
    if name == "input_ids" and not images:
        result = {"input_ids": ids}
    elif name == "pixel_values" or images:
        vision = getattr(config, "vision_config", config)
        size = getattr(vision, "image_size", 32)
        size = size[0] if isinstance(size, (list, tuple)) else size
        channels = getattr(vision, "num_channels", 3)
        result = {"pixel_values": torch.randn(2, channels, size, size, generator=generator)}
        if hasattr(config, "text_config") or name == "input_ids":
            result["input_ids"] = ids
    elif name == "input_values":
        result = {"input_values": torch.randn(2, 800, generator=generator)}
    elif name == "input_features":
        bins = getattr(config, "num_mel_bins", 80)
        result = {
            "input_features": torch.randn(2, bins, 2 * getattr(config, "max_source_positions", 50), generator=generator)
        }
    else:
        raise RuntimeError(f"no input made for {name}")
    if config.is_encoder_decoder:
        result["decoder_input_ids"] = ids
    return result


def tensors(value):
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors(v)]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors(v)]
    if type(value).__name__.endswith("Cache") or type(value).__name__.endswith("Layer"):
        return tensors(vars(value))
    return []


def run_one(model_type: str, backend: str, training: bool) -> dict:
    import torch

    torch.set_num_threads(1)
    row = {"model": model_type}
    for chosen, images in [(c, i) for c in CHOICES for i in (False, True)]:
        try:
            model = build(model_type, chosen).train(training)
            step = stepper(model, inputs_of(model, images), training)
            step(model)
            expected = step(model)
            break
        except Exception as error:
            row.setdefault("why", f"{type(error).__name__}: {error}"[:200])
    else:
        return {**row, "result": "skipped"}
    row.pop("why", None)
    return compared(row, model, step, expected, backend)


def stepper(model, inputs: dict, training: bool):
    """A function of a module: its outputs, and with ``training`` the gradients of all parameters."""
    import torch

    def step(module):
        torch.manual_seed(0)
        if not training:
            with torch.no_grad():
                return tensors(module(**inputs)), []
        for p in model.parameters():
            p.grad = None
        out = tensors(module(**inputs))
        sum(
            (t.float() * torch.linspace(-1, 1, t.numel()).view(t.shape)).sum() for t in out if t.requires_grad
        ).backward()
        return [t.detach() for t in out], [p.grad for p in model.parameters()]

    return step


def compared(row: dict, model, step, expected, backend: str) -> dict:
    """Compile, call twice, compare with what eager gave."""
    import torch

    import torchglass as tg

    begin = time.perf_counter()
    try:
        compiled = tg.compile(model, backend=backend, fullgraph=True)
        found = step(compiled)
        row["result"] = "whole"
    except Exception as error:
        row["reason"] = f"{type(error).__name__}: {error}"[:600]
        tg.reset()
        try:
            compiled = tg.compile(model, backend=backend)
            found = step(compiled)
            row["result"] = "breaks"
        except Exception as second:
            return {**row, "result": "wrong", "why": f"{type(second).__name__}: {second}"[:400]}
    row["seconds"] = round(time.perf_counter() - begin, 2)
    again = step(compiled)
    row["entries"] = len(tg.explain(compiled).entries)
    for name, mine in (("first", found), ("again", again)):
        for part, ours, theirs in zip(("outputs", "gradients"), mine, expected):
            if len(ours) != len(theirs):
                return {**row, "result": "wrong", "why": f"{name}: {len(ours)} {part} instead of {len(theirs)}"}
            for n, (a, b) in enumerate(zip(ours, theirs)):
                if (a is None) != (b is None):
                    return {**row, "result": "wrong", "why": f"{name}: {part} {n} is None in one"}
                if a is None:
                    continue
                try:
                    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4, equal_nan=True)
                except AssertionError as error:
                    return {**row, "result": "wrong", "why": f"{name}: {part} {n}: {str(error)[:200]}"}
    return row


def in_process(model_type: str, backend: str, training: bool, timeout: float) -> dict:
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.sweep.architectures",
        "--one",
        model_type,
        "--backend",
        backend,
    ]
    command += ["--training"] * training
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return {"model": model_type, "result": "crashed", "why": "time-out"}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("ROW "):
            return json.loads(line[4:])
    return {"model": model_type, "result": "crashed", "why": f"exit {done.returncode}: {done.stderr[-400:]}"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=180)
    parser.add_argument("--json")
    chosen = parser.parse_args()
    if chosen.one:
        print("ROW " + json.dumps(run_one(chosen.one, chosen.backend, chosen.training)))
        return 0
    from transformers import MODEL_MAPPING

    names = chosen.only or sorted({c.model_type for c in MODEL_MAPPING})[:: chosen.every]
    rows = []
    with concurrent.futures.ThreadPoolExecutor(chosen.jobs) as pool:
        jobs = [pool.submit(in_process, n, chosen.backend, chosen.training, chosen.timeout) for n in names]
        for job in concurrent.futures.as_completed(jobs):
            row = job.result()
            rows.append(row)
            print(row["model"], row["result"], row.get("reason", ""), row.get("why", ""), flush=True)
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["result"]] = counts.get(row["result"], 0) + 1
    print(counts)
    if chosen.json:
        with open(chosen.json, "w") as file:
            json.dump(sorted(rows, key=lambda r: r["model"]), file, indent=1)
    return 1 if counts.get("wrong") or counts.get("crashed") else 0


if __name__ == "__main__":
    sys.exit(main())
