"""``tg.explain(fn)(*args)`` of a real compile holds every item that a reader looks for, in all three forms."""

import json

import pytest
import torch

import torchglass as tg


def toy(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return torch.softmax(x * b, -1) * x.sum(0)


@pytest.fixture(scope="module")
def explained():
    tg.reset()
    a, b = torch.randn(8, 16, requires_grad=True), torch.ones(8, 16)
    explanation = tg.explain(tg.compile(toy))(a, b)
    explanation.result.sum().backward()
    return explanation(a.double(), -b)


def rows(report, *names):
    """What is found below ``names`` in a report as data, through all lists."""
    found = [report]
    for name in names:
        found = [row[name] for row in found]
        found = [item for row in found for item in (row if isinstance(row, list) else [row])]
    return found


def test_everything_the_data_holds(explained):
    report = explained.to_dict()
    assert json.loads(json.dumps(report)) == report
    entries = [*rows(report, "entries"), *rows(report, "resumes", "entries")]
    graphs = [graph for entry in entries for graph in entry["graphs"]]
    assert len(report["entries"]) == 2 and len(graphs) >= 3
    assert all(graph["operations"] and "def forward" in graph["captured"] for graph in graphs)
    (found, _) = rows(report, "entries", "breaks")
    assert "branch" in found["reason"] and "test_explain.py:13" in found["origin"] and "torch.where" in found["hint"]
    guards = rows(report, "entries", "guards")
    assert any("float32[8, 16]" in g["check"] and g["why"] and "test_explain.py:12" in g["origin"] for g in guards)
    (again,) = report["recompiles"]
    assert "float32[8, 16]" in again["guard"] and "float32" in again["old"] and "float64" in again["new"]
    assert {"capture", "autodiff", "lower", "fuse", "codegen", "compile C", "guards"} <= set(report["seconds_by_stage"])
    kernels = [kernel for graph in graphs for kernel in graph["kernels"]]
    assert any("softmax" in str(kernel) and "test_explain.py:15" in str(kernel) for kernel in kernels)
    assert any(not d["fused"] and d["why"] for graph in graphs for d in graph["decisions"])
    saved = [row for graph in graphs for row in graph["saved"]]
    assert saved and all(row["bytes"] > 0 and row["reason"] for row in saved)
    assert any(side["peak_bytes"] > 0 for graph in graphs for side in graph["memory"].values())


def test_the_text_and_the_page_say_the_same(explained):
    text = str(explained)
    for part in ("2 entries", "graph break: ", "test_explain.py:13", "Guards (", "Recompiles", "Kernels", "Kept apart",
                 "Saved for backward", "memory of forward", "compiling took"):  # fmt: skip
        assert part in text, part
    page = explained.to_html()
    assert page.startswith("<!doctype html>") and "http://" not in page.replace("http://www.w3.org", "")


def test_a_plain_function_is_compiled_for_it():
    a, b = torch.randn(8, 16), torch.ones(8, 16)
    explanation = tg.explain(toy)(a, b)
    torch.testing.assert_close(explanation.result, toy(a, b))
    assert len(explanation.breaks()) == 1 and explanation.kernels()
    module = torch.nn.Linear(16, 2)
    explanation = tg.explain(module)(a)
    torch.testing.assert_close(explanation.result, module(a))
    assert len(explanation.graphs()) == 1
    with tg.installed():
        module.compile()
    module(a)
    assert len(tg.explain(module).graphs()) == 1
    with pytest.raises(TypeError, match="compiled must be"):
        tg.explain(3)


def test_a_class_is_explained_by_the_method_that_calls_run():
    class Net(torch.nn.Module):
        def forward(self, x):
            return x.sin() + 1

    class Scale:
        def __call__(self, x):
            return x * 2

    for cls, name in ((Net, "forward"), (Scale, "__call__")):
        assert tg.compile(cls) is cls
        cls()(torch.ones(3))
        (entry,) = tg.explain(cls).to_dict()["entries"]
        assert len(entry["graphs"]) == 1 and name in str(tg.explain(cls))
    with pytest.raises(TypeError, match=r"must be what tg\.compile returned, not <class 'int'>"):
        tg.explain(int)


def test_what_a_prompt_shows_is_the_explanation():
    compiled = tg.compile(lambda x: x * 2)
    compiled(torch.ones(3))
    explained = tg.explain(compiled)
    assert repr(explained) == str(explained) and "entry 0" in repr(explained)
    assert all(len(repr(entry)) < 80 for entry in explained.entries)
