"""The command lines of sweeps over PyTorch's databases: what they take, and what they say of their rows."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

from tests.sweep.forked import Row, forked, saved, tallied
from tests.sweep.op_samples import WRONG


def arguments(about: str, timeout: float) -> argparse.ArgumentParser:
    """What every sweep takes."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="glass")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--timeout", type=float, default=timeout)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json")
    return parser


def swept(check: Callable[[str], Row], names: Iterable[str], chosen: argparse.Namespace, counted: str) -> int:
    """Check every name in a process of its own. The exit status: 1 if something was wrong or crashed."""
    rows = []
    for row in forked(check, names, chosen.jobs, chosen.timeout):
        rows.append(row)
        if row["why"]:
            print(row["name"], row.get("counts", ""), row["why"], flush=True)
    counts = tallied(rows)
    print(f"{chosen.backend} {chosen.dtype}: {len(rows)} rows; {counted}: {dict(counts)}")
    saved(rows, counts, chosen.json)
    return 1 if counts[WRONG] or counts["crashed"] else 0
