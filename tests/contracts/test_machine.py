"""Stages are told of the machine by their targets: none asks the processor, the environment or PyTorch's backends."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "torchglass"
STAGES = ("lower",)
ASKING = ("has_avx512", "multiplies_faster", "packs_weights", "backends", "environ", "getenv", "cpu_count")


@pytest.mark.parametrize("path", [p for stage in STAGES for p in sorted((SOURCE / stage).rglob("*.py"))], ids=str)
def test_no_stage_asks_the_machine(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        name = getattr(node, "attr", getattr(node, "id", getattr(node, "name", None)))
        assert name not in ASKING, f"{path}:{node.lineno}: {name}"


@pytest.mark.parametrize("path", [p for stage in STAGES for p in sorted((SOURCE / stage).rglob("*.py"))], ids=str)
def test_sizes_are_asked_in_one_place(path):
    """``isinstance(x, int)`` in a rule is of a number that the user wrote, not of a size: those are in ``NUMBERS``."""
    text = path.read_text(encoding="utf-8")
    found = [ast.unparse(n) for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)]
    asked = [call for call in found if call.startswith("isinstance(") and call.endswith(", int)")]
    assert set(asked) <= NUMBERS.get(path.name, set()), f"{path}: {asked}"


NUMBERS = {
    "reductions.py": {"isinstance(dims, int)"},
    "pooling.py": {"isinstance(value, int)"},
    "pointwise.py": {"isinstance(arg, int)"},
    "integers.py": {"isinstance(y, int)"},
}
