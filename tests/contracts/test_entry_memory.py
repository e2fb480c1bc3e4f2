"""What an entry keeps in memory once it runs: code, guards, kernels, packed records; no graphs."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

import torchglass as tg
from torchglass.compilation import graph_sharing
from torchglass.records.guards import Guard, TensorMeta
from torchglass.records.origin import UNKNOWN, Origin
from torchglass.records.packed import Packed, PackedField
from torchglass.records.sources import Local
from torchglass.runtime.equal_guards import with_those_of


class Layers(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16)) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


def _alive() -> Counter[type]:
    for _ in range(2):
        gc.collect()
    return Counter(kind for kind in map(type, gc.get_objects()) if kind in (torch.fx.Node, FakeTensor, Guard))


def test_an_entry_keeps_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_sharing, "MOST_NODES", 0)
    model = Layers(8)
    compiled = tg.compile(model)
    with torch.no_grad():
        for size in (2, 3):
            compiled(torch.ones(size, 16))
        before = _alive()
        tracemalloc.start()
        for size in range(4, 8):
            torch.testing.assert_close(compiled(torch.ones(size, 16)), model(torch.ones(size, 16)))
        after = _alive()
        grown, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert after[torch.fx.Node] == before[torch.fx.Node]
    assert after[FakeTensor] <= before[FakeTensor]
    assert after[Guard] - before[Guard] < 4 * 10
    assert grown < 4 * 400_000  # of Python's; it was a megabyte each


def test_records_of_equal_graphs_go_when_newer_ones_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_sharing, "MOST_NODES", 10)
    a, b, c = (graph_sharing.Shared(name) for name in "abc")
    for shared in (a, b, c):
        shared.sides["forward", None, ()] = None  # type: ignore[index, assignment]
    graph_sharing.keep(a, 5)
    graph_sharing.keep(b, 5)
    graph_sharing.keep(a, 5)
    graph_sharing.keep(c, 5)
    assert (bool(a.sides), bool(b.sides), bool(c.sides)) == (True, False, True)


# --- packed records ---------------------------------------------------------------------------------------------------
@dataclass
class Row:
    text: PackedField[str] = PackedField("")
    rows: PackedField[tuple[Any, ...]] = PackedField(())


def test_packed_fields_read_as_they_were_written() -> None:
    origin, tensor = Origin("a.py", 3, "f"), torch.ones(2)
    row = Row("x" * 1000, (origin, UNKNOWN, torch.float32, tensor, torch.ops.aten.add.Tensor, {"b": [1, True, b"c"]}))
    assert isinstance(vars(row)["text"], Packed) and vars(row)["text"].size < 100
    assert row.text == "x" * 1000 and Row().text == "" and Row().rows == ()
    found = row.rows
    assert found[0] == origin and found[1] is UNKNOWN and found[2] is torch.float32
    assert found[3] is tensor and found[4] is torch.ops.aten.add.Tensor
    assert found[5] == {"b": [1, True, b"c"]}
    row.text += "y"
    assert row.text == "x" * 1000 + "y" and row == row and repr(row).startswith("Row(text='xxx")


# --- equal guards -----------------------------------------------------------------------------------------------------
UNEQUAL = [(1, True), (0.0, -0.0), (1, 1.0), ((1,), (True,)), (["a"], ("a",)), ([], {})]


@pytest.mark.parametrize("first, second", UNEQUAL)
def test_guards_that_compare_equal_and_are_not_stay_apart(first: Any, second: Any) -> None:
    known, new = Guard(Local("n"), "constant", first), Guard(Local("n"), "constant", second)
    assert with_those_of([known], [new])[0] is new


def test_equal_guards_are_one_object() -> None:
    def guards() -> list[Guard]:
        meta = TensorMeta(torch.Tensor, torch.float32, torch.device("cpu"), (2, 3), (3, 1), False)
        values = [("constant", "ab"), ("dict_keys", ["a", "b"]), ("tensor", meta), ("type", int), ("same", Local("y"))]
        return [Guard(Local("x"), check, value) for check, value in values]

    known, new = guards(), guards()
    found = with_those_of(known, new)
    assert found == tuple(new) and all(a is b for a, b in zip(found, known))
