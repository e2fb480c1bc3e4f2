"""Warm start: the same program started again in a folder of kept entries; seconds of its first call.

    python -m benchmarks.warm_start --json warm_start.json
    python -m benchmarks.warm_start --models bert llama --kinds inference --growth 4 48 --sides eager torchglass

The first process of a side compiles and keeps (``cold``), later ones find it (``warm``, the median of ``--repeats``).
For training the first call is forward and backward. Importing the compiler counts; importing torch and transformers,
making the model and one eager step do not. torch.compile has its caches in a folder of the same age.
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
    chosen = process_arguments(__doc__).parse_args(arguments)
    common.byte_compile()
    rows = []
    for model in chosen.models:
        for kind in chosen.kinds:
            for layers in chosen.growth or [chosen.layers]:
                case = {"model": model, "attention": chosen.attention[0], "kind": kind, "layers": layers}
                rows.append(measure(case, chosen.sides, chosen.repeats))
                common.write_json(chosen.json, "warm_start", rows, repeats=chosen.repeats)
    show(rows, chosen.sides)
    return 0


def measure(case: dict[str, Any], sides: list[str], repeats: int) -> dict[str, Any]:
    """One row: each side's cold start and its warm ones, sides in turn."""
    with tempfile.TemporaryDirectory(prefix="warm_start_") as folder:
        cold: dict[str, float] = {}
        warm: dict[str, list[float]] = {side: [] for side in sides}
        for turn in range(repeats + 1):
            for side in sides:
                print(*case.values(), side, turn, "...", file=sys.stderr, flush=True)
                seconds = in_process({**case, "side": side}, common.with_caches(folder))["first"]
                if turn:
                    warm[side].append(seconds)
                else:
                    cold[side] = seconds
    return {**case, "cold": cold, "warm": {side: statistics.median(of) for side, of in warm.items()}, "runs": warm}


def show(rows: list[dict[str, Any]], sides: list[str]) -> None:
    table = Table(title="warm start: first call in a process whose entries were kept (cold), seconds")
    for column in ("model", "kind", "layers"):
        table.add_column(column)
    for side in sides:
        table.add_column(side, justify="right")
    table.add_column("above eager", justify="right")
    table.add_column("times faster", justify="right")
    for row in rows:
        warm, cold = row["warm"], row["cold"]
        above = f"{warm['torchglass'] - warm['eager']:.2f}" if {"eager", "torchglass"} <= set(sides) else ""
        both = {"torchglass", "torch.compile"} <= set(sides)
        ratio = f"{warm['torch.compile'] / warm['torchglass']:.1f}x" if both else ""
        cells = [f"{warm[side]:.2f} ({cold[side]:.2f})" for side in sides]
        table.add_row(row["model"], row["kind"], str(row["layers"]), *cells, above, ratio)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
