"""What a launch costs the host: a graph of N small kernels that wait for one another, microseconds of a call by N.

    python -m benchmarks.gpu_launch --json gpu_launch.json
    python -m benchmarks.gpu_launch --device cpu --rounds 5 --kernels 1 8        # to try this script

The function is a chain of softmaxes of a small matrix, along rows and along columns by turns, so that none becomes one
kernel with the next and eager, too, launches one each. ``report`` counts ours. A round is a few calls, of no more
launches than a GPU queues without making the host wait, and is waited for outside the time. Through the medians of the
rounds goes a line: its slope is a launch, with what a launch takes memory for, and where it meets N = 0 the rest of a
call, guards among it. Exits with 1 if ours ran eagerly or launched another number of kernels.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from . import common, gpu_timing

Call = Callable[[torch.Tensor], torch.Tensor]
SIDES = ("eager", "torch.compile", "torchglass")
SIZE = 32
QUEUED = 256
"""Launches of a round at most. A GPU queues 1,024 before the host has to wait."""
WARMUP = 5


def chain(count: int) -> Call:
    """So many softmaxes, each of the one before."""

    def run(x: torch.Tensor) -> torch.Tensor:
        for k in range(count):
            x = torch.softmax(x, k % 2)
        return x

    return run


def compiled(fn: Call, side: str) -> Call:
    return torch.compile(fn, dynamic=False) if side == "torch.compile" else common.SIDES[side](fn)  # type: ignore[arg-type]


def launches(call: Any) -> int:
    """Of one call of ours."""
    import torchglass as tg

    return sum(kernel.calls for kernel in tg.explain(call).kernels())


def measure(count: int, sides: Sequence[str], rounds: int, device: str) -> dict[str, Any]:
    """Microseconds of a call of each side, the median of interleaved rounds, and what was wrong with ours."""
    import torchglass as tg

    torch.compiler.reset()
    tg.reset()
    x = torch.randn(SIZE, SIZE, device=device)
    fn, problem = chain(count), ""
    calls = {side: compiled(fn, side) for side in sides}
    with torch.no_grad():
        with common.our_warnings() as warnings:
            for side, call in calls.items():
                if not torch.allclose(call(x), fn(x), atol=1e-6):
                    problem = problem or f"{side} is wrong"
        if "torchglass" in calls:
            launched = launches(calls["torchglass"])
            problem = problem or (f"ran eagerly: {warnings[0]}" if warnings else "")
            problem = problem or (f"{launched} launches" if launched != count else "")
        taken = microseconds(calls, x, rounds, max(1, QUEUED // count), device)
    return {"kernels": count, "microseconds": {s: statistics.median(t) for s, t in taken.items()}, "problem": problem}


def microseconds(
    calls: dict[str, Call], x: torch.Tensor, rounds: int, repeats: int, device: str
) -> dict[str, list[float]]:
    """Of a call, by side and round, turn by turn."""
    taken: dict[str, list[float]] = {side: [] for side in calls}
    gc.collect()
    gc.disable()
    try:
        for turn in range(WARMUP + rounds):
            for side, call in calls.items():
                call(x)  # the other sides have been in the host's caches
                gpu_timing.synchronize(device)
                begin = time.perf_counter()
                for _ in range(repeats):
                    call(x)
                end = time.perf_counter()
                gpu_timing.synchronize(device)
                if turn >= WARMUP:
                    taken[side].append((end - begin) / repeats * 1e6)
    finally:
        gc.enable()
    return taken


def line(rows: list[dict[str, Any]], side: str) -> dict[str, float]:
    """Microseconds of a launch and of the rest of a call."""
    points = [(row["kernels"], row["microseconds"][side]) for row in rows]
    slope, rest = statistics.linear_regression(*zip(*points)) if len(points) > 1 else (float("nan"), float("nan"))
    return {"launch": slope, "rest": rest}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file, after every N")
    parser.add_argument("--kernels", nargs="+", type=int, default=[1, 8, 32, 64], help="N")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--device", default="cuda")
    chosen = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    print(f"{'kernels':>10}" + "".join(f"{side:>16}" for side in chosen.sides) + "   us a call, host")
    for count in chosen.kernels:
        row = measure(count, chosen.sides, chosen.rounds, chosen.device)
        rows.append(row)
        figures = "".join(f"{row['microseconds'][side]:16.2f}" for side in chosen.sides)
        print(f"{count:>10}{figures}   {row['problem']}".rstrip(), flush=True)
        lines = {side: line(rows, side) for side in chosen.sides}
        common.write_json(chosen.json, "gpu_launch", rows, lines=lines)
    for part, said in (("launch", "a launch"), ("rest", "the rest")):
        print(f"{said:>10}" + "".join(f"{lines[side][part]:16.2f}" for side in chosen.sides))
    return 1 if any(row["problem"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
