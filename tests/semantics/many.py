"""Many random programs by seed, plain and compiled, in several processes; what differs is kept as a file.

    python -m tests.semantics.many --count 5000 [--first 0] [--size 20] [--jobs 2] [--backend eager] --to FOLDER

The exit status is 1 if a program differed or a process died. ``python -m tests.semantics.shorten FILE`` makes what
was kept short.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.sweep.forked import Row, forked

import torchglass as tg

from .grammar import program
from .harness import Difference, check

TOGETHER = 50  # programs that one process runs


def run(name: str, size: int, backend: str, folder: str) -> Row:
    """The programs of ``TOGETHER`` seeds from ``name`` on: how many differed."""
    import torch

    torch.set_num_threads(1)
    first, differ = int(name), []
    for seed in range(first, first + TOGETHER):
        text = program(random.Random(seed), size=size)
        path = Path(folder, f"running_{first}.txt")  # what a process that dies was at
        path.write_text(text)
        tg.reset()
        try:
            with tempfile.TemporaryDirectory() as artifacts, tg.prepare_debug(artifacts):
                check(text, backend=backend)
        except Exception as error:
            words = str(error) if isinstance(error, Difference) else f"{type(error).__name__}: {error}"
            Path(folder, f"seed_{seed}.txt").write_text(text)
            Path(folder, f"seed_{seed}.why").write_text(words)
            differ.append(f"seed {seed}: {words[:1500]}")
        path.unlink()
    return {"name": name, "result": "differ" if differ else "alike", "differ": differ}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--size", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for 50 programs")
    parser.add_argument("--to", required=True, help="folder for the programs that differ")
    chosen = parser.parse_args()
    os.makedirs(chosen.to, exist_ok=True)
    names = [str(n) for n in range(chosen.first, chosen.first + chosen.count, TOGETHER)]
    one = partial(run, size=chosen.size, backend=chosen.backend, folder=chosen.to)
    ran = differ = died = 0
    for row in forked(one, names, chosen.jobs, chosen.timeout):
        ran += TOGETHER
        differ += len(row.get("differ", ()))
        died += row["result"] == "crashed"
        for words in row.get("differ", ()):
            print(words, flush=True)
        if row["result"] == "crashed":
            print(f"seeds from {row['name']}: {row['why']}", flush=True)
        print(f"{ran} programs, {differ} differ, {died} processes died", flush=True)
    return int(bool(differ or died))


if __name__ == "__main__":
    sys.exit(main())
