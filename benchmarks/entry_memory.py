"""What an entry keeps in memory: growth of the process for each further batch size of a model of twelve layers.

    python -m benchmarks.entry_memory --json entry_memory.json
    python -m benchmarks.entry_memory --models bert --kinds training --sides torchglass

Every side runs in a fresh process: two batch sizes first, which pay for the compiler itself, then the others. Before
each look garbage is collected and memory that waits to be used again is given back, malloc's and ours; no gradients are
alive. ``private`` are the pages of this process alone. Eager's growth is what PyTorch's libraries keep for each size.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from . import common

MEGABYTE = 1 << 20
LAYERS = 12
FIGURES = ("resident", "private")


def main(arguments: list[str] | None = None) -> int:
    parser = common.arguments(__doc__)
    parser.set_defaults(models=["bert"], sides=["eager", "torchglass", "torch.compile"])
    parser.add_argument("--entries", type=int, default=8, help="batch sizes, the first included")
    parser.add_argument("--child", help="for one process: the case as JSON")
    chosen = parser.parse_args(arguments)
    if chosen.child:
        print(json.dumps(growth(json.loads(chosen.child))))
        return 0
    common.byte_compile()
    rows = []
    for model in chosen.models:
        for attention in chosen.attention if common.WORKLOADS[model].attends else chosen.attention[:1]:
            for kind in chosen.kinds:
                case = {"model": model, "attention": attention, "kind": kind, "entries": chosen.entries}
                sides = {side: in_fresh_process({**case, "side": side}) for side in chosen.sides}
                rows.append({**case, "sides": sides})
    show(rows, chosen.sides)
    common.write_json(chosen.json, "entry_memory", rows, layers=LAYERS)
    return 0


def in_fresh_process(case: dict[str, Any]) -> dict[str, float]:
    """:func:`growth` in a process of its own, without caches."""
    print(*case.values(), "...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="entry_memory_") as folder:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "XDG_CACHE_HOME": folder}
        environment.pop("TORCHGLASS_DIR", None)
        command = [sys.executable, "-m", "benchmarks.entry_memory", "--child", json.dumps(case)]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{case} failed with exit status {done.returncode}")
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def growth(case: dict[str, Any]) -> dict[str, float]:
    """Megabytes for each batch size after the first, in this process."""
    entries, kind = case["entries"], case["kind"]
    model, inputs = common.WORKLOADS[case["model"]].build(case["attention"], 0, LAYERS)
    model = model.train(kind == "training")
    if case["side"] == "torch.compile":
        torch._dynamo.config.recompile_limit = entries  # type: ignore[attr-defined]
        compiled = torch.compile(model, dynamic=False)
    else:
        compiled = common.SIDES[case["side"]](model)

    def run(batch: int) -> None:
        batched = {name: value[:1].repeat(batch, *[1] * (value.dim() - 1)) for name, value in inputs.items()}
        for _ in range(2):
            common.step(compiled, model, batched, kind)
        model.zero_grad(set_to_none=True)

    run(1)
    run(2)  # the second may find that sizes change
    before = held()
    for batch in range(3, entries + 1):
        run(batch)
    after = held()
    return {name: (after[name] - before[name]) / MEGABYTE / (entries - 2) for name in before}


def held() -> dict[str, int]:
    """Bytes held by this process, as little of them as there can be."""
    for _ in range(3):
        gc.collect()
    if "torchglass._native" in sys.modules:
        sys.modules["torchglass._native"].release_memory()
    ctypes.CDLL(None).malloc_trim(0)
    text = Path("/proc/self/smaps_rollup").read_text()
    kilobytes = {name: int(rest.split()[0]) for name, _, rest in (x.partition(":") for x in text.splitlines()[1:])}
    return {
        "resident": kilobytes["Rss"] * 1024,
        "private": (kilobytes["Private_Clean"] + kilobytes["Private_Dirty"]) * 1024,
    }


def show(rows: list[dict[str, Any]], sides: list[str]) -> None:
    table = Table(title="MB an entry: " + ", ".join(FIGURES))
    for column in ("model", "attention", "kind", *sides):
        table.add_column(column)
    for row in rows:
        cells = ["  ".join(f"{row['sides'][side][name]:.2f}" for name in FIGURES) for side in sides]
        table.add_row(row["model"], row["attention"], row["kind"], *cells)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
