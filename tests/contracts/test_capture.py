"""Capture's files are written against a protocol: it stays small, and all that files below call is defined above."""

import ast
import inspect
from pathlib import Path
from types import FunctionType

import pytest

from torchglass.capture import protocol, run
from torchglass.capture.interp.machine import Machine

SOURCE = Path(run.__file__).parent
MOST_FIELDS, MOST_VERBS = 20, 30


def verbs(cls):
    return {name for name, value in vars(cls).items() if isinstance(value, FunctionType) and not name.startswith("_")}


def test_the_machine_stays_small():
    """What a feature keeps of a capture is a class of its own (``Machine.state``), what it does stands in its file."""
    assert len(vars(Machine(run.run))) <= MOST_FIELDS
    assert len(verbs(Machine)) <= MOST_VERBS
    assert len(protocol.Machine.__annotations__) <= MOST_FIELDS


def test_the_protocol_says_what_the_machine_can():
    assert verbs(protocol.Machine) == verbs(Machine)
    for name in verbs(Machine):
        said, done = (list(inspect.signature(vars(cls)[name]).parameters) for cls in (protocol.Machine, Machine))
        assert said == done, name


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_nobody_asks_the_machine_for_more(path):
    """Handlers are not annotated, so mypy does not see what they call."""
    known = verbs(protocol.Machine) | set(protocol.Machine.__annotations__)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "m":
            assert node.attr in known, f"{path}:{node.lineno}: m.{node.attr}"


def test_what_is_declared_is_defined():
    assert [d.__module__ + "." + d.__name__ for d in protocol.DECLARED if d.body is None] == []


def test_nothing_is_defined_twice():
    with pytest.raises(ValueError, match="defined already"):
        protocol.DECLARED[0].defined(lambda *args: None)


@pytest.mark.parametrize("path", sorted((SOURCE / "polyfills").glob("*.py")), ids=lambda path: path.name)
def test_polyfills_import_nothing_of_ours(path):
    """They are interpreted as the program's own code is; ``torch_compat`` says what PyTorch's functions are called."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            ours = node.level > 1 or str(node.module).startswith("torchglass")
            assert not ours or str(node.module).endswith("torch_compat"), ast.unparse(node)
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("torchglass") for alias in node.names), ast.unparse(node)
