"""What people are told of an entry that was found is what they were told when it was compiled."""

from __future__ import annotations

from typing import Any

import pytest

from torchglass.cache.told import text_of, value_of
from torchglass.records.loops import Access, Load, Loop
from torchglass.records.origin import Origin
from torchglass.records.sizes import Symbol

from .processes import run

HEAD = "import torch, torchglass as tg\nF = torch.nn.functional\n"


def test_records_as_text() -> None:
    """Equal ones again, one object in the place of one; what no text can say is shown."""
    origin = Origin("model.py", 3, "f")
    load = Load("v0", Access("x", (Symbol("s0", hint=8) * 4 + 1, 1)), "float32", other=float("-inf"))
    loop = Loop("relu", (8, 4), (False, True), (load, load), ("aten.relu",), (origin, origin))
    again, other, names = value_of(text_of((loop, object(), {"a": loop})))
    assert again == loop and again.body[0] is again.body[1] and names["a"] is again
    assert repr(other) == "<object>"


def test_explain_says_what_was_found(tmp_path) -> None:
    text = (
        HEAD + "def f(x):\n    return x + 1\ndef main():\n    compiled = tg.compile(f)\n    compiled(torch.ones(2))\n"
    )
    text += "    return str(tg.explain(compiled)), tg.explain(compiled).to_dict()['entries'][0]\n"
    first, second = run(text, tmp_path / "cache"), run(text, tmp_path / "cache")
    assert "an earlier process" not in first.result[0] and "compiled by an earlier process" in second.result[0]
    assert [row.result[1]["found"] for row in (first, second)] == [False, True]
    assert first.result[1]["kept_in"] == second.result[1]["kept_in"]


TOLD = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
    def forward(self, x):
        y = self.last(F.gelu(self.first(x)).sum(1, keepdim=True))
        return torch.cond(y.sum() > 0, lambda y: y.sin(), lambda y: y.cos() + 1, (y,))
def main():
    compiled = tg.compile(Net(), dynamic=DYNAMIC)
    for n in (4, 6):
        compiled(torch.ones(3, n, 8)).sum().backward()
    told = tg.explain(compiled)
    return told.to_dict(), told.to_html(), str(told)
"""
OF_ONE_PROCESS = {"seconds_by_stage", "folder", "kept_in", "found"}


def _of_entries(told: Any) -> Any:
    if isinstance(told, list):
        return [_of_entries(one) for one in told]
    if isinstance(told, dict):
        return {name: _of_entries(one) for name, one in told.items() if name not in OF_ONE_PROCESS}
    return told


@pytest.mark.parametrize("dynamic", [False, True])
def test_explain_says_of_a_found_entry_what_it_says_of_a_fresh_one(tmp_path, dynamic: bool) -> None:
    """Loops, decisions, kernels, memory, what is saved and computed again, of backwards and of sub-graphs too."""
    text = HEAD + TOLD.replace("DYNAMIC", str(dynamic))
    first, second = run(text, tmp_path / "cache"), run(text, tmp_path / "cache")
    assert second.found and not second.compiled
    fresh, found = (_of_entries(row.result[0]["entries"]) for row in (first, second))
    assert fresh == found
    (*_, graph) = fresh[-1]["graphs"]
    assert graph["decisions"] and graph["memory"]["backward"] and graph["joint"] and graph["recomputed"]
    assert "Kept apart" in first.result[2] and "Kept apart" in second.result[2]


def test_explain_of_an_entry_whose_records_are_damaged(tmp_path) -> None:
    text = HEAD + TOLD.replace("DYNAMIC", "False")
    run(text, tmp_path / "cache")
    for path in (tmp_path / "cache").glob("*/*/graph_0/**/*_fused.json"):
        path.write_text(path.read_text()[:50])
    second = run(text, tmp_path / "cache")
    assert second.found and not second.compiled
    assert second.result[0]["entries"][0]["graphs"][0]["kernels"] == []
