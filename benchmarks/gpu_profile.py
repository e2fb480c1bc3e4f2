"""Where a step of ``benchmarks.gpu`` spends its time: the GPU's kernels, the host, and which of them waits.

    python -m benchmarks.gpu_profile --rows resnet bert --sides eager torchglass --top 20

For each row and side, in this process: ``ms`` of a step (median), ``busy`` the milliseconds in which the GPU ran
something, ``host`` the milliseconds until a step returns that nothing waits for, kernels a step, then the kernels that
take longest, of the forward and the backward apart, and the operators that the host spends most time in (with what the
profiler adds). For kernels of ours also the GB/s of the bytes that they must move.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from . import common, gpu_timing
from .gpu_models import ROWS
from .gpu_step import WARMUP, step

STEPS = 5
"""Profiled steps."""
MARK, GRAPHS = "spin_kernel", ("forward", "backward")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--sides", nargs="+", choices=common.EVERY_SIDE, default=["eager", "torchglass"])
    parser.add_argument("--top", type=int, default=15, help="kernels and operators to show")
    chosen = parser.parse_args(arguments)
    for name in chosen.rows:
        for side in chosen.sides:
            show(name, side, chosen.top)
            torch.cuda.empty_cache()
    return 0


def show(name: str, side: str, top: int) -> None:
    row = ROWS[name]
    case = row.build("cuda")
    call = common.EVERY_SIDE[side](case.model)

    def run() -> Any:
        return step(row, case, call)

    for _ in range(WARMUP):
        run()
    ms = statistics.median(gpu_timing.steps(run, 20, "cuda"))
    host = statistics.median(host_milliseconds(run) for _ in range(10))
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        for _ in range(STEPS):
            step(row, case, call, between=mark)
            mark()
        torch.cuda.synchronize()
    kernels: dict[tuple[str, str], list[float]] = defaultdict(list)
    spans, graph = [], 0
    on_gpu = [event for event in profiled.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    for event in sorted(on_gpu, key=lambda event: event.time_range.start):
        if MARK in event.name:
            graph += 1
            continue
        kernels[GRAPHS[graph % len(GRAPHS)], event.name].append(event.time_range.elapsed_us())
        spans.append((event.time_range.start, event.time_range.end))
    launched = len(spans) / STEPS
    working = busy(spans) / STEPS / 1000
    moved = moved_bytes(call) if side.startswith("torchglass") else {}
    print(f"\n{name} {side}: {ms:.2f} ms, busy {working:.2f}, host {host:.2f}, {launched:.0f} kernels")
    for key, times in sorted(kernels.items(), key=lambda item: -sum(item[1]))[:top]:
        rate = f"{moved[key] * len(times) / sum(times) / 1000:5.0f} GB/s" if key in moved else " " * 10
        print(f"  {sum(times) / STEPS / 1000:8.3f} ms {len(times) / STEPS:6.1f} x {rate} {key[0]:8} {key[1][:100]}")
    operators = [event for event in profiled.key_averages() if event.self_cpu_time_total > 0]
    for event in sorted(operators, key=lambda event: -event.self_cpu_time_total)[:top]:
        taken = event.self_cpu_time_total / STEPS / 1000
        print(f"    host {taken:7.3f} ms {event.count / STEPS:6.1f} x  {event.key[:90]}")


def mark() -> None:
    """A kernel that tells apart what is launched before it and after it."""
    torch.cuda._sleep(1)


def moved_bytes(call: Any) -> dict[tuple[str, str], int]:
    """The bytes that each kernel must move, by graph and name."""
    import torchglass as tg

    sides = (side for graph in tg.explain(call).graphs() for side in graph.sides)
    return {(side.name.partition("_")[0], kernel.name): kernel.bytes for side in sides for kernel in side.kernels}


def host_milliseconds(run: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    run()
    return (time.perf_counter() - begin) * 1000


def busy(spans: list[tuple[float, float]]) -> float:
    """Microseconds that at least one of the spans covers."""
    covered, end = 0.0, float("-inf")
    for start, stop in sorted(spans):
        covered += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return covered


if __name__ == "__main__":
    raise SystemExit(main())
