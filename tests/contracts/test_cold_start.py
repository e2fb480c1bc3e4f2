"""What a first compile must not cost: modules that it has no use for, and collections of what will not die."""

import gc
import subprocess
import sys

import pytest

from torchglass.process.collector import Paused

FIRST_COMPILE = """
import sys
import torch
import torchglass as tg
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Linear(16, 4))
compiled = tg.compile(model)
{step}
print(*[name for name in {slow!r} if name in sys.modules])
"""
STEPS = {
    "import": "",
    "inference": "with torch.no_grad(): compiled(torch.randn(5, 8))",
    "training": "compiled(torch.randn(5, 8)).sum().backward()",
}
ALWAYS = ("scipy", "torch.onnx", "rich", "torch._dynamo")
SLOW = {"import": ("sympy", *ALWAYS), "inference": ALWAYS, "training": ALWAYS}


@pytest.mark.parametrize("step", STEPS)
def test_modules_that_stay_unloaded(step: str) -> None:
    program = FIRST_COMPILE.format(step=STEPS[step], slow=SLOW[step])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_no_collection_while_paused() -> None:
    gc.collect()
    with Paused():
        counts = [generation["collections"] for generation in gc.get_stats()]
        made = [Cycle() for _ in range(20_000)]
        assert [generation["collections"] for generation in gc.get_stats()] == counts
    assert gc.isenabled() and len(made) == 20_000


def test_a_program_without_collector_stays_without() -> None:
    gc.disable()
    try:
        with Paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_the_program_does_of_the_collector_meanwhile_is_its_own() -> None:
    before = gc.get_threshold()
    try:
        with Paused():
            gc.disable()
        assert not gc.isenabled() and gc.get_threshold() == before
        with Paused():
            gc.set_threshold(5, 6, 7)
        assert gc.get_threshold() == (5, 6, 7)
    finally:
        gc.enable()
        gc.set_threshold(*before)
