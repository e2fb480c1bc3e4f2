"""Program 5: a branch on a value. Three graphs, two resume functions, one fused kernel on each side."""

import ast

import pytest
import torch

import torchglass as tg


def toy_example(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


@pytest.fixture
def compiled():
    compiled = tg.compile(toy_example)
    torch.manual_seed(0)
    for _ in range(100):
        a, b = torch.randn(10), torch.randn(10)
        torch.testing.assert_close(compiled(a, b), toy_example(a, b))
    return compiled


def test_three_graphs_two_resume_functions(compiled):
    explanation = tg.explain(compiled)
    assert len(explanation.entries) == 1
    assert len(explanation.graphs()) == 3
    assert len(explanation.record.resumes) == 2
    assert all(len(resume.entries) == 1 for resume in explanation.record.resumes)
    (graph_break,) = explanation.breaks()
    assert graph_break.origin.line == toy_example.__code__.co_firstlineno + 2


def test_one_fused_kernel_on_each_side(compiled):
    sides = [entry.graphs for resume in tg.explain(compiled).record.resumes for entry in resume.entries]
    assert [len(graph.kernels) for graphs in sides for graph in graphs] == [1, 1]


def test_a_second_call_compiles_nothing(compiled, folder):
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
    for sign in (1, -1):
        compiled(torch.randn(10), sign * torch.rand(10))
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*")} == before
    assert len(list(tg.explain(compiled).all_entries())) == 3


def test_the_folder_is_whole_and_every_python_file_compiles(compiled, folder):
    top = folder / "toy_example"
    tg.explain(compiled)  # writes what is there for reading; it comes a second later by itself
    for name in (
        "README.md",
        "full_code.py",
        "entry_0/guards.py",
        "entry_0/transformed.py",
        "entry_0/graph_0/captured.py",
    ):
        assert (top / name).is_file(), name
    assert len(list(top.rglob("resume_at_*"))) == 2
    for path in top.rglob("*.py"):
        ast.parse(path.read_text(), str(path))


def test_training_has_eagers_gradients(folder):
    compiled = tg.compile(toy_example)
    for sign in (1, -1, 1):
        results = []
        torch.manual_seed(1)
        a0, b0 = torch.randn(10), sign * torch.rand(10)
        for function in (compiled, toy_example):
            a, b = a0.clone().requires_grad_(), b0.clone().requires_grad_()
            y = function(a, b)
            (y * torch.arange(10)).sum().backward()
            results.append((y.detach(), a.grad, b.grad))
        torch.testing.assert_close(*results)


def test_fullgraph_says_where():
    with pytest.raises(Exception) as caught:
        tg.compile(toy_example, fullgraph=True)(torch.randn(10), torch.randn(10))
    assert f"test_toy.py:{toy_example.__code__.co_firstlineno + 2}" in str(caught.value)
