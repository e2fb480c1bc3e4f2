"""Attention of float32 on the CPU: microseconds of PyTorch's flash attention and of our loops, turn by turn.

    python -m benchmarks.attention
    python -m benchmarks.attention --threads 1 --json attention.json

Heads lie side by side, as a linear layer leaves them. Above 1: ours is faster. Exits with 1 where our error against
float64 is twice PyTorch's.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch

from torchglass._native import attention

from . import common

SIZES = (
    (64, 4, 16, 32), (16, 4, 32, 32), (4, 4, 64, 64), (4, 4, 128, 32), (4, 4, 128, 64), (8, 12, 128, 64),
    (4, 4, 197, 64), (1, 8, 256, 128), (4, 12, 384, 64), (1, 8, 512, 64), (1, 16, 512, 128), (1, 1, 512, 64),
    (1, 8, 1024, 64), (4, 12, 1024, 64), (1, 8, 2048, 64),
)  # fmt: skip
"""Batch, heads, positions, depth."""

KINDS = ("plain", "causal", "masked")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="time to measure each case")
    parser.add_argument("--threads", type=int, help="threads torch may use")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    chosen = parser.parse_args(arguments)
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    rows = []
    with torch.no_grad():
        for size in SIZES:
            for kind in KINDS:
                rows.append(row := measure(size, kind, chosen.seconds))
                print(
                    f"{'x'.join(map(str, size)):16} {kind:7} PyTorch {row['flash']:9.1f} us  ours {row['ours']:9.1f} us"
                    f"  {row['flash'] / row['ours']:.2f}x  error {row['error']:.2f} times PyTorch's",
                    flush=True,
                )
    common.write_json(chosen.json, "attention", rows, seconds=chosen.seconds)
    return 0 if all(row["error"] < 2 for row in rows) else 1


def measure(size: tuple[int, ...], kind: str, seconds: float) -> dict[str, Any]:
    batch, heads, length, depth = size
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(batch, length, heads * depth, generator=generator).view(batch, length, heads, depth).transpose(1, 2)
        for _ in range(3)
    )
    mask = torch.randn(1, heads, length, length, generator=generator) if kind == "masked" else None
    spread = None if mask is None else mask.expand(batch, heads, length, length)
    out, causal, scale = torch.empty_like(query), kind == "causal", depth**-0.5

    def flash() -> torch.Tensor:
        flash_op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        result: torch.Tensor = flash_op(query, key, value, 0.0, causal, attn_mask=mask)[0]
        return result

    def ours() -> None:
        attention(query, key, value, spread, causal, scale, out=(out, None))

    ours()
    doubles = query.double(), key.double(), value.double(), None if mask is None else mask.double()
    exact = torch.nn.functional.scaled_dot_product_attention(*doubles, is_causal=causal)
    error = ((out - exact).square().mean() / (flash() - exact).square().mean()).sqrt().item()
    times = common.interleaved({"flash": flash, "ours": ours}, seconds)
    return {"size": size, "kind": kind, "error": error} | {k: t.median * 1000 for k, t in times.items()}


if __name__ == "__main__":
    sys.exit(main())
