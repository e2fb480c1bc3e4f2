"""CPU tensors compiled as a GPU's: kernels are Triton's, forward and backward, and what is wrong shows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.codegen import triton_on_torch
from tests.sweep.op_db import Plan, operators, samples_of
from tests.sweep.op_samples import BREAKS, SKIPPED, WHOLE, WRONG, Verdict, judge
from tests.sweep.stand_in import GPUS, standing_in
from torch.testing._internal.opinfo.core import SampleInput

import torchglass as tg


def judged(function: Any, *args: torch.Tensor, target: str = "gpu") -> Verdict:
    with standing_in(target):
        return judge(function, [SampleInput(args[0], args=args[1:])], "glass", backward=True)


@pytest.mark.parametrize("target", GPUS)
def test_kernels_are_those_of_a_gpu(target: str) -> None:
    x = torch.randn(5, 80, requires_grad=True)
    with standing_in(target):
        compiled = tg.compile(lambda x: torch.softmax(x, -1).sin())
        compiled(x).sum().backward()
    (graph,) = (graph for entry in tg.explain(compiled).entries for graph in entry.graphs)
    assert {side.name for side in graph.sides if side.kernels} == {"forward", "backward"}
    assert {kernel.language for kernel in graph.kernels} == {"triton"}
    expected = torch.autograd.grad(torch.softmax(x, -1).sin().sum(), x)
    torch.testing.assert_close(x.grad, expected[0])


def test_what_is_traced_otherwise_on_a_gpu() -> None:
    x = torch.randn(5, 80)
    with standing_in("gpu"):
        compiled = tg.compile(lambda x: torch.log_softmax(x, -1))
        torch.testing.assert_close(compiled(x), torch.log_softmax(x, -1))
    (graph,) = (graph for entry in tg.explain(compiled).entries for graph in entry.graphs)
    assert "aten.amax" in graph.files["forward.py"]


@pytest.mark.parametrize("shape", [(7, 5), (1, 7), (7, 1), (0, 3)], ids=str)
def test_layouts_of_log_softmax(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape[::-1]).t().requires_grad_()
    assert judged(lambda x: torch.log_softmax(x, 0), x).result == WHOLE


def test_wrong_numbers_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_on_torch.Language, "div_rn", staticmethod(lambda a, b: a * b))
    assert judged(lambda x: 1 / x, torch.tensor([2.0, 3.0])).result == WRONG


def test_without_inputs() -> None:
    assert judged(lambda x: torch.arange(9) * 2, torch.ones(())).result == WHOLE


def test_some_operators() -> None:
    """A sample of each 17th operator, in this process: all of them are in ``test_op_db``."""
    plan, bad = Plan("glass", "float32", samples=1), {}
    with standing_in("small-gpu"):
        for op in operators(plan.dtype, every=17):
            for _, sample in samples_of(op, plan):
                verdict = judge(op, [sample], plan.backend, plan.backward)
                if verdict.result not in (WHOLE, BREAKS, SKIPPED):
                    bad[op.full_name] = verdict.why
    assert not bad
