"""The registry of meanings: who writes it, what the command says of it, and that the docs' page is current."""

import ast
import sys
from pathlib import Path

import pytest
import torch

from torchglass.__main__ import main
from torchglass.capture.meanings import registry
from torchglass.capture.who_answers import page

ROOT = Path(__file__).parents[2]
TABLES = {name for name, value in vars(registry).items() if isinstance(value, registry.Table)}
WRITES = {"update", "setdefault", "pop", "popitem", "clear", "__setitem__", "__delitem__", "__ior__"}


def named(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def written(tree: ast.AST):
    """Line and name of each table that a module writes to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield node.lineno, named(node.value)
        elif isinstance(node, ast.AugAssign):
            yield node.lineno, named(node.target)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WRITES:
            yield node.lineno, named(node.func.value)


def test_nobody_else_writes_the_tables():
    found = [
        f"{path.name}:{line}: {name}"
        for path in sorted((ROOT / "src" / "torchglass" / "capture").rglob("*.py"))
        if path.name != "registry.py"
        for line, name in written(ast.parse(path.read_text(encoding="utf-8")))
        if name in TABLES
    ]
    assert len(TABLES) == 9 and not found


@pytest.mark.parametrize(
    "enter",
    [
        lambda: registry.handles(sorted)(len),
        lambda: registry.answers(1, torch.jit.is_scripting),
        lambda: registry.folded(list),
        lambda: registry.method(list, name="append")(len),
        lambda: registry.protocols({"__len__": len}),
        lambda: registry.rule(type)(len),
        lambda: registry.higher_order("cond")(len),
    ],
)
def test_what_is_entered_twice_is_an_error(enter):
    with pytest.raises(ValueError, match=r"already entered at .*capture.*\.py:\d+"):
        enter()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("torch.Tensor.add", "a node of the graph"),
        ("torch.nn.functional.relu", "a node of the graph"),
        ("torch.Tensor.item", "breaks the graph: it asks for data"),
        ("sorted", "a handler, src/torchglass/capture/meanings/builtins.py:"),
        ("list.append", "a handler, src/torchglass/capture/meanings/of_types/lists.py:"),
        ("copy.deepcopy", "a handler, src/torchglass/capture/meanings/copying.py:"),
        ("itertools.chain", "followed into Python of ours, `chain`, src/torchglass/capture/polyfills/itertools.py:"),
        ("math.sqrt", "computed while capturing"),
        ("json.dumps", "computed while capturing, src/"),
        ("logging.Logger.info", "followed into its Python code, "),
        ("torch.compiler.is_exporting", "always False, "),
        ("open", "breaks the graph: `open()`, which looks at or changes what no graph holds"),
        ("datetime.datetime.now", "breaks the graph: `datetime.now()`"),
        ("bytearray", "breaks the graph: making an instance of `builtins.bytearray`"),
        ("torch.nn.Linear", "an object of ours, made by its Python code, "),
        ("torch.cond", "a handler, src/torchglass/capture/torch_api/higher_order.py:"),
    ],
)
def test_who_answers(name, said, capsys):
    assert main(["who-answers", name]) == 0
    assert capsys.readouterr().out.startswith(f"{name}: {said}")


@pytest.mark.parametrize("name", ["no_such.thing", "math.nothing", "math.pi", "", "..", "list."])
def test_what_is_no_function_is_named(name, capsys):
    assert main(["who-answers", "sorted", name]) == 2
    out, error = capsys.readouterr()
    assert out.startswith("sorted: ") and error.startswith(f"torchglass who-answers: {name!r}")


def test_the_page_is_current():
    text = (ROOT / "docs" / "meanings.md").read_text(encoding="utf-8")
    version = f"Python {sys.version_info[0]}.{sys.version_info[1]} and torch {torch.__version__.partition('+')[0]}"
    if version not in text:
        pytest.skip(f"the page is one of another version than {version}")
    assert page() == text, "python -m torchglass who-answers --page > docs/meanings.md"
