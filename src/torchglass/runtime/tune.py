"""Measuring a graph's kernels in several ways (mode="max-autotune"): text in, the ways of each kernel by speed out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from ..records.kernels import Candidates, Measurement
from ..records.loops import Buffer
from .load import example_input, make_kernel
from .store import Artifact
from .toolchain import compile_c

W = TypeVar("W")
SECONDS = 0.05  # for all ways of one kernel
LEAST_RUNS, MOST_RUNS = 5, 200
GAIN = 0.97  # a way is taken over the default if it needs at most this share of its time


def measure(candidates: Candidates, source: Artifact) -> dict[str, tuple[Measurement, ...]]:
    """Compile ``source`` (the candidates) and time each way; the one to take comes first."""
    library = compile_c(source.path, 1, source.text, source.kept)
    found = {}
    for kernel, ways in candidates.functions.items():
        if len(ways) > 1:
            buffers = [_example(b) for b in candidates.arguments[kernel]]
            best = _fastest([make_kernel(library, function) for _, function in ways], buffers)
            measured = [(config, seconds * 1e6) for (config, _), seconds in zip(ways, best)]
            found[kernel] = tuple(Measurement(*one) for one in by_speed(measured))
    return found


def by_speed(ways: Sequence[tuple[W, float]]) -> list[tuple[W, float]]:
    """Ways and their times, the default first, as they are to be taken: what is faster by little comes behind it."""
    return sorted(ways, key=lambda one: one[1] * (GAIN if one is ways[0] else 1))


def _fastest(calls: list[Callable[..., None]], buffers: list[torch.Tensor]) -> list[float]:
    """Seconds of the fastest run of each, turn by turn."""
    best = [float("inf")] * len(calls)
    end = time.perf_counter() + SECONDS
    runs = 0
    while runs < LEAST_RUNS or (runs < MOST_RUNS and time.perf_counter() < end):
        for k, call in enumerate(calls):
            begin = time.perf_counter()
            call(*buffers)
            best[k] = min(best[k], time.perf_counter() - begin)
        runs += 1
    return best


def _example(buffer: Buffer) -> torch.Tensor:
    sizes: Any = buffer.shape
    strides: Any = buffer.strides
    generator = torch.Generator().manual_seed(0)
    return example_input((sizes, strides, getattr(torch, buffer.dtype)), generator)
