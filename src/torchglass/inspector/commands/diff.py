"""Say what changed between two compiles: figures, guards, breaks and files.

python -m torchglass diff before after --text
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterator
from pathlib import Path

from ...runtime import files
from .folders import FunctionFolder, functions

TEXTS = (".py", ".c", ".loops", ".fused")
NOT_COMPARED = ("full_code.py",)  # it repeats what the others say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", help="a folder of artifacts")
    parser.add_argument("after", help="another one")
    parser.add_argument("--text", action="store_true", help="show the changed lines of changed files")


def run(arguments: argparse.Namespace) -> int:
    """0 where nothing but seconds differs, 1 where something does, 2 for a folder without artifacts."""
    sides = []
    for folder in (arguments.before, arguments.after):
        found = {function.name: function for function in functions(folder)}
        if not found:
            print(f"torchglass diff: {folder} has no artifacts (no full_code.py in it)", file=sys.stderr)
            return 2
        sides.append(found)
    before, after = sides
    if len(before) == len(after) == 1:  # one function each: whatever their names
        before, after = {"": next(iter(before.values()))}, {"": next(iter(after.values()))}
    different = False
    for name in dict.fromkeys((*before, *after)):
        if name not in before or name not in after:
            print(f"{name}: only in {arguments.before if name in before else arguments.after}")
            different = True
            continue
        lines = list(_changes(before[name], after[name], arguments.text))
        different |= any(not line.startswith("  seconds") for line in lines)
        print(f"{after[name].name}: " + ("the same" if not lines else ""))
        print("".join(f"{line}\n" for line in lines), end="")
    return int(different)


def _changes(before: FunctionFolder, after: FunctionFolder, text: bool) -> Iterator[str]:
    old, new = before.counts(), after.counts()
    for key in old:
        if old[key] != new[key]:
            yield f"  {key}: {old[key]} -> {new[key]}"
    for title, position in (("guard", "guards"), ("graph break", "breaks")):
        lists = [[row[0] for entry in side.entries() for row in entry[position]] for side in (before, after)]
        yield from (f"  - {title}: {line}" for line in lists[0] if line not in lists[1])
        yield from (f"  + {title}: {line}" for line in lists[1] if line not in lists[0])
    files = [_files(side.path) for side in (before, after)]
    for name in sorted({*files[0], *files[1]}):
        a, b = (side.get(name) for side in files)
        if a is None or b is None:
            yield f"  {name}: only in {before.root if b is None else after.root}"
        elif a != b:
            lines = list(difflib.unified_diff(a.splitlines(), b.splitlines(), lineterm="", n=2))[2:]
            added = sum(line.startswith("+") for line in lines)
            yield f"  {name}: {added} lines added, {sum(line.startswith('-') for line in lines)} removed"
            if text:
                yield from (f"    {line}" for line in lines)


def _files(folder: Path) -> dict[str, str]:
    found = {}
    for path in files.below(folder):
        if path.suffix in TEXTS and path.name not in NOT_COMPARED:
            found[path.relative_to(folder).as_posix()] = path.read_text(encoding="utf-8", errors="replace")
    return found
