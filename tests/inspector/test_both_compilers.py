"""prepare_debug collects what tg.compile and torch.compile make, and does not load torch.compile for nothing."""

import subprocess
import sys

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
