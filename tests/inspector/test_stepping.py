"""Debuggers stop where a person sets breakpoints: pdb in every Python file that runs and at the user's own lines of
resume functions, with live tensors; gdb in the generated C.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
import torch, torchglass as tg

@tg.compile
def toy_example(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1          # resume_at_9
    return x * b

def main(runs="kernels", gdb=False):
    a = torch.full((10,), 3.0, requires_grad=True)
    with tg.prepare_debug(sys.argv[1], runs=runs, gdb=gdb):
        toy_example(a, -torch.ones(10)).sum().backward()
    print("gradient", a.grad[0].item())

if __name__ == "__main__":
    main(*sys.argv[2:3], gdb=len(sys.argv) > 3)
"""
BRANCH = 1 + PROGRAM[: PROGRAM.index("b = b * -1")].count("\n")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A program and the folder that its first run has left."""
    path = tmp_path_factory.mktemp("stepping") / "program.py"
    path.write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(path), str(path.parent / "glass")], capture_output=True, text=True)
    assert done.stdout == "gradient 0.0625\n", done.stderr
    return path


def line_of(path: Path, text: str) -> int:
    """The first line of a file that has the text in it."""
    return next(n for n, line in enumerate(path.read_text().splitlines(), 1) if text in line)


def pdb(program: Path, stops: list[tuple[Path, int, str]], *arguments: str) -> str:
    """Run the program in pdb with breakpoints, and print an expression at each stop; what pdb said."""
    commands = [f"break {path}:{line}" for path, line, _ in stops]
    for n, (_, _, expression) in enumerate(stops, 1):
        commands += [f"commands {n}", f"p 'stop {n}', {expression}", "continue"]  # which ends the commands too
    commands += ["continue", "quit"]
    run = [sys.executable, "-m", "pdb", str(program), str(program.parent / "glass"), *arguments]
    done = subprocess.run(run, input="\n".join(commands) + "\n", capture_output=True, text=True)
    assert "Error" not in done.stdout, done.stdout
    return done.stdout


def assert_stopped(said: str, stops: list[tuple[Path, int, str]], answers: list[str]) -> None:
    for n, ((path, line, _), answer) in enumerate(zip(stops, answers), 1):
        assert re.search(rf"> {re.escape(str(path))}\({line}\)", said), (path, line, said)
        assert f"('stop {n}', {answer})" in said, said
    assert "gradient 0.0625" in said


def test_pdb_stops_in_entry_code_wrappers_and_at_the_users_lines(program):
    top = program.parent / "glass" / "toy_example"
    resume = next(top.glob("resume_at_*"))
    entry, wrapper = top / "entry_0/transformed.py", top / "entry_0/graph_0/forward_wrapper.py"
    inner, backward = resume / "entry_0/transformed.py", top / "entry_0/graph_0/backward_wrapper.py"
    stops = [
        (entry, line_of(entry, "if lt:"), "x[0].item(), bool(lt)"),
        (wrapper, line_of(wrapper, "return ("), "truediv[0].item()"),
        (inner, line_of(inner, "return mul"), "b[0].item()"),
        (backward, line_of(backward, "return ("), "grad_a.shape[0], grad_a[0].item()"),
    ]
    said = pdb(program, stops)
    assert_stopped(said, stops, ["0.75, True", "0.75", "-1.0", "10, 0.0625"])


def test_pdb_stops_in_aten_graphs_that_run(program):
    graph = program.parent / "glass" / "toy_example" / "entry_0" / "graph_0"
    stops = [
        (graph / "forward.py", line_of(graph / "forward.py", "add = "), "abs_1[0].item()"),
        (graph / "backward.py", line_of(graph / "backward.py", "return "), "a[0].item()"),
    ]
    assert_stopped(pdb(program, stops, "forward"), stops, ["3.0", "3.0"])


def test_pdb_stops_in_captured_graphs_that_run(program):
    captured = program.parent / "glass" / "toy_example" / "entry_0" / "graph_0" / "captured.py"
    stops = [(captured, line_of(captured, "add = "), "abs_1[0].item(), a.requires_grad")]
    assert_stopped(pdb(program, stops, "captured"), stops, ["3.0, True"])


def test_pdb_stops_at_the_users_lines_of_a_resume_function(program):
    stops = [(program, BRANCH, "x[0].item(), b[0].item()"), (program, BRANCH + 1, "b[0].item()")]
    assert_stopped(pdb(program, stops, "lines"), stops, ["0.75, -1.0", "1.0"])


EAGER_RESUME = """
import torch, torchglass as tg

def helper(x):
    return x + 1

@tg.compile
def f(x):
    y = helper(x)
    tg.graph_break()
    z = y * 2      # the user's line of the resume function
    with open("/dev/null"):
        z = z + 1
    return z

f(torch.ones(3))
"""


def test_settrace_and_pdb_see_the_users_own_lines_of_a_resume_function_that_runs_as_it_is(tmp_path):
    """A resume function that falls back to Python is the user's bytecode with the user's file and lines."""
    path = tmp_path / "program.py"
    text = EAGER_RESUME.replace("\n@tg.compile", "\n@tg.compile(options={'cache_limit': 1})")
    path.write_text(text + "f(torch.ones(4))\n")
    line = line_of(path, "the user's line")
    commands = f"break {path}:{line}\ncommands 1\np 'stop', y.shape[0]\ncontinue\ncontinue\nquit\n"
    environment = {**os.environ, "TORCHGLASS_DIR": str(tmp_path / "glass")}
    done = subprocess.run(
        [sys.executable, "-m", "pdb", str(path)], input=commands, capture_output=True, text=True, env=environment
    )
    assert f"> {path}({line})" in done.stdout and "('stop', 4)" in done.stdout, done.stdout


def test_debug_pauses_once(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import torch, torchglass as tg\nf = tg.compile(lambda x: x + 1)\n"
        f"with tg.prepare_debug({str(tmp_path / 'glass')!r}):\n    f(torch.ones(2))\n"
        "with tg.debug():\n    for _ in range(3):\n        print(f(torch.ones(2)))\n"
    )
    done = subprocess.run([sys.executable, str(program)], input="continue\n" * 9, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(Pdb)") == 1
    assert done.stdout.count("tensor([2., 2.])") == 3


@pytest.mark.skipif(shutil.which("gdb") is None, reason="no gdb")
def test_gdb_stops_in_the_generated_c_and_shows_it(program):
    folder = program.parent / "glass"
    kernels = folder / "toy_example/entry_0/graph_0/forward_kernels.c"
    line = line_of(kernels, "static void kernel_0(")
    command = ["gdb", "-batch", "-nx", "-ex", "set breakpoint pending on", "-ex", "set debuginfod enabled off"]
    command += ["-ex", f"break {kernels}:{line}", "-ex", "run", "-ex", "list", "-ex", "continue", "--args"]
    command += [sys.executable, str(program), str(folder), "kernels", "gdb"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if "ptrace" in done.stderr:
        pytest.skip("processes may not be traced here")
    stopped = re.search(r"Breakpoint 1, kernel_0 \(.*\) at .*forward_kernels\.c:\d+", done.stdout)
    assert stopped, done.stdout + done.stderr
    assert "const float t3 = t2 + 1.0f;" in done.stdout
