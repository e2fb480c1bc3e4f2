"""What stages from loops to code may not do: tell sizes by their type, ask the machine, edit printed code.

Sizes are asked through ``records/sizes.py``, the machine through ``Targets``, and code is printed from statements once.
"""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Finds = Callable[[ast.AST], Iterator[ast.AST]]
SOURCE = Path(__file__).parents[2] / "src" / "torchglass"
FOLDERS = ("records", "lower", "fuse", "schedule", "codegen")
STAGES = [folder for folder in FOLDERS if folder != "records"]

ASKS_OF_ARGUMENTS = {
    "records/render_graph.py": "constants of a graph as text",
    "records/size_sources.py": "numbers among sources",
    "records/symbolic_ints.py": "sizes as PyTorch has them",
    "lower/values.py": "numbers among operands",
    "lower/rules/creation.py": "numbers that a tensor is made of",
    "lower/rules/integers.py": "an exponent",
    "lower/rules/pointwise.py": "numbers among operands",
    "lower/rules/pooling.py": "one number for all dimensions of a window",
    "lower/rules/reductions.py": "one dimension for a list of them",
}
"""Files that tell Python arguments of ATen operators by type, and which."""
READS_ITS_OWN = ("codegen/prelude.py",)
"""Looks for definitions in prelude.h, which people write."""
MACHINE = ("has_avx512", "os.environ", "os.getenv", "torch.backends", "torch.cuda", "torch.get_num_threads")


def files(folder: str) -> list[Path]:
    return sorted((SOURCE / folder).rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def places(path: Path, finds: Finds) -> list[str]:
    """Where something is found in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [f"{relative(path)}:{getattr(node, 'lineno', 0)}: {ast.unparse(node)}" for node in finds(tree)]


def asks_for_integers(tree: ast.AST) -> Iterator[ast.AST]:
    """``isinstance(x, int)``, with other types too, and ``type(x) is int``."""
    for node in ast.walk(tree):
        types: list[ast.expr] = []
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            types = node.args[1:]
        elif isinstance(node, ast.Compare) and ast.unparse(node.left).startswith("type("):
            types = node.comparators
        if any(isinstance(n, ast.Name) and n.id == "int" for one in types for n in ast.walk(one)):
            yield node


def asks_the_machine(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and ast.unparse(node) in MACHINE:
            yield node


def edits_text(tree: ast.AST) -> Iterator[ast.AST]:
    """Regular expressions, and ``text.replace(old, new)``; ``dataclasses.replace`` takes a record and names."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner = ast.unparse(node.func.value)
        if owner == "re" or (node.func.attr == "replace" and owner != "dataclasses" and len(node.args) > 1):
            yield node


@pytest.mark.parametrize("folder", FOLDERS)
def test_sizes_are_not_told_by_their_type(folder: str) -> None:
    asked = [path for path in files(folder) if relative(path) not in (*ASKS_OF_ARGUMENTS, "records/sizes.py")]
    assert not [place for path in asked for place in places(path, asks_for_integers)]


@pytest.mark.parametrize("file", ASKS_OF_ARGUMENTS)
def test_exceptions_are_needed(file: str) -> None:
    assert places(SOURCE / file, asks_for_integers), f"{file} tells nothing by type any more"


@pytest.mark.parametrize("folder", STAGES)
def test_no_stage_asks_the_machine(folder: str) -> None:
    assert not [place for path in files(folder) for place in places(path, asks_the_machine)]


@pytest.mark.parametrize("folder", ["codegen"])
def test_printed_code_is_not_edited(folder: str) -> None:
    printing = [path for path in files(folder) if relative(path) not in READS_ITS_OWN]
    assert not [place for path in printing for place in places(path, edits_text)]


@pytest.mark.parametrize(
    "text, finds, count",
    [
        ("isinstance(size, int)", asks_for_integers, 1), ("isinstance(x, (float, int))", asks_for_integers, 1),
        ("type(x) is int", asks_for_integers, 1), ("isinstance(x, str | int)", asks_for_integers, 1),
        ("isinstance(x, Integer); int(x)", asks_for_integers, 0),
        ("os.environ['A']", asks_the_machine, 1), ("torch.backends.mkl.is_available()", asks_the_machine, 1),
        ("re.sub('a', 'b', text)", edits_text, 1), ("text.strip().replace('a', 'b')", edits_text, 1),
        ("replace(loop, dims=dims); dataclasses.replace(loop, dims=dims)", edits_text, 0),
    ],
)  # fmt: skip
def test_what_is_looked_for(text: str, finds: Finds, count: int) -> None:
    assert len(list(finds(ast.parse(text)))) == count
