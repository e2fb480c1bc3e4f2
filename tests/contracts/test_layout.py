"""House rules that a reader relies on: sizes, docstrings, frozen records."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "torchglass"
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
