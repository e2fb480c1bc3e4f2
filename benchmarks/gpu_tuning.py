"""Other tiles, warps and stages than a kernel was given, timed: what ``records.tuned.scheduling`` is chosen by.

    python -m benchmarks.gpu_tuning softmax:16384:forward layernorm:1024:backward --show 4
    python -m benchmarks.gpu_tuning sum:16384x768 row:resnet --budget 200

Of kernels of ``benchmarks.gpu_kernels`` by name, columns and part, of column sums by shape, of a row of
``benchmarks.gpu``. Every kernel is started with the arguments of its first call and with an empty cache: the median of
20 runs in microseconds, its own configuration first. Blocks are varied by powers of two, up to four times, warps
twice, stages from one to four where a program walks its rows. A kernel that was seen is not tried again.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import torchglass as tg
from torchglass.runtime.triton_kernels import Compiling, Configuration, capability
from torchglass.runtime.triton_tune import WALK, alone, alternatives, stages_of

from . import gpu_kernels
from .gpu_models import ROWS
from .gpu_step import step

RUNS = 20
CACHE_BYTES = 64 << 20
"""More than the second cache holds."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", help="name:columns:part, sum:ROWSxCOLUMNS or row:NAME")
    parser.add_argument("--show", type=int, default=4, help="alternatives to show of each kernel")
    parser.add_argument("--budget", type=float, default=300, help="seconds, after which no kernel is tried")
    chosen = parser.parse_args(arguments)
    tuning = Tuning(chosen.show, time.monotonic() + chosen.budget)
    result = Compiling.result
    Compiling.result = lambda self: {n: Tuned(tuning, self, n, k) for n, k in result(self).items()}  # type: ignore
    tuning.result = result
    for case in chosen.cases:
        print(case, flush=True)
        tg.reset()
        call(case)
    return 0


def call(case: str) -> None:
    """Compile and run what a case names, once."""
    name, _, rest = case.partition(":")
    if name == "row":
        row = ROWS[rest]
        made = row.build("cuda")
        step(row, made, tg.compile(made.model))
    elif name == "sum":
        rows, columns = map(int, rest.split("x"))
        with torch.no_grad():
            tg.compile(lambda x: x.sum(0))(torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16))
    else:
        columns, part = rest.split(":")
        kernel = gpu_kernels.KERNELS[name]
        sizes = gpu_kernels.VOCABULARY if kernel.sizes == "vocabulary" else gpu_kernels.SIZES
        inputs = gpu_kernels.inputs_of(kernel, sizes[int(columns)], int(columns), "cuda", 0)
        run = gpu_kernels.forward if part == "forward" else gpu_kernels.both
        run(tg.compile(kernel.fn), inputs)


class Tuning:
    """What is tried, and what was."""

    def __init__(self, show: int, end: float) -> None:
        self.show, self.end = show, end
        self.seen: set[str] = set()
        self.flush = torch.empty(CACHE_BYTES, dtype=torch.uint8, device="cuda")
        self.result: Callable[[Compiling], dict[str, Any]]

    def try_all(self, compiling: Compiling, name: str, args: tuple[Any, ...], points: Any) -> None:
        """Time a kernel's alternatives, and print the best."""
        text = alone(compiling.text, name)
        given = compiling._configurations[name]
        key = re.sub(r"\w+_ptr", "p", text.replace(name, "kernel")) + str(given)
        if key in self.seen or time.monotonic() > self.end:
            return
        self.seen.add(key)
        tried = list(alternatives(given, text, points if isinstance(points, tuple) else (points,)))
        asked = [self._asked(text, name, *one) for one in tried]
        timed = []
        for one, (configuration, stages) in zip(asked, tried):
            try:
                kernel = self.result(one)[name]
            except Exception:  # more registers or shared memory than there are
                continue
            timed.append((self._microseconds(kernel, args, points), said(configuration, stages)))
        own = said(given, stages_of(text))
        print(f"  {name} of {points} points: {own} {[t for t, s in timed if s == own][:1]} of {len(timed)}")
        for taken, what in sorted(timed)[: self.show]:
            print(f"    {taken:9.1f} us  {what}", flush=True)

    @staticmethod
    def _asked(text: str, name: str, configuration: Configuration, stages: int) -> Compiling:
        table = f"CONFIGURATIONS = {{{name!r}: {configuration!r}}}\n"
        ahead = WALK.sub(rf"for start in tl.range(\1, num_stages={stages})", text)
        path = Path(tempfile.mkdtemp(prefix="gpu_tuning_")) / "kernels.py"
        path.write_text(ahead + table)
        return Compiling(path, ahead + table, False, capability())

    def _microseconds(self, kernel: Callable[..., None], args: tuple[Any, ...], points: Any) -> float:
        events = [[torch.cuda.Event(enable_timing=True) for _ in "ab"] for _ in range(RUNS + 2)]
        for begin, end in events:
            self.flush.zero_()
            begin.record()
            kernel(*args, points=points)
            end.record()
        torch.cuda.synchronize()
        return 1000 * statistics.median(begin.elapsed_time(end) for begin, end in events[2:])


class Tuned:
    """A kernel that is tried in other ways before it first runs."""

    def __init__(self, tuning: Tuning, compiling: Compiling, name: str, kernel: Callable[..., None]) -> None:
        self.tuning, self.compiling, self.name, self.kernel = tuning, compiling, name, kernel
        self.tried = False

    def __call__(self, *args: Any, points: Any = ()) -> None:
        if not self.tried:
            self.tried = True
            self.tuning.try_all(self.compiling, self.name, args, points)
        self.kernel(*args, points=points)


def said(configuration: Configuration, stages: int) -> str:
    blocks = {k: v for k, v in configuration.items() if k not in ("signature", "grid")}
    return f"{' '.join(f'{k} {v}' for k, v in blocks.items())} stages {stages}"


if __name__ == "__main__":
    raise SystemExit(main())
