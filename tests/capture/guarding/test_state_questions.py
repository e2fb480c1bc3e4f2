"""What a program asks of PyTorch's state and turns of it: noticed when it is another one, and left as it was found."""

import sys

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import torchglass as tg

x = torch.ones(2, 2)


def profiled(x):
    return x + torch.autograd._profiler_enabled()


def anomaly(x):
    return x + torch.is_anomaly_enabled()


def view_replay(x):
    return x + torch._C._is_view_replay_enabled()


def multithreading(x):
    return x + torch._C._is_multithreading_enabled()


ASKED = {
    profiled: lambda: torch.autograd.profiler.profile(use_kineto=False),
    anomaly: lambda: torch.autograd.set_detect_anomaly(True),
    view_replay: lambda: torch.autograd._force_original_view_tracking(True),
    multithreading: lambda: torch.autograd.set_multithreading_enabled(False),
}


@pytest.mark.parametrize("function", ASKED)
def test_state_that_changes_between_calls_is_noticed(function):
    compiled = tg.compile(function, backend="eager", fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(x), function(x))
        with ASKED[function]():
            assert torch.equal(compiled(x), function(x))


def attention_over_a_break(x):
    with sdpa_kernel(SDPBackend.MATH):
        y = F.scaled_dot_product_attention(x, x, x)
        tg.graph_break()
        return F.scaled_dot_product_attention(y, x, x)


def warns_always(x):
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    y = x + 1
    tg.graph_break()
    torch.set_warn_always(before)
    return y


def anomalies_in_a_block(x):
    with torch.autograd.set_detect_anomaly(True):
        y = x * 2
    return y + torch.is_anomaly_enabled()


def state():
    getters = (n for n in dir(torch._C) if n.endswith("_sdp_enabled") or n == "_get_warnAlways")
    return {name: getattr(torch._C, name)() for name in getters} | {"anomaly": torch.is_anomaly_enabled()}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [attention_over_a_break, warns_always, anomalies_in_a_block])
def test_state_that_is_turned_inside_is_as_it_was(function, backend):
    before, compiled = state(), tg.compile(function, backend=backend)
    q = torch.rand(1, 1, 4, 4)
    for _ in range(2):
        torch.testing.assert_close(compiled(q), function(q))
        assert state() == before


def test_iterators_that_methods_make_hold_no_fake_tensors():
    def f(x):
        return [row + 1 for row in x.__iter__()], list(x.__iter__()), list(x.__reversed__())

    rows = tg.compile(f, backend="eager", fullgraph=True)(x)
    assert {type(row) for part in rows for row in part} == {torch.Tensor}


LEGACY = [
    torch.FloatTensor, torch.DoubleTensor, torch.LongTensor, torch.BoolTensor, torch.HalfTensor, torch.Tensor,
    torch.nn.Parameter, torch.nn.Buffer, torch.cuda.FloatTensor, torch.sparse.FloatTensor,
]  # fmt: skip


def test_tensors_made_inside_are_of_the_legacy_types_that_eager_says():
    def f(x):
        made = [x + 1, x.double(), x.long(), x > 1, x.half()]
        return [isinstance(t, kind) for t in made for kind in LEGACY]

    assert tg.compile(f, backend="eager", fullgraph=True)(x) == f(x)


@pytest.mark.parametrize("backend", ["eager", "glass"])
def test_operators_of_numbers_alone(backend):
    def f(x):
        return x + torch.ops.aten.add(4, 3.3), torch.ops.aten.arange(3)

    compiled = tg.compile(f, backend=backend)
    for one, other in zip(compiled(x), f(x)):
        assert torch.equal(one, other)
    assert not tg.explain(compiled).record.fallbacks


def test_the_recursion_limit_is_the_programs():
    def f(x):
        return x + sys.getrecursionlimit()

    def raised(x):
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(before + 500)
        y = x + sys.getrecursionlimit()
        sys.setrecursionlimit(before)
        return y

    compiled, limit = tg.compile(f, backend="eager", fullgraph=True), sys.getrecursionlimit()
    try:
        for number in (limit, limit + 1000, limit):
            sys.setrecursionlimit(number)
            assert torch.equal(compiled(x), f(x))
        assert torch.equal(tg.compile(raised, backend="eager")(x), raised(x))
        assert sys.getrecursionlimit() == limit
    finally:
        sys.setrecursionlimit(limit)
