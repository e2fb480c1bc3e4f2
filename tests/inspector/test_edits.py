"""An edit of any file that is compiled or run takes effect at the next start; a broken one says where."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torchglass as tg

PROGRAM = """
import torch, torchglass as tg

@tg.compile
def f(x):
    return torch.sin(x) * 3 + 1

x = torch.zeros(8, requires_grad=True)
y = f(x)
y.sum().backward()
print(y[0].item(), x.grad[0].item())
"""


def run(program: Path) -> subprocess.CompletedProcess:
    environment = {**os.environ, "TORCHGLASS_DIR": str(program.parent / "glass")}
    return subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("edits") / "program.py"
    path.write_text(PROGRAM)
    done = run(path)
    assert done.stdout == "1.0 3.0\n", done.stderr
    return path


@pytest.fixture
def graph(program):
    """The folder of the graph, which is put back afterwards as it was."""
    folder, kept = program.parent / "glass", program.parent / "kept"
    if not kept.exists():
        shutil.copytree(folder, kept)
    yield folder / "f/entry_0/graph_0"
    shutil.rmtree(folder)
    shutil.copytree(kept, folder)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, text
    path.write_text(text.replace(old, new))


def test_the_captured_graph(program, graph):
    edit(graph / "captured.py", "add = mul + 1", "add = mul + 5")
    done = run(program)
    assert done.stdout == "5.0 3.0\n", done.stderr
    assert "captured.py: using the edited file" in done.stderr
    tg.reset(program.parent / "glass")
    assert run(program).stdout == "1.0 3.0\n"


def test_the_aten_graphs(program, graph):
    edit(graph / "forward.py", "aten.add.Tensor(mul, 1)", "aten.add.Tensor(mul, 7)")
    edit(graph / "backward.py", "aten.mul.Tensor(tangent_add, 3)", "aten.mul.Tensor(tangent_add, 4)")
    done = run(program)
    assert done.stdout == "7.0 4.0\n", done.stderr


def test_the_wrapper(program, graph):
    edit(graph / "forward_wrapper.py", "    return (", "    print('in the wrapper')\n    return (")
    assert run(program).stdout == "in the wrapper\n1.0 3.0\n"


WITHOUT_TENSORS = """
import torch, torchglass as tg

def f(x):
    with torch.no_grad():
        rows = x * 2 + torch.rand(3, 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        halves = x.mm(torch.rand(8, 8))
    return (x + torch.zeros(8)) * rows + (halves * halves).float()

compiled, x = tg.compile(f), torch.ones(3, 8, requires_grad=True)
print(torch.equal(compiled(x), compiled(x)))
found = []
for call in (compiled, f):
    torch.manual_seed(0)
    found.append(call(x))
    found.append(torch.autograd.grad(found[-1].sum(), x)[0])
print(*(ours.allclose(theirs, rtol=1e-2) for ours, theirs in zip(found[:2], found[2:])))
"""


@pytest.mark.parametrize("name", ["captured.py", "forward.py"])
def test_calls_without_a_tensor_run_in_an_edited_graph_too(tmp_path, name):
    """Random numbers are drawn at each call, and what is under ``no_grad`` or ``autocast`` stays there."""
    program = tmp_path / "program.py"
    program.write_text(WITHOUT_TENSORS)
    run(program)
    (path,) = tmp_path.glob(f"glass/f/entry_0/graph_0/{name}")
    path.write_text(path.read_text().replace("    return (", "    math.pi\n    return (", 1))
    done = run(program)
    assert done.stdout == "False\nTrue True\n"
    assert f"{name}: using the edited file" in done.stderr and "cannot be used" not in done.stderr


BROKEN = [
    ("captured.py", "mul + 1", "mul + nobody", "captured.py, line {line}: NameError: name 'nobody' is not defined"),
    ("forward.py", "aten.add.Tensor(mul, 1)", "aten.sum.default(mul)", "forward.py returns torch.float32[] as"),
    ("forward_wrapper.py", "    kernel_0(", "    kernel_9(", "forward_wrapper.py, line {line}: NameError"),
    ("../transformed.py", "graph_0(", "graph_9(", "entry_0/transformed.py, line {line}: NameError"),
    ("forward_kernels.c", "static void kernel_0(", "static viod kernel_0(", "forward_kernels.c:{line}"),
    ("backward.py", "    return (", "    return ((", "graph_0/backward.py, line {line}: '(' was never closed"),
    ("joint.py", "    return (", "    return ((", "your edit changes nothing: this file is for reading"),
]
BROKEN_SELDOM = [
    ("captured.py", "    return (", "    return ((", "graph_0/captured.py, line {line}: '(' was never closed"),
    ("forward_kernels.c", "void kernel_0_call(", "void kernel_1_call(", "undefined symbol: kernel_0_call"),
    ("backward.py", "aten.cos", "aten.coss", "backward.py, line {line}: AttributeError"),
    ("backward_kernels.c", "static void kernel_0(", "static viod kernel_0(", "backward_kernels.c:{line}"),
    ("backward_wrapper.py", "    kernel_0(", "    kernel_0(1.5, ", "backward_wrapper.py, line {line}: TypeError"),
    ("forward.loops", "graph forward(x)", "graph forwards(x)", "your edit changes nothing: this file is for reading"),
]


@pytest.mark.parametrize(
    ("name", "old", "new", "said"), [*BROKEN, *(pytest.param(*row, marks=pytest.mark.slow) for row in BROKEN_SELDOM)]
)
def test_a_broken_edit_names_file_and_line(program, graph, name, old, new, said):
    text = (graph / name).read_text()
    edit(graph / name, old, new)
    done = run(program)
    line = 1 + text[: text.index(old)].count("\n")
    assert said.format(line=line) in done.stderr, done.stderr
    assert done.stdout == "1.0 3.0\n"  # what was generated runs
    assert "eagerly" not in done.stderr and "with ATen" not in done.stderr
    assert ("using the edited file" in done.stderr) == ("reading" not in said)


@pytest.mark.parametrize(
    ("runs", "name", "used"),
    [
        ("kernels", "forward_kernels.c", True),
        ("forward", "forward_kernels.c", False),
        ("forward", "forward.py", True),
        ("captured", "forward.py", False),
        ("captured", "captured.py", True),
    ],
)
def test_an_edit_of_what_does_not_run_is_not_said_to(tmp_path, capfd, runs, name, used):
    def f(x):
        return x * 3 + 1

    for _ in range(2):
        with tg.prepare_debug(tmp_path, runs=runs):
            found = tg.compile(f)(torch.ones(2))
        (path,) = tmp_path.rglob(f"graph_0/{name}")
        path.write_text(path.read_text().replace("3.0f", "5.0f").replace(" * 3", " * 5").replace(", 3)", ", 5)"))
    assert found[0] == (6 if used else 4)
    said = "using the edited file" if used else f"your edit changes nothing: runs={runs!r} was asked for"
    assert f"{name}: {said}" in capfd.readouterr().err


def test_two_processes_at_one_folder(tmp_path):
    """Both run right, and what they leave is whole: every text of the last writer, no half-written file."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "TORCHGLASS_DIR": str(tmp_path / "glass")}
    both = [
        subprocess.Popen([sys.executable, str(program)], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [process.communicate(timeout=240)[0] for process in both] == ["1.0 3.0\n"] * 2
    top = tmp_path / "glass/f"
    for path in top.rglob("*.py"):
        compile(path.read_text(), str(path), "exec")
    assert (top / "report.html").read_text().rstrip().endswith("</html>")
    before = {path: path.read_text() for path in top.rglob("*.py")}
    again = run(program)
    assert again.stdout == "1.0 3.0\n" and "edited" not in again.stderr, again.stderr
    assert {path: path.read_text() for path in top.rglob("*.py")} == before


def test_reset_leaves_no_libraries_of_edits(program, graph):
    for number in (5, 6):
        text = (graph / "forward_kernels.c").read_text()
        (graph / "forward_kernels.c").write_text(f"{text}\n/* {number} */\n")
        run(program)
    assert len(list(graph.glob("forward_kernels.*.so"))) == 3
    tg.reset(program.parent / "glass")
    run(program)
    assert len(list(graph.glob("forward_kernels.*.so"))) == 1
