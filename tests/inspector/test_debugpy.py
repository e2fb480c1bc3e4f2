"""debugpy stops where breakpoints are set over its protocol: in the files of an entry, of graphs that run, of a resume
function, of backward, and in those of torch.compile that run; each time with live tensors.
"""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("debugpy")
sys.path.insert(0, str(Path(__file__).parent))
from dap import stops
from test_stepping import BRANCH, PROGRAM, line_of

TORCH_COMPILE = PROGRAM.replace("@tg.compile\n", "@torch.compile(backend='aot_eager')\n")


def first_run(text, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(text)
    done = subprocess.run([sys.executable, str(path), str(tmp_path / "glass")], capture_output=True, text=True)
    assert done.stdout == "gradient 0.0625\n", done.stderr
    return path


def test_every_file_that_runs(tmp_path):
    program = first_run(PROGRAM, tmp_path)
    top = tmp_path / "glass" / "toy_example"
    resume = next(top.glob("resume_at_*"))
    entry, inner = top / "entry_0/transformed.py", resume / "entry_0/transformed.py"
    wrapper, backward = (top / f"entry_0/graph_0/{side}_wrapper.py" for side in ("forward", "backward"))
    wanted = {
        entry: [(line_of(entry, "if lt:"), "x[0].item(), bool(lt)")],
        wrapper: [(line_of(wrapper, "return ("), "truediv[0].item()")],
        inner: [(line_of(inner, "return mul"), "b[0].item()")],
        backward: [(line_of(backward, "return ("), "grad_a[0].item()")],
    }
    seen, output = stops(program, [str(tmp_path / "glass")], wanted)
    assert {(path, value) for path, _, value in seen} == {
        (entry, "(0.75, True)"), (wrapper, "0.75"), (inner, "-1.0"), (backward, "0.0625"),
    }  # fmt: skip
    assert output == "gradient 0.0625\n"


def test_aten_graphs_forward_and_backward(tmp_path):
    program = first_run(PROGRAM, tmp_path)
    graph = tmp_path / "glass" / "toy_example" / "entry_0" / "graph_0"
    forward, backward = graph / "forward.py", graph / "backward.py"
    wanted = {
        forward: [(line_of(forward, "add = "), "abs_1[0].item()")],
        backward: [(line_of(backward, "return "), "a[0].item()")],
    }
    seen, _ = stops(program, [str(tmp_path / "glass"), "forward"], wanted)
    assert {(path, value) for path, _, value in seen} == {(forward, "3.0"), (backward, "3.0")}


def test_the_users_lines_of_a_resume_function(tmp_path):
    program = first_run(PROGRAM, tmp_path)
    seen, output = stops(program, [str(tmp_path / "glass"), "lines"], {program: [(BRANCH, "x[0].item()")]})
    assert seen == [(program, BRANCH, "0.75")] and output == "gradient 0.0625\n"


@pytest.mark.slow  # Inductor compiles, under debugpy
def test_what_torch_compile_runs(tmp_path):
    program = first_run(TORCH_COMPILE, tmp_path)
    top = tmp_path / "glass" / "torch_compile" / "toy_example"
    entry = top / "entry_0/transformed.py"
    inner = next(top.glob("resume_at_*")) / "entry_0/transformed.py"
    wanted = {
        entry: [(line_of(entry, "    if "), "b[0].item()")],
        inner: [(line_of(inner, "return "), "b[0].item()")],
    }
    seen, output = stops(program, [str(tmp_path / "glass")], wanted)
    assert {(path, value) for path, _, value in seen} == {(entry, "-1.0"), (inner, "-1.0")}
    assert output == "gradient 0.0625\n"
