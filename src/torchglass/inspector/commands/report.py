"""Say what a folder of artifacts holds, function by function, and where each report.html is.

python -m torchglass report glass --open
"""

from __future__ import annotations

import argparse
import sys
import webbrowser

from .. import show
from .folders import REPORT, FunctionFolder, functions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="a folder of artifacts, or of one function")
    parser.add_argument("--open", action="store_true", help="open the pages in a browser")


def run(arguments: argparse.Namespace) -> int:
    found = functions(arguments.folder)
    if not found:
        print(f"torchglass report: {arguments.folder} has no artifacts (no full_code.py in it)", file=sys.stderr)
        return 1
    for function in found:
        _print(function)
        if arguments.open and function.data:
            webbrowser.open((function.path / REPORT).absolute().as_uri())
    return 0


def _print(function: FunctionFolder) -> None:
    print(function.summary())
    for part in function.data.get("functions", ()):
        for entry in part["entries"]:
            seconds = sum(event[2] for event in entry["events"])
            name = part["path"].rstrip("/") or part["name"]
            print(f"  {name} entry {entry['index']}: {show.count(len(entry['guards']), 'guard')}, "
                  f"{show.seconds(seconds)}, {entry['path']}")  # fmt: skip
            for reason, line, hint in entry["breaks"]:
                print(f"    graph break{_at(function, line)}: {reason}" + (f"; {hint}" if hint else ""))
        for guard, old, new, _ in part["recompiles"]:
            print(f"  recompiled: {guard}: was {old}, is {new}")
        for reason, line in part["fallbacks"]:
            print(f"  runs eagerly{_at(function, line)}: {reason}")


def _at(function: FunctionFolder, key: str) -> str:
    file, _, line = key.partition(":")
    return f" at {function.data['files'][int(file)]['name']}:{line}" if file else ""
