"""Time a script as it is, with tg.compile doing nothing, and with torch.compile in its place.

python -m torchglass bench --sides eager torchglass train.py

Every side runs in fresh processes, in turn; a table shows the fastest run of each. "compiling" is what every start
spends again, so the rest is what a long run gains or loses.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .. import show

SIDES = ("eager", "torchglass", "torch.compile")

_CHILD = """
import json, runpy, sys, time
side, result, script, *arguments = sys.argv[1:]
sys.argv = [script, *arguments]
sys.path.insert(0, script.rpartition("/")[0])
import torch, torchglass
original = torchglass.compile
made = []
def compile(model=None, **kwargs):
    if model is None:
        return lambda model: compile(model, **kwargs)
    if side == "eager":
        return model
    if side == "torch.compile":
        return torch.compile(model, **{k: v for k, v in kwargs.items() if k in ("fullgraph", "dynamic", "mode")})
    made.append(original(model, **kwargs))
    return made[-1]
torchglass.compile = compile
wall, cpu = time.perf_counter(), time.process_time()
try:
    runpy.run_path(script, run_name="__main__")
finally:
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    compiling = None if side == "torch.compile" else 0.0
    for one in made:
        compiling += sum(torchglass.explain(one).seconds_by_stage().values())
    json.dump({"wall": wall, "cpu": cpu, "compiling": compiling}, open(result, "w"))
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=["eager", "torchglass"], help="what to time")
    parser.add_argument("--repeats", type=_number, default=3, help="runs of each side (default: %(default)s)")
    parser.add_argument("--output", action="store_true", help="let the script's own output through")
    parser.add_argument("script", help="a Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")


def _number(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of runs")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    script = Path(arguments.script).absolute()
    if not script.is_file():
        print(f"torchglass bench: no such file: {script}", file=sys.stderr)
        return 2
    best: dict[str, dict[str, Any]] = {}
    for _ in range(arguments.repeats):
        for side in arguments.sides:
            figures = _once(side, script, arguments.arguments, arguments.output)
            if figures is None:
                return 1
            if side not in best or figures["wall"] < best[side]["wall"]:
                best[side] = figures
    table = Table(title=f"{script.name}: the fastest of {arguments.repeats} runs")
    for column in ("side", "whole script", "compiling", "the rest", "CPU time"):
        table.add_column(column, justify="left" if column == "side" else "right")
    for side, figures in best.items():
        compiling = figures["compiling"]
        rest = None if compiling is None else figures["wall"] - compiling
        amounts = (figures["wall"], compiling, rest, figures["cpu"])
        table.add_row(side, *("?" if amount is None else show.seconds(amount) for amount in amounts))
    Console().print(table)
    return 0


def _once(side: str, script: Path, rest: list[str], output: bool) -> dict[str, Any] | None:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "figures.json"
        command = [sys.executable, "-c", _CHILD, side, str(result), str(script), *rest]
        done = subprocess.run(command, stdout=None if output else subprocess.DEVNULL, check=False)
        if done.returncode or not result.is_file():
            print(f"torchglass bench: {script} failed with {side} (status {done.returncode})", file=sys.stderr)
            return None
        return dict(json.loads(result.read_text()))
