"""Requests of random lengths and batch sizes through one compiled model: seconds from the first, milliseconds after.

    python -m benchmarks.lengths --json lengths.json
    python -m benchmarks.lengths --models bert --kinds inference --requests 40 --sides eager torchglass

Each side runs in a process of its own, whose caches are new (``--in-turn``: all in one, which compares milliseconds
best), on the same 40 requests: lengths 16 to 200, batch sizes 1 to 4, caches off. ``total`` are the seconds of all of
them from the first on, compiling included; ``steady`` the milliseconds of all of them again, the median of five rounds;
``static`` (ours alone) those of a model that was compiled for each of the sizes by itself (``dynamic=False``).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from . import common
from .models import VOCABULARY

ROUNDS = 5
COMPARED = ("eager", "torchglass", "torchglass dynamic", "torch.compile", "torch.compile dynamic")
LONGEST, SHORTEST, LARGEST_BATCH = 200, 16, 4


def _per_size(model: torch.nn.Module) -> Callable[..., Any]:
    """Compiled for each of the sizes by itself: in one function so many entries would be taken for growing sizes."""
    by_size: dict[torch.Size, Callable[..., Any]] = {}

    def call(input_ids: torch.Tensor) -> Any:
        if input_ids.shape not in by_size:
            by_size[input_ids.shape] = common.SIDES["torchglass"](model, dynamic=False)
        return by_size[input_ids.shape](input_ids)

    return call


SIDES: dict[str, Callable[..., Callable[..., Any]]] = {
    **{side: common.EVERY_SIDE[side] for side in COMPARED},
    "static": _per_size,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--models", nargs="+", choices=common.WORKLOADS, default=["bert", "llama"])
    parser.add_argument("--kinds", nargs="+", choices=common.KINDS, default=["inference", "training"])
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument(
        "--in-turn", action="store_true", help="all sides in one process, round by round: to compare them"
    )
    parser.add_argument("--layers", type=int, default=common.LAYERS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.child:
        print(json.dumps(serve(json.loads(chosen.child))))
        return 0
    common.byte_compile()
    rows = []
    for model in chosen.models:
        for kind in chosen.kinds:
            case = {"model": model, "kind": kind, "layers": chosen.layers, "requests": chosen.requests}
            sides: dict[str, Any] = {}
            for together in [chosen.sides] if chosen.in_turn else [[side] for side in chosen.sides]:
                sides |= in_fresh_process({**case, "sides": together})
            rows.append({**case, "sides": sides})
            show(rows[-1])
            common.write_json(chosen.json, "lengths", rows)
    return 0


def in_fresh_process(case: dict[str, Any]) -> dict[str, Any]:
    print(" ".join(map(str, case.values())), "...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="lengths_") as folder:
        command = [sys.executable, "-m", "benchmarks.lengths", "--child", json.dumps(case)]
        done = subprocess.run(command, env=common.without_caches(folder), stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{case} failed with exit status {done.returncode}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def requests(count: int) -> list[dict[str, torch.Tensor]]:
    """The same for every side."""
    chosen = random.Random(0)
    sizes = [(chosen.randint(1, LARGEST_BATCH), chosen.randint(SHORTEST, LONGEST)) for _ in range(count)]
    generator = torch.Generator().manual_seed(0)
    return [{"input_ids": torch.randint(0, VOCABULARY, size, generator=generator)} for size in sizes]


def serve(case: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """All requests once, then again and again, in this process: each side's seconds, milliseconds and compiles."""
    model, inputs = common.WORKLOADS[case["model"]].build(layers=case["layers"])
    model.config.use_cache = False
    model.train(case["kind"] == "training")
    common.step(model, model, inputs, case["kind"])
    every = requests(case["requests"])

    def seconds(function: Callable[..., Any]) -> float:
        begin = time.perf_counter()
        for one in every:
            common.step(function, model, one, case["kind"])
        return time.perf_counter() - begin

    compiled: dict[str, Callable[..., Any]] = {}
    totals = {}
    for side in case["sides"]:
        begin = time.perf_counter()
        compiled[side] = SIDES[side](model)
        seconds(compiled[side])
        totals[side] = time.perf_counter() - begin
    rounds = [{side: seconds(function) for side, function in compiled.items()} for _ in range(ROUNDS)]
    return {
        side: {
            "total": totals[side],
            "steady": 1e3 * statistics.median(one[side] for one in rounds),
            "compiles": _compiles(side, compiled[side]),
        }
        for side in compiled
    }


def _compiles(side: str, compiled: Any) -> int | None:
    if not side.startswith("torchglass"):
        return None
    import torchglass as tg

    return len(list(tg.explain(compiled).all_entries()))


def show(row: dict[str, Any]) -> None:
    table = Table(title=f"{row['model']} {row['kind']}: {row['requests']} requests")
    for column in ("side", "total s", "steady ms", "compiles"):
        table.add_column(column, justify="left" if column == "side" else "right")
    for side, found in row["sides"].items():
        compiles = "" if found["compiles"] is None else str(found["compiles"])
        table.add_row(side, f"{found['total']:.2f}", f"{found['steady']:.0f}", compiles)
    Console().print(table)


if __name__ == "__main__":
    raise SystemExit(main())
