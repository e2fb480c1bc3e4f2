"""What users put into their programs to talk to the compiler, and ``breakpoint()``."""

import sys
from pathlib import Path

import pytest
import torch

import torchglass as tg


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


CALLED = []


@tg.allow_in_graph
def opaque(x, factor):
    CALLED.append(factor)  # capture must not see this
    return x * factor


def test_an_allowed_function_is_one_node():
    def f(x):
        return opaque(x + 1, 3) - 1

    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    compiled = tg.compile(f, backend=backend, fullgraph=True)
    for x in (torch.ones(3), -torch.ones(3) * 5):
        torch.testing.assert_close(compiled(x), f(x))
    assert len(CALLED) >= 4
    (graph,) = graphs
    assert [n.target for n in graph.graph.nodes].count(opaque) == 1


def test_is_compiling_only_inside():
    def f(x):
        return x + 1 if tg.is_compiling() else x

    x = torch.zeros(2)
    assert torch.equal(tg.compile(f, backend="eager", fullgraph=True)(x), x + 1) and torch.equal(f(x), x)


def test_graph_break_and_disable_split_the_graph():
    @tg.disable
    def aside(x):
        return x * 2

    def f(x):
        x = aside(x + 1)
        tg.graph_break()
        return x - 1

    compiled = tg.compile(f, backend="eager")
    torch.testing.assert_close(compiled(torch.ones(2)), f(torch.ones(2)))
    assert [b.origin.line - f.__code__.co_firstlineno for b in tg.explain(compiled).breaks()] == [1, 2]
    assert all(b.hint for b in tg.explain(compiled).breaks())


def test_reset_compiles_anew():
    compiled = tg.compile(lambda x: x + 1, backend="eager")
    compiled(torch.ones(2))
    tg.reset()
    assert not tg.explain(compiled).entries
    compiled(torch.ones(2))
    assert len(tg.explain(compiled).entries) == 1


def test_breakpoint_stops_in_the_users_function(monkeypatch):
    stopped = []

    def hook():
        frame = sys._getframe(1)
        stopped.append((frame.f_code.co_name, frame.f_lineno))

    monkeypatch.setattr(sys, "breakpointhook", hook)

    def f(x):
        x = x + 1
        breakpoint()
        return x * 2

    compiled = tg.compile(f, backend="eager")
    torch.testing.assert_close(compiled(torch.ones(2)), torch.full((2,), 4.0))
    (reason,) = tg.explain(compiled).breaks()
    assert "breakpoint" in reason.reason and reason.origin.line == f.__code__.co_firstlineno + 2
    assert len(stopped) == 1


@pytest.mark.parametrize("marker", [tg.disable, tg.allow_in_graph])
def test_markers_refuse_what_cannot_be_called(marker):
    with pytest.raises(TypeError, match="5"):
        marker(5)


def test_what_raises_only_while_compiled_is_captured_as_eager_runs_it():
    def f(x):
        scale = None if torch.compiler.is_compiling() else x.abs().sum()
        return x / scale.sqrt()

    compiled = tg.compile(f, fullgraph=True)
    for x in (torch.ones(3), -torch.ones(3) * 5):
        torch.testing.assert_close(compiled(x), f(x))


def test_what_raises_while_compiled_and_breaks_otherwise_runs_in_python():
    def f(x):
        if not torch.compiler.is_compiling():
            STORED.append(Path(__file__).read_text()[:1])
            return x + 1
        raise ValueError("compiled")

    compiled = tg.compile(f)
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
    assert STORED == ['"']


STORED = []
