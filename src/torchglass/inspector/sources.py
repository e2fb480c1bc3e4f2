"""The user's source for reports: origins in, the functions they lie in out, line by line.

    source = Sources()
    source.key(Origin("/app/model.py", 12, "forward"))        # "0:12"
    source.pieces()[0]                                          # the file's name and the lines of ``forward``

A file of thousands of lines is shown by the functions that took part, not whole.
"""

from __future__ import annotations

import linecache
import os
import re
from typing import Any

from ..records.origin import UNKNOWN, Origin

_DEF = re.compile(r"\s*(async\s+def|def|class)\b")


class Sources:
    """Numbers the files that origins name, and remembers the lines."""

    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        self.lines: dict[int, set[int]] = {}

    def key(self, origin: Origin, shown: bool = True) -> str:
        """``file:line`` with the file's number; '' for an origin that is not known. ``shown``: its function is."""
        if origin == UNKNOWN or origin.line <= 0:
            return ""
        number = self.files.setdefault(origin.file, len(self.files))
        lines = self.lines.setdefault(number, set())
        if shown:
            lines.add(origin.line)
        return f"{number}:{origin.line}"

    def pieces(self) -> list[dict[str, Any]]:
        """For each file its name, path, and the shown lines as (number, text)."""
        found = []
        for path, number in self.files.items():
            text = [line.rstrip("\n") for line in linecache.getlines(path)]
            shown = sorted(_shown(text, self.lines[number]))
            rows = [(n, text[n - 1] if n <= len(text) else "") for n in shown]
            found.append({"file": number, "name": os.path.basename(path), "path": path, "lines": rows})
        return found


def _shown(text: list[str], touched: set[int]) -> set[int]:
    """The lines of every function that has a touched line."""
    shown: set[int] = set()
    for line in sorted(touched):
        if line not in shown:
            shown |= set(_function_around(text, line))
    return shown | touched


def _function_around(text: list[str], line: int) -> range:
    """The lines of the innermost function around ``line``, its decorators included; by indentation alone."""
    if not 1 <= line <= len(text):
        return range(line, line + 1)
    first = line
    decorated = text[line - 1].lstrip().startswith("@")
    while decorated and first < len(text) and not _DEF.match(text[first - 1]):
        first += 1
    if not _DEF.match(text[first - 1]):
        depth = _indent(text[line - 1])
        while first > 1 and not (_DEF.match(text[first - 1]) and _indent(text[first - 1]) < depth):
            first -= 1
    depth, last = _indent(text[first - 1]), max(first, line)
    while last < len(text) and (_indent(text[last]) > depth or text[last].lstrip()[:1] == ")"):  # a blank line is deep
        last += 1
    while first > 1 and text[first - 2].lstrip().startswith("@"):
        first -= 1
    while last > line and not text[last - 1].strip():
        last -= 1
    return range(first, last + 1)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip()) if line.strip() else 1_000_000
