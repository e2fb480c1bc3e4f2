"""What backward looks for among values, it finds: the values are those that forward had, to the bit."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from autodiff_helpers import capture, compare, compiled, saved_names, tensor
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import torchglass as tg
from torchglass import autodiff
from torchglass.autodiff import exact_values
from torchglass.autodiff.recompute import FAMILY_OF
from torchglass.options import CompileOptions

CHAINS = {
    "sin_exp": lambda x: x.sin().exp(),
    "tanh_sigmoid": lambda x: x.tanh() * x.sigmoid(),
    "softmax": lambda x: F.softmax(x, -1),
    "gelu": F.gelu,
    "polynomial": lambda x: x * x * 0.3 + x * 1.7 - 0.1,
    "negative": lambda x: -(x.cos() * 3.0).relu(),
    "cut": lambda x: x.sin().mul(1.3)[:, 1:].t(),
}
ENDS = {
    "amax": lambda v: v.amax(1),
    "amin": lambda v: v.amin(1),
    "aminmax": lambda v: v.aminmax(dim=1)[0],
    "max": lambda v: v.max(),
    "median": lambda v: v.median(),
    "norm": lambda v: v.norm(p=float("inf"), dim=1),
    "smallest": lambda v: v.norm(p=-float("inf"), dim=1),
    "equal": lambda v: v * (v == v.amax(1, keepdim=True)),
    "top": lambda v: v.masked_fill(v < v.topk(2, 1).values[:, -1:], 0.0),
    "sorted": lambda v: torch.where(v.sort(1).values[:, 1:2] >= v, v, v * 0.0),
    "columns": lambda v: v.amax((0, 1)) + v.abs().amax(0).sum(),
    "distance": lambda v: torch.cdist(v, v.cos(), float("inf")),
    "reduced": lambda v: torch.zeros_like(v).scatter_reduce(0, torch.zeros_like(v, dtype=torch.int64), v, "amax"),
    "row": lambda v: torch.arange(100.0)[(v * 30).abs().long().clamp(max=99)] * v,
}
STEPS = (torch.sin, torch.tanh, torch.exp, torch.sigmoid, F.silu, torch.neg, torch.relu, lambda x: x * 1.1 + 0.3)


class OneBitOff(TorchDispatchMode):
    """What is computed comes out one bit higher, as another kernel may round it."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func._schema.name[6:]
        family = FAMILY_OF.get(name)
        if family is None or name in exact_values.ROLE_OF or family.name not in ("costly", "cheap"):
            return result
        return torch.nextafter(result, torch.full_like(result, torch.inf)) if result.is_floating_point() else result


def gradient(call, x):
    leaf = x.detach().requires_grad_()
    result = call(leaf)
    result = result[0] if isinstance(result, tuple) else result
    weights = torch.linspace(0.5, 1.5, result.numel()).view(result.shape).to(result.dtype)
    loss = (result * weights).sum()
    with OneBitOff():
        loss.backward()
    return leaf.grad


def check_one_bit_off(function, x, **options):
    partition = autodiff.trace_training(capture(function), [x], CompileOptions.make(options=options))
    torch.testing.assert_close(gradient(compiled(partition), x), gradient(function, x))


def test_every_operator_of_the_table_exists():
    assert [name for name in exact_values.ROLE_OF if not hasattr(torch.ops.aten, name)] == []


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("chain", CHAINS)
def test_backward_rounds_otherwise(chain, end):
    check_one_bit_off(lambda x: ENDS[end](CHAINS[chain](x)), tensor(5, 7))


@pytest.mark.parametrize("end", ENDS)
def test_backward_rounds_otherwise_within_a_budget(end):
    check_one_bit_off(lambda x: ENDS[end](x.sin().exp()), tensor(5, 7), memory_budget=0.0)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(STEPS), min_size=1, max_size=5), st.sampled_from([*ENDS.values()]), st.booleans())
def test_chains(steps, end, double):
    def function(x):
        for step in steps:
            x = step(x)
        return end(x)

    check_one_bit_off(function, tensor(4, 6, dtype=torch.float64 if double else torch.float32))


def test_checkpointed():
    def function(x):
        return checkpoint(lambda v: v.sin().exp().amax(1), x, use_reentrant=False) * 2

    x = tensor(64, 7)
    expected = gradient(function, x)
    torch.testing.assert_close(gradient(tg.compile(function, backend="aot_eager"), x), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("chain", ["sin_exp", "tanh_sigmoid", "gelu", "polynomial"])
def test_compiled(chain, dtype):
    """Rows of every length modulo vectors: their ends are scalar."""

    def function(*xs):
        ends = [ENDS[name](CHAINS[chain](x)) for name in ("amax", "norm", "equal") for x in xs]
        return sum(end.sum() for end in ends)

    def gradients(call):
        leaves = [tensor(*shape, dtype=dtype) for shape in ((64, 7), (4, 9), (3, 130), (17, 33))]
        call(*leaves).backward()
        return [leaf.grad for leaf in leaves]

    for got, want in zip(gradients(tg.compile(function)), gradients(function)):
        assert got.isfinite().all() and (got != 0).any(1).all()
        if dtype.itemsize > 2:  # of half floats kernels round less than eager, and others are equal
            torch.testing.assert_close(got != 0, want != 0)


def test_the_smaller_is_kept():
    assert saved_names(compare(lambda x: x.sin().amax(1), tensor(4, 64))) == ["x", "amax_grad_eq"]
    assert saved_names(compare(lambda x: x.exp().amax(1), tensor(4, 64))) == ["exp", "amax"]


def test_what_is_compared_with_numbers_and_strangers_is_computed_again():
    assert saved_names(compare(lambda x: x.sin().mul(2).clamp(-1, 1).relu(), tensor(64))) == ["x"]
    assert saved_names(compare(lambda x: torch.maximum(x.sin(), x.cos()), tensor(64))) == ["x"]
