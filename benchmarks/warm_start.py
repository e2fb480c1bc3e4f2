"""Warm start: the same program started again in a folder of kept entries; seconds of its first call.

    python -m benchmarks.warm_start --json warm_start.json
    python -m benchmarks.warm_start --models bert llama --kinds inference --growth 4 48 --sides eager torchglass
    python -m benchmarks.warm_start --keeping --models bert llama resnet

The first process of a side compiles and keeps (``cold``), later ones find it (``warm``, the median of ``--repeats``).
For training the first call is forward and backward. Importing the compiler counts; importing torch and transformers,
making the model and one eager step do not; ``whole`` is from the start of the process, with all of these. torch.compile
has its caches in a folder of the same age.

``--keeping``: what keeping adds to a cold start of ours, in processor seconds of the whole process and its compilers:
processes that keep nothing and processes that keep all, in turn, the median of each.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from typing import Any

from rich.console import Console
from rich.table import Table

from . import common
from .cold_start import in_process, process_arguments


def main(arguments: list[str] | None = None) -> int:
    parser = process_arguments(__doc__)
    parser.add_argument("--keeping", action="store_true", help="what keeping adds to a cold start")
    chosen = parser.parse_args(arguments)
    common.byte_compile()
    rows = []
    for model in chosen.models:
        for kind in chosen.kinds:
            for layers in chosen.growth or [chosen.layers]:
                case = {"model": model, "attention": chosen.attention[0], "kind": kind, "layers": layers}
                keeping = chosen.keeping
                rows.append(
                    of_keeping(case, chosen.repeats) if keeping else measure(case, chosen.sides, chosen.repeats)
                )
                common.write_json(chosen.json, "warm_start", rows, repeats=chosen.repeats)
    if chosen.keeping:
        show_keeping(rows)
    else:
        show(rows, chosen.sides)
    return 0


def of_keeping(case: dict[str, Any], repeats: int) -> dict[str, Any]:
    """One row: processor seconds of cold starts that keep nothing and that keep all."""
    runs: dict[str, list[float]] = {"off": [], "on": []}
    for turn in range(repeats):
        for how, environment in (("off", common.without_caches), ("on", common.with_caches)):
            with tempfile.TemporaryDirectory(prefix="warm_start_") as folder:
                print(*case.values(), how, turn, "...", file=sys.stderr, flush=True)
                runs[how].append(in_process({**case, "side": "torchglass"}, environment(folder))["processor"])
    return {**case, "processor": {how: statistics.median(of) for how, of in runs.items()}, "runs": runs}


def show_keeping(rows: list[dict[str, Any]]) -> None:
    table = Table(title="keeping at a cold start: processor seconds of the process and its compilers")
    for column in ("model", "kind", "layers", "off", "on", "more"):
        table.add_column(column)
    for row in rows:
        off, on = row["processor"]["off"], row["processor"]["on"]
        table.add_row(row["model"], row["kind"], str(row["layers"]), f"{off:.2f}", f"{on:.2f}", f"{on / off - 1:+.1%}")
    Console().print(table)


def measure(case: dict[str, Any], sides: list[str], repeats: int) -> dict[str, Any]:
    """One row: each side's cold start and its warm ones, sides in turn."""
    with tempfile.TemporaryDirectory(prefix="warm_start_") as folder:
        cold: dict[str, float] = {}
        warm: dict[str, list[float]] = {side: [] for side in sides}
        whole: dict[str, list[float]] = {side: [] for side in sides}
        for turn in range(repeats + 1):
            for side in sides:
                print(*case.values(), side, turn, "...", file=sys.stderr, flush=True)
                seconds = in_process({**case, "side": side}, common.with_caches(folder))
                if turn:
                    warm[side].append(seconds["first"])
                    whole[side].append(seconds["whole"])
                else:
                    cold[side] = seconds["first"]
    medians = [{side: statistics.median(of) for side, of in runs.items()} for runs in (warm, whole)]
    return {**case, "cold": cold, "warm": medians[0], "whole": medians[1], "runs": warm, "whole_runs": whole}


def show(rows: list[dict[str, Any]], sides: list[str]) -> None:
    table = Table(title="warm start: first call in a process whose entries were kept (cold), seconds")
    for column in ("model", "kind", "layers"):
        table.add_column(column)
    for side in sides:
        table.add_column(side, justify="right")
    table.add_column("above eager", justify="right")
    table.add_column("whole, above eager", justify="right")
    table.add_column("times faster", justify="right")
    for row in rows:
        warm, cold = row["warm"], row["cold"]
        above = [
            f"{seconds['torchglass'] - seconds['eager']:.2f}" if {"eager", "torchglass"} <= set(sides) else ""
            for seconds in (warm, row["whole"])
        ]
        both = {"torchglass", "torch.compile"} <= set(sides)
        ratio = f"{warm['torch.compile'] / warm['torchglass']:.1f}x" if both else ""
        cells = [f"{warm[side]:.2f} ({cold[side]:.2f})" for side in sides]
        table.add_row(row["model"], row["kind"], str(row["layers"]), *cells, *above, ratio)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
