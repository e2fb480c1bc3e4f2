"""Rooms stay rooms: how large the largest circle of files is that import one another, whatever way they do it.

import-linter looks at what runs when modules load.  Here imports inside functions and under TYPE_CHECKING count too:
they say as loudly that two files cannot be understood apart.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"

LARGEST = {
    "torchglass.bytecode": 1,
    "torchglass.capture": 1,
    "torchglass.decompiler": 1,
}
"""For each package how many files its largest circle may have; 1 is none at all."""


def modules(package: str, source: Path = SOURCE) -> dict[str, Path]:
    """The modules of ``package`` by name; a package's ``__init__`` bears the package's."""
    root = source / package.replace(".", "/")
    names = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def imported(name: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The modules of ``known`` that ``name`` names in an import, wherever it stands."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*package.split(".")[: len(package.split(".")) - node.level + 1]]) if node.level else ""
            target = ".".join(part for part in (base, node.module) if part)
            for alias in node.names:
                whole = f"{target}.{alias.name}"
                if whole in known or target in known:
                    yield whole if whole in known else target


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The sets of modules that all reach one another, largest first."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        work, seen = [start], set()
        while work:
            for other in graph[work.pop()] - seen:
                seen.add(other)
                work.append(other)
        reached[start] = seen
    found = {frozenset({n} | {o for o in reached[n] if n in reached[o]}) for n in graph}
    return sorted((set(c) for c in found), key=len, reverse=True)


def largest_circle(package: str, source: Path = SOURCE) -> set[str]:
    known = modules(package, source)
    return circles({name: set(imported(name, path, known)) - {name} for name, path in known.items()})[0]


@pytest.mark.parametrize("package", LARGEST)
def test_files_do_not_import_in_circles(package):
    circle = largest_circle(package)
    assert len(circle) <= LARGEST[package], f"{len(circle)} files import one another: {', '.join(sorted(circle))}"


def test_imports_of_every_kind_count(tmp_path):
    files = {
        "__init__.py": "",
        "room/__init__.py": "",
        "a.py": "from .room import b",
        "room/b.py": "def f():\n    from .c import g",
        "room/c.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..d import x",
        "d.py": "import p.a",
        "e.py": "from .a import f",
    }
    for name, text in files.items():
        path = tmp_path / "p" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert largest_circle("p", tmp_path) == {"p.a", "p.room.b", "p.room.c", "p.d"}
