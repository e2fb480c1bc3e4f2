"""Cold start: seconds from ``compile(model)`` to the end of the first call, each in a fresh process, caches
off.

    python -m benchmarks.cold_start --json cold_start.json
    python -m benchmarks.cold_start --models bert --kinds training --repeats 1
    python -m benchmarks.cold_start --growth 4 12 24 48 --models bert --sides eager torchglass

For training the first call is forward and backward. Importing the compiler counts, since a user's first
call pays it; importing torch and transformers, making the model and one eager step do not. Both compilers
start without caches: inductor's are switched off and its folder is new, ours is new too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from rich.console import Console
from rich.table import Table

from . import common


def main(arguments: list[str] | None = None) -> int:
    parser = process_arguments(__doc__)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.child:
        print(json.dumps(first_call(json.loads(chosen.child))))
        return 0
    cases = [
        {"model": model, "attention": attention, "kind": kind, "layers": layers}
        for model in chosen.models
        for attention in (chosen.attention if common.WORKLOADS[model].attends else chosen.attention[:1])
        for kind in chosen.kinds
        for layers in chosen.growth or [chosen.layers]
    ]
    common.byte_compile()
    rows = []
    for case in cases:
        rows.append(measure(case, chosen.sides, chosen.repeats))
        common.write_json(chosen.json, "cold_start", rows, repeats=chosen.repeats)
    show(rows, chosen.sides)
    return 0


def process_arguments(description: str | None) -> argparse.ArgumentParser:
    """What benchmarks take that measure first calls in processes of their own."""
    parser = common.arguments(description)
    parser.add_argument("--repeats", type=int, default=3, help="processes for each figure; the median counts")
    parser.add_argument("--layers", type=int, default=common.LAYERS)
    parser.add_argument("--growth", nargs="+", type=int, help="several numbers of layers, one after the other")
    return parser


def measure(case: dict[str, Any], sides: list[str], repeats: int) -> dict[str, Any]:
    """One row: the median seconds of each side, sides in turn, and every single figure."""
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for turn in range(repeats):
        for side in sides:
            print(" ".join(map(str, case.values())), side, turn + 1, "...", file=sys.stderr, flush=True)
            runs[side].append(in_fresh_process({**case, "side": side}))
    seconds = {side: statistics.median(r["first"] for r in rows) for side, rows in runs.items()}
    return {**case, "seconds": seconds, "runs": runs}


def in_fresh_process(case: dict[str, Any]) -> dict[str, Any]:
    """Run :func:`first_call` in a new process whose caches are new and empty folders."""
    with tempfile.TemporaryDirectory(prefix="cold_start_") as folder:
        return in_process(case, common.without_caches(folder))


def in_process(case: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    """What :func:`first_call` gives in a new process."""
    command = [sys.executable, "-m", "benchmarks.cold_start", "--child", json.dumps({**case, "begun": time.time()})]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{case} failed with exit status {done.returncode}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def first_call(case: dict[str, Any]) -> dict[str, Any]:
    """Compile and call once, in this process. Seconds of the first call, the second, and ours by stage; and until the
    end of the first call: ``whole`` from the start of the process, ``processor`` of all cores, compilers too.
    """
    model, inputs = common.WORKLOADS[case["model"]].build(case["attention"], layers=case["layers"])
    model.train(case["kind"] == "training")
    common.step(model, model, inputs, case["kind"])  # MKL, thread pools and autograd start here, for every side
    begin = time.perf_counter()
    compiled = common.EVERY_SIDE[case["side"]](model)
    common.step(compiled, model, inputs, case["kind"])
    first, whole, processor = time.perf_counter() - begin, time.time() - case["begun"], sum(os.times()[:4])
    begin = time.perf_counter()
    common.step(compiled, model, inputs, case["kind"])
    second = time.perf_counter() - begin
    stages = _seconds_by_stage(compiled) if case["side"].startswith("torchglass") else {}
    return {"first": first, "second": second, "whole": whole, "processor": processor, "stages": stages}


def _seconds_by_stage(compiled: Any) -> dict[str, float]:
    import torchglass as tg

    return tg.explain(compiled).seconds_by_stage()


def show(rows: list[dict[str, Any]], sides: list[str]) -> None:
    table = Table(title="cold start: first call in a fresh process, seconds")
    for column in ("model", "attention", "kind", "layers"):
        table.add_column(column)
    for side in sides:
        table.add_column(side, justify="right")
    compare = {"torchglass", "torch.compile"} <= set(sides)
    table.add_column("times faster", justify="right")
    for row in rows:
        seconds = row["seconds"]
        ratio = f"{seconds['torch.compile'] / seconds['torchglass']:.1f}x" if compare else ""
        cells = [f"{seconds[side]:.2f}" for side in sides]
        table.add_row(row["model"], row["attention"], row["kind"], str(row["layers"]), *cells, ratio)
    console = Console()
    console.print(table)
    for row in rows:
        for side, (first, *_) in row["runs"].items():
            if not first["stages"]:
                continue
            # what no stage accounts for is loading modules, running the entry, and the first run's page faults
            stages = {**first["stages"], "the rest": first["first"] - sum(first["stages"].values())}
            parts = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in stages.items())
            name = f"{row['model']} {row['attention']} {row['kind']} {row['layers']} {side}"
            console.print(f"{name}: {parts}", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
