"""What you read is what runs: edits take effect in the next process, breakpoints are hit, every graph
file runs alone.
"""

import re
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
    return [torch.sin(x) * 3 + 1, "label 7"]

x = torch.linspace(0, 1, 64, requires_grad=True)
y, label = f(x)
y.sum().backward()
print((y / (torch.sin(x) * 3 + 1)).mean().item(), label)
"""


def run(folder: Path, **environment: str) -> subprocess.CompletedProcess:
    import os

    program = folder.parent / "program.py"
    program.write_text(PROGRAM)
    variables = {**os.environ, "TORCHGLASS_DIR": str(folder), **environment}
    return subprocess.run([sys.executable, str(program)], env=variables, capture_output=True, text=True)


@pytest.fixture(scope="module")
def compiled_folder(tmp_path_factory):
    """The folder of PROGRAM after one run."""
    folder = tmp_path_factory.mktemp("run") / "glass"
    done = run(folder)
    assert done.returncode == 0, done.stderr
    ratio, label = done.stdout.split(maxsplit=1)
    assert (float(ratio), label) == (pytest.approx(1.0), "label 7\n")
    assert "edited" not in done.stderr
    return folder


def edit(path: Path, old: str, new: str) -> str:
    text = path.read_text()
    assert old in text, text
    path.write_text(text.replace(old, new))
    return text


def test_an_edit_of_the_entry_takes_effect(compiled_folder):
    path = compiled_folder / "f/entry_0/transformed.py"
    original = edit(path, "label 7", "label 8")
    try:
        done = run(compiled_folder)
        assert done.stdout.endswith("label 8\n"), done.stderr
        assert f"{path}: using the edited file" in done.stderr
    finally:
        path.write_text(original)


def test_an_edit_of_the_c_file_takes_effect(compiled_folder):
    path = compiled_folder / "f/entry_0/graph_0/forward_kernels.c"
    _, kernel, body = path.read_text().rpartition("static void kernel_0")
    factor = re.search(r"\* (3(\.0)?f?)\b", body)
    assert factor, body
    original = edit(path, kernel + body, kernel + body.replace(factor[0], "* 6.0f"))
    try:
        done = run(compiled_folder)
        assert float(done.stdout.split()[0]) > 1.2, done.stderr
        assert "using the edited file" in done.stderr
    finally:
        path.write_text(original)


def test_a_broken_edit_names_file_and_line(compiled_folder):
    path = compiled_folder / "f/entry_0/transformed.py"
    original = path.read_text()
    path.write_text(original + "\ndef broken(:\n")
    try:
        done = run(compiled_folder)
        assert "transformed.py" in done.stderr
        assert f"line {original.count(chr(10)) + 2}" in done.stderr
    finally:
        path.write_text(original)


def test_nothing_is_written_when_nothing_changed(compiled_folder):
    run(compiled_folder)
    before = {p: p.stat().st_mtime_ns for p in compiled_folder.rglob("*.py")}
    assert run(compiled_folder).returncode == 0
    after = {p: p.stat().st_mtime_ns for p in compiled_folder.rglob("*.py")}
    # README.md holds seconds and so differs from run to run; the rest is as it was.
    assert after == before


def test_every_file_of_the_list_is_there(compiled_folder):
    entry = compiled_folder / "f" / "entry_0"
    expected = [
        "../README.md", "../full_code.py", "guards.py", "transformed.py",
        *(f"graph_0/{name}" for name in (
            "captured.py", "joint.py", "forward.py", "backward.py", "forward.loops", "forward.fused",
            "forward_kernels.c", "forward_wrapper.py", "backward_kernels.c", "backward_wrapper.py",
        )),
    ]  # fmt: skip
    assert not [name for name in expected if not (entry / name).is_file()]


@pytest.mark.parametrize(
    "name",
    [
        "captured.py",
        "backward.py",
        "forward_wrapper.py",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("joint.py", "forward.py", "backward_wrapper.py")),
    ],
)
def test_each_graph_file_runs_alone(compiled_folder, name):
    path = compiled_folder / "f/entry_0/graph_0" / name
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "64" in done.stdout


def test_without_a_c_compiler_the_graph_runs_with_aten(tmp_path):
    done = run(tmp_path / "glass", CC="/no/such/compiler")
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[0]) == pytest.approx(1.0)
    assert done.stderr.count("/no/such/compiler") >= 1
    assert "C compiler" in done.stderr


def test_lines_of_generated_files_are_stepped_through(folder):
    def f(x):
        return torch.sin(x) * 3 + 1

    compiled, x = tg.compile(f), torch.ones(8)
    compiled(x)
    seen = set()

    def trace(frame, event, argument):
        if frame.f_code.co_filename.startswith(str(folder)):
            if event == "line":
                seen.add(Path(frame.f_code.co_filename).name)
            return trace
        return None

    sys.settrace(trace)
    try:
        compiled(x)
    finally:
        sys.settrace(None)
    assert {"transformed.py", "forward_wrapper.py"} <= seen
