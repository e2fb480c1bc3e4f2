"""The folders of depyf's README and walk-through programs and of a BERT in training, held to the whole promise: every
file is there, every Python file compiles, every graph file runs alone, full_code.py gives eager's results.
"""

import importlib.util
import py_compile
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.run_files import run_files

import torchglass as tg

STAGES = ("captured.py", "forward.py", "forward.loops", "forward.fused", "forward_wrapper.py", "captured.svg")
TRAINING = ("joint.py", "backward.py", "backward.loops", "backward.fused", "backward_wrapper.py", "backward.svg")


def toy_example(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def function(inputs):
    x, y = inputs["x"], inputs["y"]
    x = x.cos().cos()
    if x.mean() > 0.5:
        x = x / 1.1
    return x * y


class A(torch.nn.Module):
    def forward(self, x):
        return torch.exp(2 * x)


class B(torch.nn.Module):
    def forward(self, x):
        return torch.exp(-x)


def two_modules(x, mod):
    return torch.log(mod(x))


def sine_cosine(x):
    return torch.sin(x) ** 2 + torch.cos(x) ** 2


def small_model():
    return torch.nn.Sequential(torch.nn.Linear(100, 10), torch.nn.ReLU())


def bert(layers=2):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100}
    config = transformers.BertConfig(
        num_hidden_layers=layers, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **sizes
    )
    return transformers.BertModel(config)


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def programs():
    ones = torch.ones(10)
    yield "toy_example", toy_example, [(leaf(10), ones), (leaf(10), -ones)]
    yield "dictionary", function, [({"x": leaf(n), "y": leaf(n)},) for n in (10, 8)]
    yield "two_modules", two_modules, [(torch.rand(4), A()), (torch.rand(4), B())]
    yield "sine_cosine", sine_cosine, [(leaf(1, 1000),)]
    yield "linear", small_model(), [(torch.randn(5, 100),)]
    yield "bert", bert(), [(torch.randint(0, 100, (2, 16)),)]


PROGRAMS = {name: (compiled, calls) for name, compiled, calls in programs()}


def result_of(value):
    """The tensor a program returns."""
    return value if isinstance(value, torch.Tensor) else value.last_hidden_state


def outcome(call, model, args):
    """The result, and the gradients of parameters and inputs."""
    inputs = [t for a in args for t in (a.values() if isinstance(a, dict) else [a]) if isinstance(t, torch.Tensor)]
    leaves = [t for t in inputs if t.requires_grad]
    leaves += list(model.parameters()) if isinstance(model, torch.nn.Module) else []
    for t in leaves:
        t.grad = None
    result = result_of(call(*args))
    if result.requires_grad:
        result.sum().backward()
    return [result.detach().clone(), *(t.grad.clone() for t in leaves if t.grad is not None)]


@pytest.fixture(scope="module", params=list(PROGRAMS))
def compiled(request, tmp_path_factory):
    """A program after its calls, and the folder they left."""
    model, calls = PROGRAMS[request.param]
    tg.reset()
    torch.manual_seed(0)
    with tg.prepare_debug(tmp_path_factory.mktemp(request.param) / "glass") as folder:
        made = tg.compile(model)
        for args in calls:
            outcome(made, model, args)
    (top,) = (path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    return model, calls, made, top


def broken_links(top):
    """Links of README.md that lead nowhere."""
    links = re.findall(r"\]\(([^)]*)\)", (top / "README.md").read_text())
    assert len(links) >= 5
    return [link for link in links if not (top / link).exists()]


def test_every_file_is_there_and_compiles(compiled):
    _, _, made, top = compiled
    assert all((top / name).is_file() for name in ("README.md", "full_code.py", "report.html", "flow.svg"))
    assert not broken_links(top)
    graphs = 0
    for record in tg.explain(made).record.walk():
        for entry in record.entries:
            folder = record.folder / f"entry_{entry.index}"
            assert (folder / "guards.py").is_file() and (folder / "transformed.py").is_file()
            for graph in entry.graphs:
                wanted = (*STAGES, *(TRAINING if "joint.py" in graph.files and "backward" in graph.fused else ()))
                assert not [name for name in wanted if not (folder / graph.name / name).is_file()]
                graphs += 1
    assert graphs
    for path in top.rglob("*.py"):
        py_compile.compile(str(path), doraise=True)
    assert not [path for path in top.rglob("*") if path.is_file() and not path.stat().st_size and path.name != ".lock"]


def test_every_graph_file_runs_alone(compiled):
    top = compiled[-1]
    files = sorted(path for folder in top.rglob("graph_*") for path in folder.glob("*.py"))
    run_files(files)


def test_full_code_gives_eagers_results(compiled):
    model, calls, _, top = compiled
    spec = importlib.util.spec_from_file_location("full_code", top / "full_code.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.program.miss = lambda *_: pytest.fail("no entry fits")
    dispatcher = getattr(module, Path(top).name)
    for args in calls:
        first = (model,) if isinstance(model, torch.nn.Module) else ()
        ours = outcome(lambda *rest, first=first: dispatcher(*first, *rest), model, args)
        eager = outcome(model, model, args)
        torch.testing.assert_close(ours, eager, rtol=2e-4, atol=2e-5)


def test_names_and_texts_are_the_same_from_run_to_run(tmp_path):
    script = Path(__file__)
    use = (
        f"import sys; sys.path.insert(0, {str(script.parent)!r}); import torch, torchglass as tg, {script.stem} as t\n"
        "model, calls = t.PROGRAMS['toy_example']\n"
        "with tg.prepare_debug(sys.argv[1]):\n"
        "    made = tg.compile(model)\n"
        "    for args in calls: t.outcome(made, model, args)\n"
    )
    texts = []
    for n in (1, 2):
        subprocess.run([sys.executable, "-c", use, str(tmp_path / f"{n}")], check=True)
        root = tmp_path / f"{n}"
        found = {p.relative_to(root).as_posix(): p.read_text() for p in root.rglob("*.py")}
        texts.append(found)
    assert texts[0] == texts[1]
