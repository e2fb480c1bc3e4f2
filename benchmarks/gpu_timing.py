"""Milliseconds on a GPU by CUDA events; on a CPU, where the same benchmarks can be tried, by the clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch

CYCLES = 2_000_000_000
"""A second of ``torch.cuda._sleep``, or a little more: no GPU's clock has been over 2 GHz so far."""


def synchronize(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def steps(step: Callable[[], Any], count: int, device: str) -> list[float]:
    """Milliseconds of each of ``count`` steps that follow one another without a wait, as in a training loop.

    An event lies between every two of them, so that a step costs what the GPU needs or what the host needs to launch
    it, whichever is longer.
    """
    if device == "cpu":
        return [1e3 * _seconds([step]) for _ in range(count)]
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    torch.cuda.synchronize()
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in pairwise(events)]


def gpu_work(prepare: Callable[[], Sequence[Callable[[], Any]]], device: str, turns: int = 12) -> float:
    """The median milliseconds of GPU work of one call.

    ``prepare()`` gives the calls of a turn, which read different memory, all together more than the L2 cache holds.
    What it does itself does not count. Nor does the time that the host takes to launch: the calls are queued behind a
    kernel that waits twice as long as the host took for them in the turn before.
    """
    taken, host = [], 0.05
    for turn in range(turns + 2):
        calls = prepare()
        if device == "cpu":
            taken.append(1e3 * _seconds(calls) / len(calls))
            continue
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(int(CYCLES * 2 * min(host, 0.25)))
        begin.record()
        host = _seconds(calls)
        end.record()
        end.synchronize()
        if turn >= 2:
            taken.append(begin.elapsed_time(end) / len(calls))
    return statistics.median(taken)


def _seconds(calls: Sequence[Callable[[], Any]]) -> float:
    begin = time.perf_counter()
    for call in calls:
        call()
    return time.perf_counter() - begin
