"""pdb stops in the folder's file of Inductor's output code, forward and backward: it is what torch.compile runs."""

import subprocess
import sys

import pytest
import torch
from tests.inspector.test_stepping import assert_stopped, line_of, pdb

PROGRAM = """
import sys
import torch, torchglass as tg

@torch.compile
def toy_example(a, b):
    return a / (torch.abs(a) + 1) * b

def main(device):
    a = torch.full((10,), 3.0, requires_grad=True, device=device)
    with tg.prepare_debug(sys.argv[1]):
        toy_example(a, torch.ones(10, device=device)).sum().backward()
    print("gradient", a.grad[0].item())

if __name__ == "__main__":
    main(sys.argv[2])
"""
GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))


@pytest.mark.slow  # Inductor compiles three times, under pdb
@pytest.mark.parametrize("device", ["cpu", GPU])
def test_pdb_stops_in_the_file_of_the_output_code(device, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), str(tmp_path / "glass"), device]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "gradient 0.0625\n", done.stderr
    graph = tmp_path / "glass" / "torch_compile" / "toy_example" / "entry_0" / "graph_0"
    forward, backward = graph / "inductor_forward.py", graph / "inductor_backward.py"
    for file in (forward, backward):
        text = file.read_text()
        assert text.startswith("# Inductor's output code. torch.compile runs it, and debuggers stop in this file")
        assert ("triton_" in text) == (device == "cuda")
    shown = "buf0.device.type, buf0[0].item()"
    stops = [(file, line_of(file, "        return ("), shown) for file in (forward, backward)]
    assert_stopped(pdb(program, stops, device), stops, [f"'{device}', 0.75", f"'{device}', 0.0625"])
