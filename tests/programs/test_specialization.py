"""Program 9: loops over layers, helpers three deep, a flag: one graph, no Python left, the flag a guard."""

import ast

import torch

import torchglass as tg


def activate(x, slope):
    return torch.where(x > 0, x, x * slope)


def layer(x, weight):
    return activate(x @ weight, 0.1)


def run(x, weights, *, double=False):
    for weight in weights:
        x = layer(x, weight)
    return x * 2 if double else x


def test_one_graph_and_no_python_left():
    torch.manual_seed(0)
    x, weights = torch.randn(3, 4), [torch.randn(4, 4) for _ in range(5)]
    compiled = tg.compile(run, fullgraph=True)
    torch.testing.assert_close(compiled(x, weights), run(x, weights))
    (graph,) = tg.explain(compiled).graphs()
    forward = next(n for n in ast.parse(graph.files["captured.py"]).body if getattr(n, "name", "") == "forward")
    kinds = [type(n) for n in ast.walk(forward)]
    assert sum(isinstance(n, ast.MatMult) for n in ast.walk(forward)) == 5, graph.files["captured.py"]
    assert graph.files["captured.py"].count("= torch.where(") == 5
    assert not {ast.If, ast.For, ast.While} & set(kinds)


def test_the_flag_is_a_guard():
    torch.manual_seed(0)
    x, weights = torch.randn(3, 4), [torch.randn(4, 4)]
    compiled = tg.compile(run)
    for double in (False, True, False, True):
        torch.testing.assert_close(compiled(x, weights, double=double), run(x, weights, double=double))
    first, second = tg.explain(compiled).entries
    for entry, expected in ((first, False), (second, True)):
        assert any(
            g.source is not None and g.source.render() == "double" and g.expected is expected for g in entry.guards
        )


def test_the_number_of_layers_is_a_guard():
    torch.manual_seed(0)
    x, weights = torch.randn(3, 4), [torch.randn(4, 4) for _ in range(3)]
    compiled = tg.compile(run)
    for count in (3, 2, 3, 1):
        torch.testing.assert_close(compiled(x, weights[:count]), run(x, weights[:count]))
    assert len(tg.explain(compiled).entries) == 3
