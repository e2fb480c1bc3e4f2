"""Compile time of large graphs: wall and CPU seconds of the first call, ours and torch.compile's, in fresh processes.

    python -m benchmarks.large_graphs --nodes 10000 --kinds inference
    python -m benchmarks.large_graphs --nodes 3000 --kinds training --limit 600
    python -m benchmarks.large_graphs --nodes 1000 2000 4000 --sides torchglass       # growth

A side that takes longer than ``--limit`` seconds counts as that; CPU seconds have those of the C compilers in them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from . import common

WIDTH = 16


class Program(nn.Module):
    """A function of one tensor and of how many nodes its graph is to have, with 64 matrices for its use."""

    def __init__(self, function: Callable[[Program, Tensor, int], Tensor], nodes: int) -> None:
        super().__init__()
        self.function, self.nodes = function, nodes
        self.weights = nn.ParameterList(torch.randn(WIDTH, WIDTH) / 4 for _ in range(64))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x, self.nodes)


def chain(_: Program, x: Tensor, nodes: int) -> Tensor:
    """Element-wise operations, one after the other."""
    for _ in range(nodes // 4):
        x = torch.relu(torch.sin(x) * 1.01) + 0.1
    return x


def wide(_: Program, x: Tensor, nodes: int) -> Tensor:
    """Many small sums of one tensor, apart from each other."""
    return torch.stack([torch.sum(torch.sin(x * (i + 1)) + i) for i in range(nodes // 4)])


def mixed(program: Program, x: Tensor, nodes: int) -> Tensor:
    """A product, an activation and a normalization, again and again."""
    for i in range(nodes // 10):
        y = torch.relu(x @ program.weights[i % 64]) + x
        y = y - y.mean(-1, keepdim=True)
        x = y * torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-5)
    return x


class Parameters(nn.Module):
    """As many linear layers as there are thirds of nodes, each with parameters of its own."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(nodes // 3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x)) + x
        return x


PROGRAMS: dict[str, Callable[[int], nn.Module]] = {
    "chain": lambda nodes: Program(chain, nodes),
    "wide": lambda nodes: Program(wide, nodes),
    "mixed": lambda nodes: Program(mixed, nodes),
    "parameters": Parameters,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--nodes", nargs="+", type=int, default=[10_000])
    parser.add_argument("--kinds", nargs="+", choices=common.KINDS, default=["inference"])
    parser.add_argument("--sides", nargs="+", choices=common.SIDES, default=["torchglass", "torch.compile"])
    parser.add_argument("--limit", type=float, default=300, help="seconds after which a side is stopped")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.child:
        print(json.dumps(first_call(*json.loads(chosen.child))))
        return 0
    common.byte_compile()
    rows = []
    for program in chosen.programs:
        for kind in chosen.kinds:
            for nodes in chosen.nodes:
                sides = {s: in_fresh_process((program, nodes, kind, s), chosen.limit) for s in chosen.sides}
                rows.append({"program": program, "kind": kind, "nodes": nodes, "sides": sides})
                print(line(rows[-1]), flush=True)
                common.write_json(chosen.json, "large_graphs", rows, limit=chosen.limit)
    return 0


def line(row: dict[str, Any]) -> str:
    """``chain inference 10000: torchglass 7.1 s (6.9 of CPU), torch.compile 93.0 s (95.1 of CPU)``."""
    shown = (
        f"{side} {found['wall']:.1f} s ({found['cpu']:.1f} of CPU)" if found else f"{side} failed or was stopped"
        for side, found in row["sides"].items()
    )
    return f"{row['program']} {row['kind']} {row['nodes']}: {', '.join(shown)}"


def in_fresh_process(case: tuple[str, int, str, str], limit: float) -> dict[str, float] | None:
    """:func:`first_call` in a new process without caches; None if it failed, or took longer than ``limit`` seconds."""
    with tempfile.TemporaryDirectory(prefix="large_graphs_") as folder:
        environment = {
            **os.environ,
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
            "XDG_CACHE_HOME": f"{folder}/cache",
        }
        environment.pop("TORCHGLASS_DIR", None)
        command = [sys.executable, "-m", "benchmarks.large_graphs", "--child", json.dumps(case)]
        try:
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return None
    if done.returncode:
        return None
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def first_call(program: str, nodes: int, kind: str, side: str) -> dict[str, float]:
    """Wall and CPU seconds of compiling and calling once, in this process."""
    torch.manual_seed(0)
    model = PROGRAMS[program](nodes)
    x = torch.randn(8, WIDTH, requires_grad=kind == "training")
    common.SIDES[side](nn.Identity())(x)  # the compiler's import is not what is measured here
    wall, cpu = time.perf_counter(), _cpu_seconds()
    result = common.SIDES[side](model)
    with torch.set_grad_enabled(kind == "training"):
        out = result(x)
        if kind == "training":
            out.sum().backward()
    return {"wall": time.perf_counter() - wall, "cpu": _cpu_seconds() - cpu}


def _cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    sys.exit(main())
