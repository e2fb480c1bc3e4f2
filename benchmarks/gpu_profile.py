"""Where a step of ``benchmarks.gpu`` spends its time: the GPU's kernels, the host, and which of them waits.

    python -m benchmarks.gpu_profile --rows resnet bert --sides eager torchglass --top 20

For each row and side, in this process: ``ms`` of a step (median), ``busy`` the milliseconds in which the GPU ran
something, ``host`` the milliseconds until a step returns that nothing waits for, kernels a step, then the kernels that
take longest and the operators that the host spends most time in (with what the profiler adds).
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


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--sides", nargs="+", choices=common.SIDES, default=["eager", "torchglass"])
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
    call = common.SIDES[side](case.model)

    def run() -> Any:
        return step(row, case, call)

    for _ in range(WARMUP):
        run()
    ms = statistics.median(gpu_timing.steps(run, 20, "cuda"))
    host = statistics.median(host_milliseconds(run) for _ in range(10))
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        for _ in range(STEPS):
            run()
        torch.cuda.synchronize()
    kernels: dict[str, list[float]] = defaultdict(list)
    spans = []
    for event in profiled.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            kernels[event.name].append(event.time_range.elapsed_us())
            spans.append((event.time_range.start, event.time_range.end))
    launched = sum(len(times) for times in kernels.values()) / STEPS
    working = busy(spans) / STEPS / 1000
    print(f"\n{name} {side}: {ms:.2f} ms, busy {working:.2f}, host {host:.2f}, {launched:.0f} kernels")
    for kernel, times in sorted(kernels.items(), key=lambda item: -sum(item[1]))[:top]:
        print(f"  {sum(times) / STEPS / 1000:8.3f} ms {len(times) / STEPS:6.1f} x  {kernel[:110]}")
    operators = [event for event in profiled.key_averages() if event.self_cpu_time_total > 0]
    for event in sorted(operators, key=lambda event: -event.self_cpu_time_total)[:top]:
        taken = event.self_cpu_time_total / STEPS / 1000
        print(f"    host {taken:7.3f} ms {event.count / STEPS:6.1f} x  {event.key[:90]}")


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
