"""Where things go: a folder per function and resume function, a folder per entry in it.

Input: code objects in the order in which they were compiled.  Output: ``Function`` and ``Entry`` records with paths.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

_RESUME = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)$")


@dataclass
class Entry:
    """One compilation of a function: ``frame`` is torch.compile's (frame id, compile id).

    ``files`` are the texts of graph_0/ by name, ``text`` that of transformed.py, ``metrics`` torch.compile's times,
    ``targets`` the code of the resume functions that the transformed code calls, by name.
    """

    folder: Path
    frame: tuple[int, int]
    old: CodeType
    new: CodeType
    runs_own_file: bool = False
    guards: Any = None
    targets: dict[str, CodeType] = field(default_factory=dict)
    events: list[tuple[str, str, str]] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    text: str = ""
    metrics: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    globals: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class Function:
    """A function of the user or what is left of it after a graph break."""

    name: str
    folder: Path
    code: CodeType
    parent: Function | None = None
    entries: list[Entry] = field(default_factory=list)
    resumes: list[Function] = field(default_factory=list)
    source: str = ""

    def walk(self) -> list[Function]:
        return [self, *[f for r in self.resumes for f in r.walk()]]


class Layout:
    """The functions seen so far below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.functions: dict[CodeType, Function] = {}
        self.tops: list[Function] = []

    def entry(self, frame: tuple[int, int], old: CodeType, new: CodeType) -> tuple[Function, Entry]:
        function = self.function(old)
        entry = Entry(function.folder / f"entry_{len(function.entries)}", frame, old, new)
        function.entries.append(entry)
        return function, entry

    def function(self, code: CodeType) -> Function:
        known = self.functions.get(code)
        if known is not None:
            return known
        match = _RESUME.match(code.co_name)
        parent = self._parent(code, match[1]) if match else None
        name = f"resume_at_{match[2]}" if match else _clean(code.co_name)
        siblings = parent.resumes if parent is not None else self.tops
        taken = {f.folder.name for f in siblings}
        unique, n = name, 2
        while unique in taken:
            unique, n = f"{name}_{n}", n + 1
        folder = (parent.folder if parent is not None else self.root) / unique
        function = self.functions[code] = Function(unique, folder, code, parent)
        siblings.append(function)
        return function

    def _parent(self, code: CodeType, name: str) -> Function | None:
        """The function that was left at the break: the last of that name in that file (resumes nest one deep)."""
        for function in reversed(self.tops):
            same_file = function.code.co_filename == code.co_filename
            if same_file and _clean(function.code.co_name) == _clean(name):
                return function
        return None


def _clean(name: str) -> str:
    return re.sub(r"\W", "_", name).strip("_") or "function"
