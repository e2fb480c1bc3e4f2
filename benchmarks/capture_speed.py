"""Seconds of capture alone: our frontend beside Dynamo, each in a process of its own, with a backend that does nothing.

    python -m benchmarks.capture_speed --models bert --layers 12 --json capture_speed.json

``first`` is the first call of a fresh process, with all that is imported then; ``second`` the first call of another
model of the same class and size in that process, after a reset: capture without imports. Our package is byte-compiled,
as pip compiles what it installs. Processor seconds of the
process, so that other programs on the machine count less; the least of ``--repeats`` processes. Gradients are on, as in
training. Dynamo's own caches are off.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from .common import WORKLOADS, arguments, byte_compile, write_json

SIDES = ("torchglass", "torch.compile")


@dataclass(frozen=True)
class Capture:
    """Processor seconds of the first calls of two models; how many graphs and operations were captured."""

    model: str
    layers: int
    side: str
    first: float
    second: float
    graphs: int
    operations: int


def measure(model: str, layers: int, side: str) -> Capture:
    """In this process: build twice, call each once."""
    import torch

    counts: list[int] = []

    def backend(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        counts.append(sum(node.op.startswith("call") for node in gm.graph.nodes))
        return gm.forward

    seconds = []
    for _ in range(2):
        module, inputs = WORKLOADS[model].build("sdpa", layers=layers)
        module(**inputs)
        counts.clear()
        begin = time.process_time()
        if side == "torchglass":
            import torchglass as tg

            tg.reset()
            compiled = tg.compile(module, backend=backend)
        else:
            torch.compiler.reset()
            compiled = torch.compile(module, backend=backend)
        compiled(**inputs)
        seconds.append(time.process_time() - begin)
    return Capture(model, layers, side, *seconds, len(counts), sum(counts))


def in_a_fresh_process(model: str, layers: int, side: str) -> Capture:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    command = [sys.executable, "-W", "ignore", "-m", __spec__.name if __spec__ else "benchmarks.capture_speed"]
    output = subprocess.run(
        [*command, "--one", model, str(layers), side], env=environment, check=True, capture_output=True, text=True
    )
    return Capture(**json.loads(output.stdout.splitlines()[-1]))


def least(rows: list[Capture]) -> Capture:
    best = min(rows, key=lambda row: row.second)
    return Capture(**{**vars(best), "first": min(row.first for row in rows)})


def main() -> None:
    parser = arguments(__doc__)
    parser.set_defaults(sides=list(SIDES), models=["bert"])
    next(action for action in parser._actions if action.dest == "sides").choices = SIDES
    parser.add_argument("--layers", type=int, nargs="+", default=[12])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs=3, metavar=("MODEL", "LAYERS", "SIDE"), help="measure once, in this process")
    chosen = parser.parse_args()
    if chosen.one:
        model, layers, side = chosen.one
        print(json.dumps(vars(measure(model, int(layers), side))))
        return
    byte_compile()
    rows = []
    print(f"{'model':<8} {'layers':>6} {'side':<14} {'first s':>8} {'second s':>9} {'graphs':>7} {'operations':>11}")
    for model in chosen.models:
        for layers in chosen.layers:
            taken: dict[str, list[Capture]] = {side: [] for side in chosen.sides}
            for _ in range(chosen.repeats):  # turn by turn
                for side in chosen.sides:
                    taken[side].append(in_a_fresh_process(model, layers, side))
            for side in chosen.sides:
                row = least(taken[side])
                rows.append(row)
                print(
                    f"{model:<8} {layers:>6} {side:<14} {row.first:>8.2f} {row.second:>9.2f} {row.graphs:>7} "
                    f"{row.operations:>11}"
                )
    write_json(chosen.json, "capture_speed", rows)


if __name__ == "__main__":
    main()
