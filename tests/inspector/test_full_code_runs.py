"""full_code.py of real compiles: it imports, runs on the same inputs, and gives eager's results."""

import importlib.util
from pathlib import Path

import pytest
import torch

import torchglass as tg


@pytest.fixture
def folder(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path / "glass") as root:
        yield root
    tg.reset()


def imported(path: Path):
    spec = importlib.util.spec_from_file_location("full_code", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check(folder: Path, function, calls, before=lambda: None) -> str:
    """Compile with the calls, then make them again on full_code.py and on the function itself."""
    compiled = tg.compile(function)
    for args, kwargs in calls:
        compiled(*args, **kwargs)
    tg.explain(compiled)
    (path,) = folder.glob("*/full_code.py")
    name = path.parent.name.replace(".", "_")
    module = imported(path)
    module.program.miss = lambda *_: pytest.fail("no entry fits")
    for args, kwargs in calls:
        before()
        torch.testing.assert_close(getattr(module, name)(*args, **kwargs), function(*args, **kwargs))
    return path.read_text()


def toy_example(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def test_both_sides_of_a_branch(folder):
    ones = torch.ones(10)
    text = check(folder, toy_example, [((ones, ones), {}), ((ones, -ones), {})])
    assert "def resume_at_" in text and 'program.graph("resume_at_' in text


SCALE = {"x": 2.0, "names": ["a", "b"]}


class Layer:
    def __init__(self):
        self.bias = torch.ones(3)


LAYER = Layer()


def many_ways(x, /, y=3, *rest, scale=None, layer=LAYER, **more):
    total = x * y + layer.bias + SCALE["x"]
    for r in rest:
        total = total + r
    if scale is not None:
        total = total * scale
    tg.graph_break()
    return {"total": total, "count": len(SCALE["names"]), **{k: total - v for k, v in more.items()}}


def test_parameters_of_every_kind_defaults_globals(folder):
    x = torch.arange(3.0)
    calls = [((x,), {}), ((x, 5, x, x), {}), ((x,), {"scale": x, "extra": x}), ((x, 2), {"layer": LAYER})]
    text = check(folder, many_ways, calls)
    assert "def many_ways(x, /, y=3, *rest, scale=None, layer=program.default('layer'), **more):" in text


def test_closures_classes_and_functions_made_inside(folder):
    weight, counter = torch.full((4,), 3.0), [0]

    class Result:
        def __init__(self, value):
            self.value = value

        def __eq__(self, other):
            return torch.equal(self.value, other.value)

    def closes(x):
        counter[0] = 7
        return [Result(x * weight).value, (lambda y: y + weight)(x).sum()]

    check(folder, closes, [((torch.ones(4),), {})], before=lambda: counter.__setitem__(0, 0))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
        self.norm = torch.nn.LayerNorm(4)
        self.flag = object()

    def forward(self, x, torch=torch):  # a parameter with a name that the texts use
        for layer in self.layers:
            x = torch.nn.functional.gelu(layer(x))
        return self.norm(x) if self.flag is not None else x


def test_a_module_in_training(folder):
    net = Net()
    compiled = tg.compile(net)
    x = torch.randn(2, 4)
    compiled(x).sum().backward()
    wanted = {name: p.grad.clone() for name, p in net.named_parameters()}
    net.zero_grad()
    tg.explain(compiled)
    module = imported(folder / "Net" / "full_code.py")
    module.program.miss = lambda *_: pytest.fail("no entry fits")
    module.Net(net, x).sum().backward()
    for name, p in net.named_parameters():
        torch.testing.assert_close(p.grad, wanted[name])


def test_a_call_that_fits_no_entry_runs_the_function_itself(folder):
    compiled = tg.compile(toy_example)
    compiled(torch.ones(10), torch.ones(10))
    tg.explain(compiled)
    module = imported(folder / "toy_example" / "full_code.py")
    other = torch.ones(5), torch.ones(5)
    torch.testing.assert_close(module.toy_example(*other), toy_example(*other))


def test_guards_files_run_and_evaluate_in_this_process(folder):
    compiled, net, x = tg.compile(Net()), Net(), torch.randn(2, 4)
    compiled(x)
    path = folder / "Net" / "entry_0" / "guards.py"
    namespace = {"__file__": str(path), "__name__": "guards"}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    original = compiled._torchglass_original
    assert namespace["check"](original, x, torch) is not None
    assert namespace["check"](original, torch.randn(3, 4), torch) is None
    assert namespace["check"](net, x, torch) is None


def prints(x):
    tg.graph_break()
    return torch.sin(x)


def calls_what_breaks(x):
    return prints(x * 2) + 1


def test_functions_called_at_breaks(folder):
    text = check(folder, calls_what_breaks, [((torch.ones(3),), {})])
    assert "def called_prints(x):" in text and "with contextlib.nullcontext():" in text
