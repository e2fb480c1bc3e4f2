"""The rows of a sweep as a page: counts, what breaks and why, what is slow, what was not tried."""

from __future__ import annotations

import argparse
import json
import sys

from .compared import Row

SLOW = 10.0  # seconds of capture and first call that deserve a line


def counts(rows: list[Row]) -> dict[str, int]:
    return {r: sum(row["result"] == r for row in rows) for r in sorted({row["result"] for row in rows})}


def finish(rows: list[Row], chosen: argparse.Namespace, module: str) -> int:
    """Print the counts, write the files that were asked for, and give the exit status."""
    print(counts(rows))
    if chosen.markdown:
        with open(chosen.markdown, "w") as file:
            file.write(markdown(rows, f"python -m tests.sweep.{module} " + " ".join(sys.argv[1:])))
    if chosen.json:
        with open(chosen.json, "w") as file:
            json.dump(rows, file, indent=1)
    return 1 if any(row["result"] in ("wrong", "crashed") for row in rows) else 0


def markdown(rows: list[Row], command: str) -> str:
    found = counts(rows)
    tried = len(rows) - found.get("skipped", 0)
    lines = [
        f"`{command}`",
        "",
        f"{tried} built and ran in eager: " + ", ".join(f"{n} {r}" for r, n in found.items()),
        "",
    ]
    for result in ("crashed", "wrong", "breaks"):
        some = [row for row in rows if row["result"] == result]
        if some:
            lines += [f"## {result.capitalize()}", "", "| architecture | why |", "|---|---|"]
            lines += [f"| {row['name']} | {_cell(row.get('why') or row.get('reason', ''))} |" for row in some] + [""]
    noted = [row for row in rows if "note" in row]
    lines += [f"{row['name']} {row['note']}." for row in noted] + [""] * bool(noted)
    slow = sorted((row for row in rows if row.get("seconds", 0) > SLOW), key=lambda row: -row["seconds"])
    if slow:
        lines += [f"## Over {SLOW:.0f} s to capture", ""]
        lines += [", ".join(f"{row['name']} {row['seconds']:.0f} s" for row in slow), ""]
    skipped = [row["name"] for row in rows if row["result"] == "skipped"]
    if skipped:
        lines += ["## Not built from a tiny configuration", "", ", ".join(skipped), ""]
    return "\n".join(lines)


def _cell(text: object) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")[:400]
