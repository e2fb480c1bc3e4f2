"""prepare_debug collects what tg.compile and torch.compile make, and does not load torch.compile for nothing."""

import functools
import subprocess
import sys

import pytest
import torch

import torchglass as tg

PROGRAM = """
import sys
import torch, torchglass as tg

def f(x):
    return torch.sin(x) * 3 + 1

with tg.prepare_debug(sys.argv[1]):
    assert torch.equal(tg.compile(f)(torch.ones(8)), f(torch.ones(8)))
    assert not hasattr(sys.modules.get("torch._dynamo"), "convert_frame"), "nobody asked for torch.compile"
    if len(sys.argv) > 2:
        torch.compile(f, backend=sys.argv[2])(torch.ones(8))
"""


def test_one_folder_for_both(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "glass"), "aot_eager"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for entry in ("f/entry_0", "torch_compile/f/entry_0"):
        folder = tmp_path / "glass" / entry
        assert (folder / "guards.py").is_file() and (folder / "transformed.py").is_file(), list(tmp_path.rglob("*"))
        assert (folder / "graph_0" / "captured.py").is_file()


def test_torch_compile_is_not_loaded_unasked(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(program), str(tmp_path / "glass")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "glass" / "torch_compile").exists()


def passes_on(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        result = function(*args, **kwargs)
        return result + 1 if result.sum() > 100 else result - 1

    return wrapper


@passes_on
def wrapped(x):
    return x.sin()


@passes_on
def another(x):
    return x.cos()


class Wrapped(torch.nn.Module):
    @passes_on
    def forward(self, x):
        return x + 1


@pytest.mark.parametrize("compiler", ["torchglass", "torch.compile"])
def test_what_a_decorator_wraps_is_filed_under_its_own_name(compiler, tmp_path):
    tg.reset()
    torch.compiler.reset()
    compile_ = tg.compile if compiler == "torchglass" else torch.compile
    with tg.prepare_debug(tmp_path):
        for function in (wrapped, another, Wrapped()):
            compile_(function, backend="eager")(torch.ones(2))
    folder = tmp_path if compiler == "torchglass" else tmp_path / "torch_compile"
    names = {path.name for path in folder.iterdir() if path.name != "torch_compile" and path.name[0] != "."}
    assert names == {"wrapped", "another", "Wrapped" if compiler == "torchglass" else "Wrapped.forward"}
    for name in names:
        assert (folder / name / "entry_0" / "transformed.py").exists()
