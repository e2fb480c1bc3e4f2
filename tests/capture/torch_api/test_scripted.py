"""Functions of ``torch.jit.script`` are captured from their Python; those of ``torch.jit.trace`` break the graph."""

import pytest
import torch
from torch import Tensor

import torchglass as tg

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))


def doubled_if_positive(x):
    return x * 2 if x.sum() > 0 else x * 3


@pytest.fixture(scope="module")
def scripted():
    return torch.jit.script(gelu)


@pytest.mark.parametrize("training", [True, False])
def test_scripted_functions_are_captured_whole(scripted, training):
    def f(x):
        return scripted(x).sum() + scripted(x + 1).square().sum()

    x = torch.randn(3, 4, requires_grad=training)
    expected, result = f(x), tg.compile(f, fullgraph=True)(x)
    torch.testing.assert_close(result, expected)
    if training:
        torch.testing.assert_close(torch.autograd.grad(result, x), torch.autograd.grad(expected, x))


def test_the_scripted_function_stays_itself(scripted):
    def f(x):
        return scripted, isinstance(scripted, torch.jit.ScriptFunction), scripted(x)

    returned, is_scripted, _ = tg.compile(f, fullgraph=True)(torch.randn(3))
    assert returned is scripted and is_scripted


def test_a_traced_function_keeps_the_branch_it_took():
    x = torch.ones(3)
    with pytest.warns(torch.jit.TracerWarning):
        traced = torch.jit.trace(doubled_if_positive, x, check_trace=False)

    def f(x):
        return traced(x) + 1

    torch.testing.assert_close(tg.compile(f)(-x), -2 * x + 1)


def test_a_call_that_tests_have_replaced_changes_nothing(scripted, monkeypatch):
    """``torch.testing._internal.common_utils`` puts a profiling function in the place of ScriptFunction.__call__."""
    call = torch.jit.ScriptFunction.__call__

    def profiled(self, *args, **kwargs):
        torch._C._jit_set_num_profiled_runs(torch._C._jit_get_num_profiled_runs())
        return call(self, *args, **kwargs)

    monkeypatch.setattr(torch.jit.ScriptFunction, "__call__", profiled)

    def f(x):
        return scripted(x) + 1

    x = torch.randn(3)
    torch.testing.assert_close(tg.compile(f, fullgraph=True)(x), f(x))
