"""What looking costs: seconds of the first step of a model, compiled as it is and with its folder for people.

    python -m benchmarks.debug_overhead --repeats 3
    python -m benchmarks.debug_overhead --sides torch.compile depyf --backend aot_eager

Each figure is of a fresh process without caches: CPU seconds, those of the C compiler included, from ``compile(model)``
to the end of the first training step and, with a folder, until its last file is written. CPU seconds, since writing
reports is no waiting; sides run in turn and the fastest of the repeats counts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from . import common

SIDES = ("torchglass", "torch.compile", "depyf")
"""Each is run as it is and under its debugging context; "depyf" is torch.compile under depyf's."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=["torchglass", "torch.compile"])
    parser.add_argument("--model", choices=sorted(common.WORKLOADS), default="bert")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--backend", default="inductor", help="torch.compile's backend (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="save the figures in this file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.child:
        print(json.dumps(first_step(json.loads(chosen.child))))
        return 0
    cases = [{"side": side, "debug": debug} for side in chosen.sides for debug in (False, True)]
    runs: dict[str, list[float]] = {_name(case): [] for case in cases}
    for _ in range(chosen.repeats):
        for case in cases:
            rest = {"model": chosen.model, "layers": chosen.layers, "backend": chosen.backend}
            runs[_name(case)].append(in_fresh_process({**case, **rest}))
    rows = [_row(side, runs) for side in chosen.sides]
    table = Table(title=f"{chosen.model}, {chosen.layers} layers, training: CPU seconds of the first step")
    for column in ("side", "as it is", "with a folder", "overhead"):
        table.add_column(column, justify="left" if column == "side" else "right")
    for row in rows:
        table.add_row(row["side"], f"{row['plain']:.2f}", f"{row['debug']:.2f}", f"{row['overhead']:+.1%}")
    Console().print(table)
    common.write_json(chosen.json, "debug_overhead", rows, repeats=chosen.repeats, runs=runs)
    return 0


def _name(case: dict[str, Any]) -> str:
    return f"{case['side']}{' debug' if case['debug'] else ''}"


def _row(side: str, runs: dict[str, list[float]]) -> dict[str, Any]:
    plain, debug = min(runs[side]), min(runs[f"{side} debug"])
    return {"side": side, "plain": plain, "debug": debug, "overhead": debug / plain - 1}


def in_fresh_process(case: dict[str, Any]) -> float:
    """CPU seconds of :func:`first_step` in a new process with new folders."""
    print(_name(case), "...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="debug_overhead_") as folder:
        environment = {
            **os.environ,
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "XDG_CACHE_HOME": f"{folder}/cache",
            "OMP_NUM_THREADS": "1",
        }
        for name in ("TORCHGLASS_DIR", "PYTHONDONTWRITEBYTECODE"):  # a user's modules are compiled once, when installed
            environment.pop(name, None)
        command = [sys.executable, "-m", "benchmarks.debug_overhead", "--child", json.dumps({**case, "folder": folder})]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{case} failed with exit status {done.returncode}")
    return float(done.stdout.strip().splitlines()[-1])


def first_step(case: dict[str, Any]) -> float:
    """Compile and train one step, in this process."""
    model, inputs = common.WORKLOADS[case["model"]].build("eager", layers=case["layers"])
    common.step(model, model, inputs, "training")  # what every side starts with
    import torch

    import torchglass as tg

    if case["side"] != "torchglass":
        import torch._dynamo  # its import is no part of what looking costs
    begin = _cpu()
    with _context(case, tg):
        compiled = tg.compile(model) if case["side"] == "torchglass" else torch.compile(model, backend=case["backend"])
        common.step(compiled, model, inputs, "training")
    return _cpu() - begin


def _context(case: dict[str, Any], tg: Any) -> AbstractContextManager[Any]:
    if not case["debug"]:
        return contextlib.nullcontext()
    folder = f"{case['folder']}/debug"
    if case["side"] == "depyf":
        return _depyf(folder)
    context: AbstractContextManager[Any] = tg.prepare_debug(folder)
    return context


@contextlib.contextmanager
def _depyf(folder: str) -> Iterator[None]:
    import depyf

    with depyf.prepare_debug(folder):
        yield


def _cpu() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    sys.exit(main())
