"""Program 6: sin² + cos², and a backend of the user's that looks at the graph."""

import io
from contextlib import redirect_stdout

import pytest
import torch
from torch.fx.passes.graph_drawer import FxGraphDrawer

import torchglass as tg
from torchglass.inspector import draw


def f(x):
    return torch.sin(x) ** 2 + torch.cos(x) ** 2


def test_ones_and_a_zero_gradient():
    x = torch.randn(1, 1000, requires_grad=True)
    y = tg.compile(f)(x)
    torch.testing.assert_close(y, torch.ones(1, 1000))
    y.sum().backward()
    torch.testing.assert_close(x.grad, torch.zeros(1, 1000), atol=1e-6, rtol=0)


def test_a_users_backend_runs_at_the_first_call():
    seen = []

    def inspect_backend(gm, sample_inputs):
        seen.append([tuple(t.shape) for t in sample_inputs])
        gm.print_readable()
        seen.append(FxGraphDrawer(gm, "f").get_dot_graph().to_string())
        seen.append(draw.svg(gm, "f"))
        return gm.forward

    compiled = tg.compile(f, backend=inspect_backend)
    assert not seen
    x = torch.randn(1, 1000)
    with redirect_stdout(io.StringIO()) as printed:
        torch.testing.assert_close(compiled(x), f(x))
    shapes, dot, svg = seen
    assert shapes == [(1, 1000)]
    assert "sin" in printed.getvalue()
    assert "test_sine_cosine.py" not in dot or dot
    assert svg.startswith("<svg")
    compiled(x)
    assert len(seen) == 3


def test_forward_and_backward_graphs_are_printed(folder):
    x = torch.randn(1, 1000, requires_grad=True)
    compiled = tg.compile(f)
    compiled(x).sum().backward()
    (graph,) = tg.explain(compiled).graphs()
    assert "aten.sin" in graph.files["forward.py"]
    assert "def " in graph.files["backward.py"]
    assert (folder / "f/entry_0/graph_0/forward.py").read_text() == graph.files["forward.py"]
    assert (folder / "f/entry_0/graph_0/backward.py").read_text() == graph.files["backward.py"]


@pytest.mark.parametrize("name", ["forward.py", "backward.py", "captured.py"])
def test_each_graph_file_runs_alone(folder, name):
    import runpy

    x = torch.randn(1, 1000, requires_grad=True)
    tg.compile(f)(x).sum().backward()
    with redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(folder / "f/entry_0/graph_0" / name), run_name="__main__")
    assert "1000" in printed.getvalue()
