"""Models on a GPU: eager, torch.compile and ours, every row and side in a fresh process with empty caches.

    python -m benchmarks.gpu --json gpu.json --budget 540
    python -m benchmarks.gpu --json gpu.json --rows bert gpt2 --sides torchglass --merge before.json
    python -m benchmarks.gpu --json further.json --rows t5 convnext swin    # these only where they are named
    python -m benchmarks.gpu --rows gpt2 --sides torchglass "torchglass dynamic"    # these say their figures in lines
    python -m benchmarks.gpu --modes --rows bert mlp decode                 # CUDA graphs: ours, theirs, our default
    python -m benchmarks.gpu --json small.json --device cpu --small         # to try this script

A training step is forward, loss and backward, without an optimizer; the gradients are set to None in each. ``cold`` is
the first step after ``compile``, importing the compiler included, one eager step before not. ``ms`` is the median of 40
steps without a wait between them, ``MB`` the most memory allocated in them, ``ready`` the seconds from ``compile`` to
the end of 12 further steps, by when CUDA graphs are captured. Errors are relative, bfloat16 against eager
in float32: a side is wrong where its error is more than twice eager's own. ``--merge`` takes the rows and sides that
are not measured from an earlier file, which should be of the same machine. A side that fails is a cell that says so;
the reasons, and what ran eagerly, stand below the table. Exits with 1 if a row of ours failed, is wrong or ran eagerly.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from . import common
from .gpu_models import ROWS

SIDES = ("eager", "torch.compile", "torchglass")
MODES = ("torch.compile reduce-overhead", "torchglass", "torchglass reduce-overhead")
LEAST_SECONDS = 20
"""With less than this left of the budget no process is started: importing and building a model takes as long."""

Result = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    chosen = options().parse_args(arguments)
    chosen.sides = chosen.sides or list(MODES if chosen.modes else SIDES)
    end = time.monotonic() + chosen.budget
    common.byte_compile()
    known = json.loads(chosen.merge.read_text())["rows"] if chosen.merge else []
    sides: dict[str, dict[str, Result]] = {row["row"]: dict(row["sides"]) for row in known if row["row"] in chosen.rows}
    skipped: list[str] = []
    for name in chosen.rows:
        for side in chosen.sides:
            limit = min(chosen.limit, end - time.monotonic())
            if limit < LEAST_SECONDS:
                skipped.append(f"{name} {side}")
            else:
                task = {"row": name, "side": side, **{k: getattr(chosen, k) for k in ("device", "small", "dropout")}}
                result = in_fresh_process(task, limit)
                sides.setdefault(name, {})[side] = result
                print(f"{name:12} {side:18} {said(result)}", flush=True)
            rows = [{"row": row, "sides": of_row} for row, of_row in sides.items()]
            common.write_json(chosen.json, "gpu", rows, device=device_name(chosen.device), skipped=skipped)
    title = device_name(chosen.device) + (", small models" if chosen.small else "")
    (show_modes if chosen.modes else show)(sides, title)
    if skipped:
        print(f"skipped, the {chosen.budget:g} seconds were over: {', '.join(skipped)}")
    ours = [result for of_row in sides.values() for side, result in of_row.items() if side.startswith("torchglass")]
    return 1 if any(problems(result) for result in ours) else 0


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file, after every process")
    parser.add_argument("--merge", type=Path, help="take what is not measured from this file")
    usual = [name for name, row in ROWS.items() if not row.further]
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=usual, help=f"without it: {' '.join(usual)}")
    parser.add_argument("--sides", nargs="+", choices=common.EVERY_SIDE, help=f"without it: {', '.join(SIDES)}")
    parser.add_argument("--modes", action="store_true", help=f"without --sides: {', '.join(MODES)}")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="small models, which a CPU can run")
    parser.add_argument(
        "--dropout", type=float, default=0.0, help="of BERT, GPT-2 and ViT; errors are asked at 0 alone"
    )
    parser.add_argument("--limit", type=float, default=240, help="seconds for one process")
    parser.add_argument("--budget", type=float, default=86400, help="seconds for all, after which rows are skipped")
    return parser


def device_name(device: str) -> str:
    return "CPU" if device == "cpu" else torch.cuda.get_device_name(device)


def in_fresh_process(task: dict[str, Any], limit: float) -> Result:
    """What ``benchmarks.gpu_step`` measures, or ``{"failed": why}``."""
    with tempfile.TemporaryDirectory(prefix="gpu_") as folder, open(f"{folder}/errors", "w+") as errors:
        command = [sys.executable, "-m", "benchmarks.gpu_step", json.dumps(task)]
        child = subprocess.Popen(
            command, env=common.without_caches(folder), stdout=subprocess.PIPE, stderr=errors, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            printed, _ = child.communicate(timeout=limit)
            failed = "" if child.returncode == 0 else f"exit status {child.returncode}"
        except subprocess.TimeoutExpired:
            failed = f"not done after {limit:.0f} s"
        if failed:
            end_group(child)
            errors.seek(0)
            return {"failed": f"{failed}: {last_lines(errors.read())}"}
    return json.loads(printed.strip().splitlines()[-1])


def end_group(child: subprocess.Popen[str]) -> None:
    """End a child and the compilers that it has started, which are of its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def last_lines(text: str) -> str:
    return " | ".join(line.strip() for line in text.strip().splitlines()[-3:])[-600:]


# -- for people ------------------------------------------------------------------------------------------------------
def said(result: Result) -> str:
    """One process's figures in a line."""
    if "failed" in result:
        return f"FAILED: {result['failed']}"
    parts = [
        f"{result['ms']:.3f} ms",
        f"ready {result['ready']:.1f} s, cold {result['cold']:.1f} s",
        f"{result['cubins']} cubins",
    ]
    if result["megabytes"] is not None:
        parts.append(f"{result['megabytes']:.0f} MB")
    if "graphs" in result:
        parts.append(f"{result['graphs']} graphs, {len(result['breaks'])} breaks, {result['kernels']} kernels")
    return ", ".join([*parts, *problems(result)])


def problems(result: Result) -> list[str]:
    """Why a side's figures are not to be had or not to be trusted, each once."""
    if "failed" in result:
        return [f"failed: {result['failed']}"]
    verdict = result.get("errors", {}).get("verdict")
    eager = [f"ran eagerly: {text}" for text in (*result.get("eager", ()), *result["warnings"])]
    return list(dict.fromkeys([*([verdict] if verdict else []), *eager]))


def show(sides: dict[str, dict[str, Result]], device: str) -> None:
    """The table, the stages of ours, and what is wrong with a row."""
    table = Table(title=f"bfloat16 on {device}: milliseconds a step; x = times as fast as the better of the other two")
    columns = ("row", "eager", "torch.compile", "ours", "x", "cold s: t.c", "ours", "MB: eager", "t.c", "ours",
               "error: output", "gradients")  # fmt: skip
    for column in columns:
        table.add_column(column, justify="left" if column == "row" else "right")
    for name, results in sides.items():
        table.add_row(name, *cells(results))
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)
    for name in sides:
        print(f"{name}: {ROWS[name].title}")
    print("errors: ours, torch.compile's / eager's own")
    for name, results in sides.items():
        for side, result in results.items():
            for problem in problems(result):
                print(f"{name} {side}: {problem}")
        ours = results.get("torchglass", {})
        if "stages" in ours:
            stages = {**ours["stages"], "the rest": ours["cold"] - sum(ours["stages"].values())}
            spent = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in stages.items() if seconds >= 0.005)
            counts = f"{ours['graphs']} graphs, {ours['kernels']} kernels, {ours['cubins']} cubins"
            print(f"{name}: {counts}; seconds: {spent}" + "".join(f"\n  break: {b}" for b in ours["breaks"][:3]))


def show_modes(sides: dict[str, dict[str, Result]], device: str) -> None:
    """reduce-overhead beside torch.compile's and our default; ``ready`` and memory relative to the latter."""
    table = Table(title=f"bfloat16 on {device}: milliseconds a step; x = times as fast with our CUDA graphs")
    columns = ("row", *MODES, "x theirs", "x default", "ready / cold", "MB / default", "reserved / default")
    for column in columns:
        table.add_column(column, justify="left" if column == "row" else "right")
    for name, results in sides.items():
        theirs, default, ours = (results.get(side, {}) for side in MODES)
        shown = [figure(result, "ms", 3) for result in (theirs, default, ours)]
        ratios = [("ms", theirs, ours), ("ms", default, ours), ("ready", ours, default), ("megabytes", ours, default),
                  ("reserved", ours, default)]  # fmt: skip
        table.add_row(name, *shown, *(ratio(*one) for one in ratios))
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    for name, results in sides.items():
        for side, result in results.items():
            for line in (*problems(result), *result.get("replays", ())):
                print(f"{name} {side}: {line}")


def ratio(key: str, a: Result, b: Result) -> str:
    below = "cold" if key == "ready" else key
    return f"{a[key] / b[below]:.2f}" if a.get(key) and b.get(below) else "-"


def cells(results: dict[str, Result]) -> list[str]:
    eager, theirs, ours = (results.get(side, {}) for side in SIDES)
    others = [result["ms"] for result in (eager, theirs) if "ms" in result]
    ratio = f"{min(others) / ours['ms']:.2f}x" if others and "ms" in ours else "-"
    return [
        *(figure(result, "ms", 3 if result.get("ms", 9) < 2 else 2) for result in (eager, theirs, ours)),
        ratio,
        *(figure(result, "cold", 1) for result in (theirs, ours)),
        *(figure(result, "megabytes", 0) for result in (eager, theirs, ours)),
        *(error_cell(ours, theirs, part) for part in ("output", "gradients")),
    ]


def figure(result: Result, key: str, digits: int) -> str:
    if "failed" in result:
        return "failed"
    return f"{result[key]:.{digits}f}" if result.get(key) is not None else "-"


def error_cell(ours: Result, theirs: Result, part: str) -> str:
    pairs = [result.get("errors", {}).get(part) for result in (ours, theirs)]
    own = next((pair[1] for pair in pairs if pair), None)
    if own is None:
        return "-"
    marks = [" wrong" if result.get("errors", {}).get("verdict") else "" for result in (ours, theirs)]
    shown = [f"{pair[0]:.1e}{mark}" if pair else "-" for pair, mark in zip(pairs, marks)]
    return f"{shown[0]}, {shown[1]} / {own:.1e}"


if __name__ == "__main__":
    sys.exit(main())
