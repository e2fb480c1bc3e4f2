"""torch.compile(backend="torchglass"): the form in which PyTorch's graphs reach our pipeline."""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.complaints import complains
from torch import fx

from torchglass.backends import torch_compile
from torchglass.backends.torch_compile import bring_to_form, torchglass
from torchglass.records.origin import UNKNOWN, Origin
from torchglass.runtime.store import use


@pytest.fixture(autouse=True)
def fresh(tmp_path):
    torch.compiler.reset()
    with use(tmp_path):
        yield


def captured(function, *inputs, **wishes) -> list[tuple[fx.GraphModule, list]]:
    """Graphs that PyTorch's frontend captures for a call."""
    seen = []

    def backend(gm, example_inputs):
        seen.append((gm, list(example_inputs)))
        return gm.forward

    torch.compile(function, backend=backend, **wishes)(*inputs)
    return seen


def test_numbers_become_constants():
    def f(x, n):
        return x * n + x.shape[0]

    ((gm, inputs),) = captured(f, torch.ones(3, 4), 5, dynamic=True)
    assert any(isinstance(i, torch.SymInt) for i in inputs)
    graph, lifted, kept = bring_to_form(gm, inputs)
    assert not lifted
    assert [type(inputs[k]) for k in kept] == [torch.Tensor]
    assert torch.equal(graph(torch.ones(3, 4))[0], torch.full((3, 4), 8.0))


def test_tensor_attributes_become_inputs_once():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)
            self.register_buffer("shift", torch.ones(4))

        def forward(self, x):
            return self.inner(x + self.shift) * self.shift

    model, x = Model(), torch.randn(2, 4)
    gm = fx.symbolic_trace(model)  # calls `inner` as a submodule
    graph, lifted, kept = bring_to_form(gm, [x])
    assert kept == [0]
    assert [id(t) for t in lifted] == [id(t) for t in (model.shift, model.inner.weight, model.inner.bias)]
    assert {n.op for n in graph.graph.nodes} <= {"placeholder", "call_function", "call_method", "output"}
    assert torch.equal(graph(x, *lifted), model(x))


def test_every_node_has_the_users_line():
    def f(x):
        return x.sin() + 1

    ((gm, inputs),) = captured(f, torch.ones(3))
    graph, _, _ = bring_to_form(gm, inputs)
    lines = {n.name: n.meta["origin"] for n in graph.graph.nodes if n.op.startswith("call")}
    assert set(lines.values()) == {Origin(__file__, f.__code__.co_firstlineno + 1, "f")}
    assert all("example_value" not in n.meta for n in graph.graph.nodes)


def test_a_graph_we_fail_on_runs_eagerly_with_a_warning(monkeypatch):
    def broken(*args):
        raise RuntimeError("no such luck")

    monkeypatch.setattr(torch_compile, "compile_graph", broken)

    def f(x):
        return x.sin() + 1

    with complains(r"no such luck \(at .* in f, "):
        y = torch.compile(f, backend=torchglass)(torch.ones(3))
    assert torch.equal(y, torch.ones(3).sin() + 1)


def test_wrong_options_are_errors():
    gm = fx.symbolic_trace(lambda x: (x + 1,))
    with pytest.raises(ValueError, match="unknown option 'nonsense'"):
        torchglass(gm, [torch.ones(3)], options={"nonsense": 1})


@contextlib.contextmanager
def no_warnings() -> Iterator[None]:
    """Warnings are errors, but for PyTorch's own about Python 3.13.0."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Guards may run slower on Python 3.13.0")
        yield


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_network_trains_as_in_eager(dynamic):
    model, twin = network(), network()
    compiled = torch.compile(model, backend=torchglass, dynamic=dynamic)
    with no_warnings():
        for rows in (3, 5, 3):
            x = torch.randn(rows, 8)
            mine, theirs = compiled(x), twin(x)
            torch.testing.assert_close(mine, theirs)
            mine.square().sum().backward()
            theirs.square().sum().backward()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_dynamic_sizes_and_numbers_are_right_for_any_input():
    def f(x, n):
        return x.reshape(-1) * n, x.shape[0] * 2, x.sum(0)

    compiled = torch.compile(f, backend=torchglass, dynamic=True)
    for rows, n in ((2, 3), (4, 3), (4, 5), (7, 2), (2, 3)):
        x = torch.randn(rows, 4)
        flat, twice, total = compiled(x, n)
        assert twice == rows * 2
        torch.testing.assert_close((flat, total), (x.reshape(-1) * n, x.sum(0)))


@pytest.fixture
def layouts(monkeypatch) -> list[Any]:
    """The layouts for which dynamic graphs are compiled one by one."""
    found: list[Any] = []
    original = torch_compile._compile_or_run
    monkeypatch.setattr(torch_compile, "_compile_or_run", lambda *args: (found.append(args[1]), original(*args))[1])
    return found


def _sums(x, n):
    return (x.reshape(-1) * n).cos(), x.shape[0] * 2, x.sum(0), x.new_zeros(x.shape[0] * 3 + n), x.size(1), n


def _attends(x, n):
    heads = x.view(1, x.shape[0], 2, 2).transpose(1, 2)
    mask = torch.ones(x.shape[0], x.shape[0], dtype=torch.bool).tril()
    return F.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask), F.softmax(x @ x.t(), -1) + n


def _writes(x, n):
    y = x * 2
    y[:, 0] = n
    return y, y[1:], torch.cat([y, x])


@pytest.mark.parametrize("f", [_sums, _attends, _writes])
def test_one_compile_for_all_sizes(f, layouts):
    compiled = torch.compile(f, backend=torchglass, dynamic=True)
    for rows, n in ((5, 3), (3, 7), (9, 2), (4, 4), (2, 5)):
        x = torch.randn(rows, 4)
        for ours, eager in zip(compiled(x, n), f(x, n), strict=True):
            assert type(ours) is type(eager)
            torch.testing.assert_close(ours, eager)
    assert layouts == []


def test_one_compile_trains_at_all_sizes(layouts):
    model, twin = network(), network()
    compiled = torch.compile(model, backend=torchglass, dynamic=True)
    for rows in (3, 5, 8, 2):
        x = torch.randn(rows, 8)
        for one in (compiled, twin):
            one(x).square().sum().backward()
    assert layouts == []
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_other_layouts_of_open_sizes_are_right():
    """A size that a stage asked for, strides that are no longer those of the first call, a number below one."""

    def f(x, n):
        return (x.transpose(0, 1) * 2 + n).sum(0), x.view(-1) if x.is_contiguous() else x

    compiled = torch.compile(f, backend=torchglass, dynamic=True)
    for x, n in (
        (torch.randn(4, 6), 3),
        (torch.randn(6, 4).t(), 3),
        (torch.randn(9, 12)[:, ::2], 0),
        (torch.randn(4, 6), -2),
    ):
        torch.testing.assert_close(compiled(x, n), f(x, n))


def test_floats_of_dynamic_graphs():
    compiled = torch.compile(lambda x, a: (x * a).sum() + a, backend=torchglass, dynamic=True)
    with no_warnings():
        for rows, a in ((2, 0.5), (3, 0.5), (3, 0.25), (2, 1.5)):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(compiled(x, a), (x * a).sum() + a)


def test_the_sign_of_zero_is_part_of_a_number():
    compiled = torch.compile(lambda x, a: x / a, backend=torchglass, dynamic=True)
    x = torch.ones(3)
    for a in (0.5, 0.0, -0.0, float("nan"), 0.0):
        torch.testing.assert_close(compiled(x, a), x / torch.tensor(a), equal_nan=True)


def test_layouts_past_the_limit_run_eagerly(monkeypatch):
    monkeypatch.setattr(torch_compile, "MAX_LAYOUTS", 2)
    compiled = torch.compile(lambda x: x.cos() + 1, backend=torchglass, dynamic=True)
    for rows in range(2, 7):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x), x.cos() + 1)


def test_an_unknown_origin_is_none_of_the_users_lines():
    node = fx.symbolic_trace(lambda x: (x + 1,)).graph.find_nodes(op="output")[0]
    assert torch_compile._origin(node) == UNKNOWN


@pytest.mark.skipif("torchglass" not in torch.compiler.list_backends(None), reason="the package is not installed")
def test_by_name():
    x = torch.randn(3)
    torch.testing.assert_close(torch.compile(lambda x: x.sin() + 1, backend="torchglass")(x), x.sin() + 1)
