"""Whether the epilogue of a matrix product pays in blocks of rows, each still in cache: no, as of torch 2.13.

    python -m benchmarks.epilogues

Compares ``mm(out=)`` and then a compiled epilogue over the whole with both of them block by block, on one thread by CPU
time. Above 1: blocks are faster.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch

Tensor = torch.Tensor
SIZES = ((512, 384, 1536), (512, 1536, 384), (4096, 768, 3072), (4096, 3072, 768))
BLOCKS = (32, 64, 128, 256)


def gelu(z: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    return z.copy_(torch.nn.functional.gelu(z + bias))


def add(z: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    return z.copy_(z + bias + residual)


def main() -> int:
    import torchglass as tg

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="time for each row")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        for rows, inner, columns in SIZES:
            for function in (gelu, add):
                ratios, share = measure(tg.compile(function), rows, inner, columns, chosen.seconds)
                shown = "  ".join(f"{block}: {ratio:.2f}x" for block, ratio in ratios.items())
                print(f"{rows}x{inner} @ {inner}x{columns} {function.__name__:4} epilogue {share:4.1%}  {shown}")
    return 0


def measure(
    epilogue: Callable[..., Tensor], rows: int, inner: int, columns: int, seconds: float
) -> tuple[dict[int, float], float]:
    """How many times as fast blocks of each size are as the whole, and the share of the epilogue in that."""
    x, weight, residual = torch.randn(rows, inner), torch.randn(inner, columns), torch.randn(rows, columns)
    z, bias = torch.empty(rows, columns), torch.randn(columns)

    def run(block: int) -> None:
        for first in range(0, rows, block):
            part = slice(first, first + block)
            torch.mm(x[part], weight, out=z[part])
            epilogue(z[part], bias, residual[part])

    calls: dict[int, Callable[[], object]] = {n: lambda n=n: run(n) for n in (rows, *BLOCKS)}  # type: ignore[misc]
    calls[0] = lambda: epilogue(z, bias, residual)
    taken: dict[int, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(taken[0]) < 8:
        for name, call in calls.items():
            begin = time.process_time()
            call()
            taken[name].append(time.process_time() - begin)
    known = {name: statistics.median(times[1:]) for name, times in taken.items()}
    return {block: known[rows] / known[block] for block in BLOCKS}, known[0] / known[rows]


if __name__ == "__main__":
    sys.exit(main())
