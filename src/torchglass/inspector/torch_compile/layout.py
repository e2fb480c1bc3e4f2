"""Where things go: a folder per function and resume function, a folder per entry in it.

Input: code objects in the order in which they were compiled.  Output: ``Function`` and ``Entry`` records with paths.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

from ...runtime.store import file_name

_RESUME = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)$")


@dataclass
class Entry:
    """One compilation of a function: ``frame`` is torch.compile's (frame id, compile id).

    ``files`` are the texts of graph_0/ by name, ``text`` that of transformed.py, ``metrics`` torch.compile's times,
    ``targets`` the code of the resume functions that the transformed code calls, by torch.compile's names for them;
    ``names`` those names, and its graph's, with the ones that transformed.py has in their place.
    """

    folder: Path
    frame: tuple[int, int]
    old: CodeType
    new: CodeType
    runs_own_file: bool = False
    guards: Any = None
    targets: dict[str, CodeType] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
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

    def global_name(self) -> str:
        """The name under which torch.compile keeps a resume function among the globals; '' for the user's own."""
        calling = self.parent.walk() if self.parent is not None else []
        for entry in (entry for function in calling for entry in function.entries):
            for name, code in entry.targets.items():
                if code is self.code:
                    return name
        return ""


class Layout:
    """The functions seen so far below ``root``. A decorator's wrapper is one code object for all that it wraps."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.functions: dict[tuple[CodeType, str], Function] = {}
        self.tops: list[Function] = []
        self.planned: dict[tuple[CodeType, str], tuple[Function | None, str]] = {}

    def entry(self, frame: tuple[int, int], old: CodeType, new: CodeType, name: str = "") -> tuple[Function, Entry]:
        function = self.function(old, name)
        entry = Entry(function.folder / f"entry_{len(function.entries)}", frame, old, new)
        function.entries.append(entry)
        return function, entry

    def function(self, code: CodeType, name: str = "") -> Function:
        """The function of that code; ``name`` is what the user knows it by, where the code does not say."""
        known = self.functions.get((code, name))
        if known is not None:
            return known
        parent, folder_name = self.plan(code, name)
        folder = (parent.folder if parent is not None else self.root) / folder_name
        function = self.functions[code, name] = Function(folder_name, folder, code, parent)
        (parent.resumes if parent is not None else self.tops).append(function)
        return function

    def plan(self, code: CodeType, name: str = "", caller: Function | None = None) -> tuple[Function | None, str]:
        """Whose resume function ``code`` is, None for a function of the user's, and the name that its folder gets.

        ``caller`` is the function whose entry calls it.
        """
        if (code, name) not in self.planned:
            match = _RESUME.match(code.co_name)
            parent = None
            if match:
                parent = (caller.parent or caller) if caller is not None else self._parent(code, match[1])
            qualified = name or getattr(code, "co_qualname", code.co_name)
            wanted = f"resume_at_{match[2]}" if match else file_name(qualified.rpartition("<locals>.")[2])
            taken = {other for its_parent, other in self.planned.values() if its_parent is parent}
            unique, n = wanted, 2
            while unique in taken:
                unique, n = f"{wanted}_{n}", n + 1
            self.planned[code, name] = parent, unique
        return self.planned[code, name]

    def _parent(self, code: CodeType, name: str) -> Function | None:
        """The function that was left at the break: the last of that name in that file (resumes nest one deep)."""
        for function in reversed(self.tops):
            same_file = function.code.co_filename == code.co_filename
            if same_file and _letters(function.code.co_name) == _letters(name):
                return function
        return None


def _letters(name: str) -> str:
    """``lambda`` for ``<lambda>``, which torch.compile writes in two ways."""
    return re.sub(r"\W", "_", name).strip("_")
