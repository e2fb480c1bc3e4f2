"""Kept entries: what there is, what is damaged, what to delete, and why a process did not find one.

python -m torchglass cache list
python -m torchglass cache verify
python -m torchglass cache prune --days 7 --bytes 500000000
python -m torchglass cache why-miss BertModel.forward
python -m torchglass cache why-miss FOLDER OTHER
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..process.arguments import require_path
from ..runtime import pruning
from . import folder, roots
from .folder import Damaged, Kept


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=[*_COMMANDS])
    parser.add_argument("names", nargs="*", help="for why-miss: a function, or two folders")
    parser.add_argument("--cache", help=f"the folder; else ${roots.ENVIRONMENT}, or the user's")
    parser.add_argument("--days", type=float, default=folder.MAX_AGE_DAYS, help="for prune: the age of the oldest")
    parser.add_argument("--bytes", type=int, default=folder.MAX_BYTES, help="for prune: the most that are left")


def run(arguments: argparse.Namespace) -> int:
    root = roots.root()
    base = Path(arguments.cache) if arguments.cache else root and root.path
    if base is None:
        print(f"no folder: set {roots.ENVIRONMENT}, or name one with --cache", file=sys.stderr)
        return 2
    require_path("--cache", base)
    if not base.is_dir():
        print(f"{base} is not a folder", file=sys.stderr)
        return 2
    return int(_COMMANDS[arguments.what](base, arguments))


def _list(base: Path, arguments: argparse.Namespace) -> int:
    for place in _places(base):
        entries = folder.entries(place)
        size = sum(pruning.bytes_below(entry) for entry in entries)
        key = _key(place, "program.json")
        used = max((entry.stat().st_mtime for entry in entries), default=0.0)
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(used))
        entry = "entry" if len(entries) == 1 else "entries"
        print(f"{place.name}: {key.get('function', '?')}, {len(entries)} {entry}, {size:,} bytes, used {when}")
    return 0


def _verify(base: Path, arguments: argparse.Namespace) -> int:
    damaged = 0
    for place in _places(base):
        for path in folder.entries(place):
            for inner in (path, *sorted(path.glob("graph_0/kept_*"))):
                try:
                    kept = Kept(inner)
                    for name in kept.names():
                        kept.content(name)
                except Damaged as error:
                    damaged += 1
                    print(f"damaged: {error}")
    print(f"{damaged} damaged" if damaged else "all files are as they were written")
    return 1 if damaged else 0


def _prune(base: Path, arguments: argparse.Namespace) -> int:
    for path in folder.prune(base, arguments.days, arguments.bytes):
        print(f"deleted {path}")
    return 0


def _why_miss(base: Path, arguments: argparse.Namespace) -> int:
    """The factors in which two keys differ: of two folders, or of a function's newest and each of the others."""
    names = arguments.names
    if len(names) == 2:
        pairs = [tuple(path if path.is_dir() else base / path for path in map(Path, names))]
        for path in pairs[0]:
            if not (path / "program.json").is_file():
                print(f"{path} is not the folder of a key", file=sys.stderr)
                return 2
    elif len(names) == 1:
        found = [place for place in _places(base) if _key(place, "program.json").get("function", "").endswith(names[0])]
        if not found:
            print(f"no entries of {names[0]} are kept in {base}")
            return 1
        newest, *others = sorted(found, key=lambda place: place.stat().st_mtime, reverse=True)
        pairs = [(newest, other) for other in others]
        if not pairs:
            print(f"entries of {names[0]} are kept under one key only, {newest.name}: what missed failed a guard, or")
            print("relies on something that has changed; the log at level DEBUG says what (torchglass.cache)")
    else:
        print("why-miss takes a function, or two folders", file=sys.stderr)
        return 2
    for one, other in pairs:
        print(f"{one.name} and {other.name}:")
        for line in differences(one, other) or ["no factor differs"]:
            print(f"  {line}")
    return 0


def differences(one: Path, other: Path) -> list[str]:
    """The factors of the keys of two folders that differ, a line each."""
    lines = []
    for file in ("program.json", "machine.json"):
        mine, theirs = _key(one, file), _key(other, file)
        for name in sorted({*mine, *theirs}):
            if mine.get(name) != theirs.get(name):
                lines.append(f"{name}: {json.dumps(mine.get(name))} and {json.dumps(theirs.get(name))}")
    return lines


def _places(base: Path) -> Iterator[Path]:
    return (path for path in sorted(base.iterdir()) if (path / "program.json").is_file())


def _key(place: Path, file: str) -> dict[str, Any]:
    try:
        key = json.loads((place / file).read_text())
    except (OSError, ValueError):
        return {}
    return key if isinstance(key, dict) else {}


_COMMANDS = {"list": _list, "verify": _verify, "prune": _prune, "why-miss": _why_miss}
