"""The examples run, from a folder of their own."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("toy_example", ["toy_example", "graph break", "resume"]),
        ("dictionary_in", ["function", "graph break"]),
        ("backends", ["aot_eager", "glass"]),
        ("sine_cosine", ["captured for inputs of shapes [(1, 1000)]", "aten.sin"]),
    ],
)
def test_an_example_runs_and_shows_what_it_says(name, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    for word in words:
        assert word in printed


def test_the_demo_shows_its_table(capsys):
    pytest.importorskip("transformers")
    demo = runpy.run_path(str(EXAMPLES / "compile_bert.py"))
    demo["main"](["--layers", "1"])
    printed = capsys.readouterr().out
    for word in ("inference", "training", "kernels", "capture", "codegen"):
        assert word in printed


def test_the_tour_runs(capsys):
    runpy.run_path(str(EXAMPLES.parent / "docs" / "tour.py"), run_name="__main__")
    printed = capsys.readouterr().out
    for word in ("aten._softmax", "reduce_max", "void kernel", "forward_wrapper.py", "entry 1"):
        assert word in printed, word
