"""The time of a compile grows with the graph, not with its square."""

import subprocess
import sys

import pytest

MEASURE = """
import sys, time
import torch
import torchglass as tg
from benchmarks.large_graphs import PROGRAMS

program, kind, *sizes = sys.argv[1:]
x = torch.randn(8, 16, requires_grad=kind == "training")

def compile_once(nodes):
    model = PROGRAMS[program](nodes)
    begin = time.process_time()
    with torch.set_grad_enabled(kind == "training"):
        result = tg.compile(model)(x)
        if kind == "training":
            result.sum().backward()
    return time.process_time() - begin

compile_once(50)
print(*(compile_once(int(nodes)) for nodes in sizes))
"""
DOUBLING = 2.4  # times for twice the nodes, at most
CASES = [
    ("mixed", "inference"),
    ("parameters", "training"),
    *(pytest.param(p, k, marks=pytest.mark.slow) for p in ("chain", "wide") for k in ("inference", "training")),
]


@pytest.mark.parametrize("program, kind", CASES)
def test_four_times_the_nodes_take_about_four_times_the_time(program: str, kind: str) -> None:
    few = 1000 if kind == "inference" else 500
    found = []
    for _ in range(3):  # the machine may have been busy
        command = [sys.executable, "-c", MEASURE, program, kind, str(few), str(4 * few)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        before, after = (float(seconds) for seconds in done.stdout.split())
        found.append(after / before)
        if found[-1] < DOUBLING**2:
            return
    pytest.fail(f"for four times the nodes {min(found):.1f} times the CPU time")
