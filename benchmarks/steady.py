"""Steady state: milliseconds of a warm call, eager, ours and torch.compile side by side in one process.

    python -m benchmarks.steady --json steady.json
    python -m benchmarks.steady --models bert --kinds inference --seconds 2
    python -m benchmarks.steady --models bert --sides eager torchglass "torchglass dynamic" "torch.compile dynamic"

A side of torch.compile that fails says so, and is left out. Also checks numerics: outputs and gradients of
parameters against float64, where our error may be twice eager's own. Exits with 1 if that does not hold.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from . import common


def main(arguments: list[str] | None = None) -> int:
    parser = common.arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="time to measure each model")
    parser.add_argument("--threads", type=int, help="threads torch may use")
    chosen = parser.parse_args(arguments)
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    rows = list(measure_all(chosen))
    show(rows, chosen.sides)
    common.write_json(chosen.json, "steady", rows, seconds=chosen.seconds)
    return 0 if all(row["numerics"]["fine"] for row in rows if row["numerics"]) else 1


def measure_all(chosen: Any) -> Iterator[dict[str, Any]]:
    for name in chosen.models:
        for attention in chosen.attention if common.WORKLOADS[name].attends else chosen.attention[:1]:
            for kind in chosen.kinds:
                print(f"{name} {attention} {kind} ...", file=sys.stderr, flush=True)
                yield measure(common.WORKLOADS[name], attention, kind, chosen.sides, chosen.seconds)


def measure(workload: common.Workload, attention: str, kind: str, sides: list[str], seconds: float) -> dict[str, Any]:
    """One row: medians by side, ratios to eager (above 1 is faster than eager), numerics of ours."""
    torch.compiler.reset()
    calls = {side: call for side in sides if (call := _call(workload, attention, kind, side)) is not None}
    timings = common.interleaved(calls, seconds)
    eager = timings["eager"].median if "eager" in timings else float("nan")
    return {
        "model": workload.name,
        "attention": attention,
        "kind": kind,
        "milliseconds": {side: vars(t) for side, t in timings.items()},
        "times_eager": {side: eager / t.median for side, t in timings.items()},
        "numerics": _numerics(workload, attention, kind) if "torchglass" in sides else None,
    }


def _call(workload: common.Workload, attention: str, kind: str, side: str) -> Any:
    """A call of one side, warm; None where torch.compile fails."""
    model, inputs = workload.build(attention)
    model.train(kind == "training")
    compiled = common.EVERY_SIDE[side](model)
    try:
        common.step(compiled, model, inputs, kind)
        common.settle()
    except Exception as error:
        if not side.startswith("torch.compile"):
            raise
        print(f"{workload.name} {kind}, {side}: {type(error).__name__}: {error}"[:300], file=sys.stderr)
        return None
    return lambda: common.step(compiled, model, inputs, kind)


def _numerics(workload: common.Workload, attention: str, kind: str) -> dict[str, Any]:
    rows = common.accuracy(workload, attention, kind, common.SIDES["torchglass"])
    worst = max(rows, key=lambda r: r.ours / max(2 * r.eager, r.floor))
    return {
        "fine": all(r.fine for r in rows),
        "tensors": len(rows),
        "worst": worst.name,
        "worst_error": worst.ours,
        "eager_error_there": worst.eager,
        "largest_error": max(r.ours_largest for r in rows),
        "eager_largest_error": max(r.eager_largest for r in rows),
    }


def show(rows: list[dict[str, Any]], sides: list[str]) -> None:
    """The table, and geometric means of the ratios."""
    table = Table(title="steady state (milliseconds; x = times as fast as eager)")
    for column in ("model", "attention", "kind"):
        table.add_column(column)
    for side in sides:
        table.add_column(side, justify="right")
    table.add_column("error / eager's (worst tensor)", justify="right")
    for row in rows:
        cells = []
        for side in sides:
            if side not in row["milliseconds"]:
                cells.append("failed")
                continue
            ratio = "" if side == "eager" else f"  {row['times_eager'][side]:.2f}x"
            cells.append(f"{row['milliseconds'][side]['median']:.2f}{ratio}")
        numerics = row["numerics"]
        cells.append(_numerics_cell(numerics) if numerics else "")
        table.add_row(row["model"], row["attention"], row["kind"], *cells)
    console = Console()
    console.print(table)
    for kind in common.KINDS:
        for ours, theirs in (("torchglass", "torch.compile"), ("torchglass dynamic", "torch.compile dynamic")):
            taken = [r["milliseconds"] for r in rows if r["kind"] == kind and {ours, theirs} <= set(r["milliseconds"])]
            if taken:
                ratio = common.geometric_mean(one[theirs]["median"] / one[ours]["median"] for one in taken)
                console.print(f"{kind}: {ours} is {ratio:.2f}x {theirs} (geometric mean of {len(taken)})")


def _numerics_cell(numerics: dict[str, Any]) -> str:
    verdict = "" if numerics["fine"] else "[bold red]TOO FAR[/] "
    return f"{verdict}{numerics['worst_error']:.1e} / {numerics['eager_error_there']:.1e} ({numerics['worst']})"


if __name__ == "__main__":
    sys.exit(main())
