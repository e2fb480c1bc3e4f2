"""House rules that a reader relies on: sizes, docstrings, nothing loose in the package's root."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SOURCE = TESTS.parent / "src" / "torchglass"
FILES = [p for p in sorted(SOURCE.rglob("*.py")) if p.name != "__init__.py"]


def relative(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_a_module_says_what_it_is(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), f"{relative(path)} has no docstring"


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_files_and_functions_stay_readable(path):
    """Past 500 lines a file, past 60 a function asks to be split along an idea; this holds the far ends."""
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 700, f"{relative(path)} has {text.count(chr(10))} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= 100, f"{relative(path)}:{node.lineno}: {node.name} has {length} lines"


ROOT = {
    "__init__.py",  # the public names
    "__main__.py",
    "_native.pyi",
    "api.py",
    "entry_pipeline.py",
    "errors.py",
    "graph_pipeline.py",
    "kept_backward.py",
    "lazy_specialization.py",
    "options.py",
    "pipeline.py",
    "py.typed",
}
"""The public face, its options and errors, the pipelines of a function, an entry and a graph, and what runs the last
beside the program, or for a backward of which an earlier process has kept the graph.
"""


def test_nothing_lies_loose_in_the_root():
    """What else there is has a room that says what it holds, and each room says it."""
    found = {p.name for p in SOURCE.iterdir() if p.is_file() and not p.name.startswith("_native.c")}
    assert found == ROOT
    rooms = [p for p in SOURCE.iterdir() if p.is_dir() and p.name != "__pycache__"]
    for room in rooms:
        assert ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))), room.name


def test_files_of_tests_stay_readable():
    long = {
        path.relative_to(TESTS).as_posix(): lines
        for room in ("capture", "programs")
        for path in (TESTS / room).rglob("*.py")
        if (lines := path.read_text(encoding="utf-8").count("\n")) > 600
    }
    assert not long


def test_tests_of_capture_lie_in_its_rooms():
    """``applications`` holds whole programs of many fields, which are of no one room."""
    rooms = {p.parent.name for p in (SOURCE / "capture").glob("*/__init__.py")}
    assert {p.parent.name for p in (TESTS / "capture").glob("*/__init__.py")} == rooms | {"applications"}
