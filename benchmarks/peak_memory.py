"""Peak memory of one warm training step: the most bytes alive at once that the step allocated.

    python -m benchmarks.peak_memory --json peak_memory.json

Counted by PyTorch's allocators through torch.profiler, every side in a fresh process: a high-water mark of the resident
set would also count what malloc keeps between calls and what compilers leave behind, several times a step of these
models. ``resident`` is that mark nevertheless, the growth of the process over the step, for what counting cannot see.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from . import common

MEGABYTE = 1 << 20


def main(arguments: list[str] | None = None) -> int:
    parser = common.arguments(__doc__)
    parser.add_argument("--child", help="for one process: the case as JSON")
    chosen = parser.parse_args(arguments)
    if chosen.child:
        print(json.dumps(peak_of(json.loads(chosen.child))))
        return 0
    rows = []
    for model in chosen.models:
        for attention in chosen.attention if common.WORKLOADS[model].attends else chosen.attention[:1]:
            case = {"model": model, "attention": attention}
            sides = {side: in_fresh_process({**case, "side": side}) for side in chosen.sides}
            rows.append({**case, "sides": sides})
    show(rows, chosen.sides)
    common.write_json(chosen.json, "peak_memory", rows)
    return 0


def in_fresh_process(case: dict[str, Any]) -> dict[str, float]:
    """:func:`peak_of` in a process of its own."""
    print(*case.values(), "...", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "benchmarks.peak_memory", "--child", json.dumps(case)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{case} failed with exit status {done.returncode}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def peak_of(case: dict[str, Any]) -> dict[str, float]:
    """Megabytes: the most that one step had allocated at once, and by how much the process grew meanwhile."""
    model, inputs = common.WORKLOADS[case["model"]].build(case["attention"])
    compiled = common.SIDES[case["side"]](model.train())
    for _ in range(3):
        common.step(compiled, model, inputs, "training")
    model.zero_grad(set_to_none=True)
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
    common.step(compiled, model, inputs, "training")
    grown = _resident("VmHWM") - before
    model.zero_grad(set_to_none=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        common.step(compiled, model, inputs, "training")
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    alive = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        alive += event.nbytes()
        peak = max(peak, alive)
    return {"allocated": peak / MEGABYTE, "resident": grown / MEGABYTE}


def _resident(field: str) -> int:
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(field))
    return int(line.split()[1]) * 1024


def show(rows: list[dict[str, Any]], sides: list[str]) -> None:
    table = Table(title="training step: most MB allocated (x of eager), growth of the process")
    for column in ("model", "attention", *sides):
        table.add_column(column)
    for row in rows:
        eager = row["sides"].get("eager", {}).get("allocated", float("nan"))
        cells = [
            f"{one['allocated']:.1f}  {one['allocated'] / eager:.2f}x  {one['resident']:.1f}"
            for one in (row["sides"][side] for side in sides)
        ]
        table.add_row(row["model"], row["attention"], *cells)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
