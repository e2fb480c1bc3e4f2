"""What replaying a CUDA graph costs the host, in microseconds a call: ours beside the replay itself. Needs a GPU.

    python -m benchmarks.gpu_replay --json replay.json

Eight results of 64 numbers: a CUDA graph of PyTorch's that is replayed and hands out nothing; a compiled function whose
results nobody holds, one whose results are held until the next call, and both under torch.compile.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from . import common

CALLS, TURNS = 300, 15


def eight(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(x + k for k in range(8))


def captured(x: torch.Tensor) -> Callable[[], Any]:
    """One kernel that makes all eight, as compilers fuse them, in a graph of PyTorch's own."""
    graph, out = torch.cuda.CUDAGraph(), torch.empty(8, 64, device="cuda")
    numbers = torch.arange(8, device="cuda").view(8, 1).float()
    with torch.cuda.graph(graph):
        torch.add(x, numbers, out=out)
    return graph.replay


def held(call: Callable[..., Any], x: torch.Tensor) -> Callable[[], Any]:
    kept: list[Any] = []

    def run() -> None:
        kept.append(call(x))
        del kept[:-1]

    return run


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    x = torch.randn(64, device="cuda")
    ours = common.EVERY_SIDE["torchglass reduce-overhead"](eight)
    theirs = common.EVERY_SIDE["torch.compile reduce-overhead"](eight)
    runs: dict[str, Callable[[], Any]] = {
        "replay alone": captured(x),
        "ours, nobody holds them": lambda: ours(x),
        "ours, held": held(ours, x),
        "torch.compile, nobody holds them": lambda: theirs(x),
    }
    with torch.no_grad():
        for run in runs.values():
            for _ in range(30):
                run()
        taken = {name: [] for name in runs}
        for _ in range(TURNS):
            for name, run in runs.items():
                taken[name].append(microseconds(run))
    rows = [{"run": name, "us": statistics.median(times)} for name, times in taken.items()]
    for row in rows:
        print(f"{row['us']:8.2f} us  {row['run']}")
    common.write_json(chosen.json, "gpu_replay", rows, device=torch.cuda.get_device_name())
    return 0


def microseconds(run: Callable[[], Any]) -> float:
    """Of the host, while the GPU keeps up."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(CALLS):
        run()
    taken = time.perf_counter() - begin
    torch.cuda.synchronize()
    return 1e6 * taken / CALLS


if __name__ == "__main__":
    sys.exit(main())
