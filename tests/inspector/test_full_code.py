"""full_code.py: one module out of the texts of many entries."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torchglass as tg
from torchglass.inspector.full_code import full_code
from torchglass.records.compilation import EntryRecord, FunctionRecord, GraphRecord

CHECK = '''"""What one entry relies on."""
import torch

LIMIT = {limit}

def check(a, b):
    if not (a.shape[0] == LIMIT): return None  # check this: graph_0 reads it  (toy.py:3)
    return (a, b)

if __name__ == "__main__":
    print(check)
'''
TRANSFORMED = """import torch
from math import pi

def transformed(a, b, fetched):
    (x, value) = graph_0(*fetched)
    scale = dict(graph_0={scale})["graph_0"]  # a keyword of that name is no graph
    if value:
        return resume_at_8(x * scale, b)
    return {{"transformed": x}}
"""
RESUME = "def transformed(x, b, fetched):\n    return graph_0(x, b)\n"
RESUME_CHECK = "def check(x, b):\n    return ()\n"


def entry(index: int, limit: int) -> EntryRecord:
    texts = CHECK.format(limit=limit), TRANSFORMED.format(scale=limit)
    return EntryRecord(index, (), *texts, graphs=(GraphRecord("graph_0", node_count=2),))


@pytest.fixture
def record(tmp_path) -> FunctionRecord:
    resume_entry = EntryRecord(0, (), RESUME_CHECK, RESUME, (GraphRecord("graph_0"),))
    resume = FunctionRecord("resume_at_8", folder=tmp_path / "resume_at_8", entries=[resume_entry])
    return FunctionRecord("toy", folder=tmp_path, entries=[entry(0, 2), entry(1, 3)], resumes=[resume])


def write_graph(folder: Path, body: str) -> None:
    folder.mkdir(parents=True)
    (folder / "captured.py").write_text(f"def forward(a, b):\n    return {body}\n")


def test_it_is_one_module_that_runs(record, tmp_path):
    write_graph(tmp_path / "entry_0/graph_0", "a + b, True")
    write_graph(tmp_path / "entry_1/graph_0", "a - b, False")
    write_graph(tmp_path / "resume_at_8/entry_0/graph_0", "a * b")
    text = full_code(record)
    module = {"__file__": str(tmp_path / "full_code.py"), "__name__": "full_code"}
    exec(compile(text, "full_code.py", "exec"), module)
    a, b = torch.ones(2), torch.full((2,), 3.0)
    assert torch.equal(module["toy"](a, b), (a + b) * 2 * b)
    assert torch.equal(module["toy"](torch.ones(3), torch.ones(3))["transformed"], torch.zeros(3))
    with pytest.raises(NotImplementedError, match=r"no entry of .* fits"):
        module["toy"](torch.ones(9), b)


def test_comments_strings_and_keywords_are_left_alone(record):
    text = full_code(record)
    assert "# check this: graph_0 reads it  (toy.py:3)" in text
    assert 'dict(graph_0=3)["graph_0"]' in text
    assert text.count("import torch\n") == 1
    assert '"__main__"' not in text


@pytest.mark.parametrize("broken", ["", "def (:", "\x00", "x = 1"])
def test_it_parses_whatever_the_entries_say(record, broken):
    record.entries.append(EntryRecord(2, (), broken, broken))
    record.name = 'a """ \\ b'
    ast.parse(full_code(record))


def test_resume_functions_of_one_name_are_told_apart(record, tmp_path):
    record.resumes.append(FunctionRecord("resume_at_8", folder=tmp_path / "b/resume_at_8", entries=[]))
    names = {n.name for n in ast.parse(full_code(record)).body if isinstance(n, ast.FunctionDef)}
    assert {"toy", "resume_at_8", "resume_at_8_2"} <= names


def test_an_empty_record():
    ast.parse(full_code(FunctionRecord("<lambda>")))


def test_modes_are_written_once(record):
    mode = "GlobalState(grad_mode=True, dispatch_modes=())"
    check = f"def check(a, b):\n    if not (global_state() == {mode}): return None  # the mode\n    return (a, b)\n"
    record.entries = [EntryRecord(n, (), check, TRANSFORMED.format(scale=1)) for n in range(3)]
    text = full_code(record)
    assert text.count(mode) == 1 and text.count("global_state() == MODE_0): return None  # the mode") == 3


def test_a_graph_whose_objects_no_file_can_make_says_so_and_shows_them(tmp_path):
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            return x * x * k

        @staticmethod
        def backward(ctx, g):
            return g, None

    def f(x):
        return torch.func.vmap(torch.func.grad(lambda t: (t**3).sum()))(Square.apply(x, 3))

    with tg.prepare_debug(tmp_path):
        tg.compile(f, backend="eager")(torch.rand(2, 3))
    (file,) = tmp_path.rglob("captured.py")
    text = file.read_text()
    assert "#   Square.apply(tensors[0], 3)  (test_full_code.py:" in text
    assert "#   torch.func.vmap of\n" in text and "#   torch.func.grad of\n" in text and "argument_0 ** 3" in text
    ran = subprocess.run([sys.executable, file], capture_output=True, text=True)
    assert ran.returncode == 1 and "does not run alone: Square, vmap_ " in ran.stderr


def test_variables_that_may_not_be_written():
    """As those that pytest adds for its assertions: what lies before a break and after it reads as Python."""

    def function(x):
        kept = x + 1
        tg.graph_break()
        return kept * x

    code = function.__code__
    function.__code__ = code.replace(co_varnames=("x", "@py_assert1"))
    compiled = tg.compile(function, backend="eager")
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    record = tg.explain(compiled).record
    text = full_code(record)
    for function_record in record.walk():
        for made in function_record.entries:
            ast.parse(made.guards_text), ast.parse(made.transformed_text)
    assert "def resume_at_" in ast.unparse(ast.parse(text))
