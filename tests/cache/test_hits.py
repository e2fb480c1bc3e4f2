"""What an earlier process has compiled is found by a later one: each backend, backwards, breaks, sizes, constants."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .processes import run, same, twice

HEAD = "import torch, torchglass as tg\nF = torch.nn.functional\ntorch.manual_seed(0)\n"

MODEL = (
    HEAD
    + """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = torch.nn.Linear(8, 16), torch.nn.LayerNorm(16)
        self.last = torch.nn.Linear(16, 4)
    def forward(self, x, scale=1.0):
        return self.last(F.gelu(self.norm(self.first(x)))) * scale
"""
)

PROGRAMS = {
    "a function": HEAD
    + """
def f(x, w):
    return F.softmax(x @ w, -1) + 1
def main():
    return tg.compile(f, backend=BACKEND)(torch.randn(4, 8), torch.randn(8, 8))
""",
    "a module": MODEL
    + """
def main():
    with torch.no_grad():
        return tg.compile(Net(), backend=BACKEND)(torch.randn(3, 8))
""",
    "training": MODEL
    + """
def main():
    net = Net()
    compiled, x = tg.compile(net, backend=BACKEND), torch.randn(3, 8, requires_grad=True)
    for _ in range(2):
        compiled(x, scale=0.5).square().sum().backward()
    return [x.grad, *(p.grad for p in net.parameters())]
""",
    "two outputs, of which one is used": HEAD
    + """
def f(x):
    return x.sin().exp(), (x * 2).cos()
def main():
    compiled, grads = tg.compile(f, backend=BACKEND), []
    for loss in (lambda a, b: a.sum(), lambda a, b: b.square().sum(), lambda a, b: (a * b).sum()):
        x = torch.linspace(0, 1, 12).view(3, 4).requires_grad_()
        loss(*compiled(x)).backward()
        grads.append(x.grad)
    return grads
""",
    "a break": HEAD
    + """
def f(x):
    y = x.sin() * 2
    if y.sum().item() > 0:
        return y + 1
    return y - 1
def main():
    compiled = tg.compile(f, backend=BACKEND)
    return [compiled(torch.ones(3)), compiled(-torch.ones(3))]
""",
    "writes to what it is given": HEAD
    + """
def f(x, state):
    state["n"] += 1
    x.mul_(2)
    state["last"] = x + state["n"]
    return x.t()
def main():
    compiled, x, state = tg.compile(f, backend=BACKEND), torch.ones(2, 3), {"n": 0}
    out = compiled(x, state)
    return [out, x, state["n"], state["last"]]
""",
    "a closure and defaults": HEAD
    + """
def make(k):
    def f(x, *, shift=3):
        return x * k + shift
    return f
def main():
    return [tg.compile(make(k), backend=BACKEND)(torch.ones(3)) for k in (2.5, 3.5)]
""",
    "constants": HEAD
    + """
import numpy as np
table = np.arange(600.0)
def f(x):
    return x + torch.from_numpy(np.arange(600.0) * 3).float() * torch.tensor([0.5])
def main():
    return tg.compile(f, backend=BACKEND)(torch.ones(600))
""",
    "random numbers": MODEL
    + """
def main():
    net = torch.nn.Sequential(Net(), torch.nn.Dropout(0.5))
    compiled, x = tg.compile(net, backend=BACKEND), torch.randn(3, 8)
    torch.manual_seed(3)
    return [compiled(x), compiled(x)]
""",
    "batch norm, in place": HEAD
    + """
def main():
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(inplace=True))
    compiled = tg.compile(net, backend=BACKEND)
    out = compiled(torch.randn(2, 3, 8, 8))
    out.sum().backward()
    return [out, net[1].running_mean, net[0].weight.grad]
""",
    "recurrent layers": HEAD
    + """
def main():
    net, x = torch.nn.LSTM(4, 5, num_layers=2), torch.randn(3, 2, 4)
    out, _ = tg.compile(net, backend=BACKEND)(x)
    out.sum().backward()
    return [out, net.weight_hh_l0.grad]
""",
    "inference mode": MODEL
    + """
def main():
    with torch.inference_mode():
        return tg.compile(Net(), backend=BACKEND)(torch.randn(3, 8)).is_inference()
""",
    "a checkpoint": MODEL
    + """
from torch.utils.checkpoint import checkpoint
def main():
    net = Net()
    compiled, x = tg.compile(lambda x: checkpoint(net, x, use_reentrant=False), backend=BACKEND), torch.randn(3, 8)
    compiled(x).sum().backward()
    return [p.grad for p in net.parameters()]
""",
}


@pytest.mark.parametrize("backend", ["glass", pytest.param("aot_eager", marks=pytest.mark.slow), "eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_second_process_compiles_nothing(tmp_path, name: str, backend: str) -> None:
    twice(PROGRAMS[name].replace("BACKEND", repr(backend)), tmp_path / "cache")


def test_open_sizes(tmp_path) -> None:
    text = (
        MODEL
        + """
def main():
    with torch.no_grad():
        compiled = tg.compile(Net())
        return [compiled(torch.ones(n, 8)) for n in (2, 3, 5, 9)]
"""
    )
    first, second = twice(text, tmp_path / "cache")
    assert len(first.compiled) == len(second.found) == 2
    sizes = text.replace("(2, 3, 5, 9)", "(7, 4)")
    third = run(sizes, tmp_path / "cache")
    assert not third.compiled and len(third.found) == 1


HOT = (
    MODEL
    + """
import sys
def main():
    net, results = Net(), []
    compiled = tg.compile(net, dynamic=True, options={"hot_calls": 6})
    for n in SIZES:
        for _ in range(8):
            net.zero_grad()
            y = compiled(torch.ones(n, 8))
            y.square().sum().backward()
            if "torchglass.lazy_specialization" in sys.modules:
                sys.modules["torchglass.lazy_specialization"].wait()
        results += [y, *(p.grad.clone() for p in net.parameters())]
    return results
"""
)


def test_sizes_that_many_calls_had(tmp_path) -> None:
    """What was compiled for them is found, forward and backward; others are compiled, and kept with them."""
    first = run(HOT.replace("SIZES", "(3, 5)"), tmp_path / "cache")
    second = run(HOT.replace("SIZES", "(3, 5)"), tmp_path / "cache")
    other = run(HOT.replace("SIZES", "(3, 7)"), tmp_path / "cache")
    assert len([line for line in first.said if "calls of sizes" in line]) == 0
    assert len([line for line in second.said if "calls of sizes" in line]) == 2, second.said
    assert len([line for line in other.said if "calls of sizes" in line]) == 1
    assert not second.compiled and same(first.result, second.result)
    assert other.compiled == ["`Net` is compiled for s0=7 alone as well"]
    kernels = {path.parent.parent.name for path in tmp_path.glob("cache/*/*/graph_0/kept_sizes_*/graph_0/*.so")}
    assert kernels == {"kept_sizes_3", "kept_sizes_5", "kept_sizes_7"}
    assert len(list(tmp_path.glob("cache/*/*/graph_0/kept_sizes_3/graph_0/*backward*.so"))) == 1


MORE = """
import sys
def f(x, w):
    with torch.no_grad():
        scale = x.mean() + torch.arange(x.shape[0], dtype=x.dtype).unsqueeze(1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return F.gelu(x @ w).float() * (scale + torch.zeros(x.shape[0], 1))
def main():
    compiled, results = tg.compile(f, dynamic=True, options={"hot_calls": 8}), []
    w = torch.linspace(-1, 1, 32).view(8, 4).requires_grad_()
    for n in SIZES:
        for _ in range(12):
            y, w.grad = compiled(torch.linspace(0, 1, n * 8).view(n, 8), w), None
            y.sum().backward()
            if "torchglass.lazy_specialization" in sys.modules:
                sys.modules["torchglass.lazy_specialization"].wait()
        results += [y, w.grad]
    names = [sizes for sizes, _ in tg.explain(compiled).graphs()[0].specialized]
    return results, names, [f(torch.linspace(0, 1, n * 8).view(n, 8), w) for n in SIZES]
"""


def test_a_process_that_found_an_entry_compiles_for_sizes_of_its_own(tmp_path) -> None:
    """Of the kept text, in which are calls without a tensor and changes of modes, and the next process finds that."""
    for sizes, found, compiled in (("(3, 5)", 0, 2), ("(7, 3)", 1, 1), ("(7, 5)", 2, 0)):
        outcome = run(HEAD + MORE.replace("SIZES", sizes), tmp_path / "cache")
        results, names, expected = outcome.result
        assert [name.partition(",")[0] for name in names] == [f"s0={n}" for n in eval(sizes)], outcome.said
        assert all(ours.allclose(one, atol=1e-2) for ours, one in zip(results[::2], expected, strict=True))
        assert len([line for line in outcome.said if "calls of sizes" in line]) == found
        assert len([line for line in outcome.compiled if "alone as well" in line]) == compiled


def test_sizes_whose_graph_is_damaged(tmp_path) -> None:
    first = run(HOT.replace("SIZES", "(3,)"), tmp_path / "cache")
    (path,) = tmp_path.glob("cache/*/*/graph_0/kept_sizes_3/graph_0/forward_kernels.so")
    path.write_bytes(b"")
    second = run(HOT.replace("SIZES", "(3,)"), tmp_path / "cache")
    assert not second.compiled and any("kept_sizes_3 is not used" in line for line in second.said)
    assert all(a.allclose(b, atol=1e-5) for a, b in zip(first.result, second.result, strict=True))


def test_open_sizes_in_training(tmp_path) -> None:
    text = (
        MODEL
        + """
def main():
    net = Net()
    compiled = tg.compile(net, dynamic=True)
    for n in (2, 3, 5, 9):
        compiled(torch.ones(n, 8)).square().sum().backward()
    return [p.grad for p in net.parameters()]
"""
    )
    twice(text, tmp_path / "cache")


def test_a_backward_that_no_process_has_run_yet(tmp_path) -> None:
    """The first process calls the function where gradients are recorded, and never asks for one."""
    text = (
        MODEL
        + """
def main():
    net = Net()
    y = tg.compile(net)(torch.ones(3, 8))
    if BACKWARD:
        y.square().sum().backward()
    return [y, *(p.grad for p in net.parameters())]
"""
    )
    run(text.replace("BACKWARD", "False"), tmp_path / "cache")
    found = run(text.replace("BACKWARD", "True"), tmp_path / "cache")
    plain = run(text.replace("BACKWARD", "True").replace("tg.compile(net)", "net"), tmp_path / "cache")
    assert found.found and not found.compiled
    for ours, theirs in zip(found.result, plain.result, strict=True):
        assert ours.allclose(theirs, atol=1e-5)
    assert len(list((tmp_path / "cache").glob("*/*/graph_0/kept_backward/backward_kernels.so"))) == 1


def test_results_whose_gradients_are_asked_for_apart(tmp_path) -> None:
    """By a process that has found the entry of one that never asked."""
    text = (
        HEAD
        + """
def f(x):
    return x.sin().exp(), (x * 2).cos().tanh()
def main():
    x = torch.linspace(0, 1, 12).view(3, 4).requires_grad_()
    a, b = tg.compile(f)(x)
    if BACKWARD:
        a.sum().backward()
        b.square().sum().backward()
    return [a, b, x.grad]
"""
    )
    run(text.replace("BACKWARD", "False"), tmp_path / "cache")
    found = run(text.replace("BACKWARD", "True"), tmp_path / "cache")
    assert found.found and found.result[2].allclose(
        run(text.replace("BACKWARD", "True").replace("tg.compile(f)", "f"), None).result[2], atol=1e-5
    )


def test_a_hit_imports_no_stage(tmp_path) -> None:
    """Nor fake tensors, nor SymPy."""
    program = tmp_path / "program.py"
    program.write_text(
        MODEL
        + """
import sys
net = Net()
out = tg.compile(net)(torch.ones(3, 8))
out.sum().backward()
stages = "capture autodiff lower fuse schedule codegen decompiler entry_pipeline graph_pipeline".split()
print(sorted(name for name in sys.modules if name.startswith(tuple(f"torchglass.{stage}." for stage in stages))))
print([name for name in ("sympy", "torch._dynamo", "bytecode", "rich", "jinja2", "triton") if name in sys.modules])
"""
    )
    environment = {"TORCHGLASS_CACHE": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")  # where the package is that is tested
    said = [
        subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert "torchglass.lower.run" in said[0]
    assert said[1] == "[]\n[]\n"


def test_another_instance_of_the_model_is_found_too(tmp_path) -> None:
    text = (
        MODEL
        + """
def main():
    torch.manual_seed(SEED)
    with torch.no_grad():
        net = Net()
        return [tg.compile(net)(torch.ones(3, 8)), net(torch.ones(3, 8))]
"""
    )
    run(text.replace("SEED", "1"), tmp_path / "cache")
    found = run(text.replace("SEED", "2"), tmp_path / "cache")
    assert found.found and not found.compiled
    assert found.result[0].allclose(found.result[1], atol=1e-5)


def test_without_a_folder_nothing_is_kept(tmp_path) -> None:
    text = PROGRAMS["a function"].replace("BACKEND", "'glass'")
    assert same(run(text, None).result, run(text, None).result)
    assert not run(text, None).found


@pytest.mark.parametrize("count", [16, pytest.param(64, marks=pytest.mark.slow)])
def test_entries_of_many_processes_at_once(tmp_path, count: int) -> None:
    """rllm#490, pt#153791: each compiles or finds, and is right; nothing is lost, and the next one compiles nothing."""
    text = PROGRAMS["a function"].replace("BACKEND", "'glass'")
    children = []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                outcome = run(text, tmp_path / "cache")
                status = 0 if same(outcome.result, run(text, tmp_path / "cache").result) else 2
            finally:
                os._exit(status)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * count
    last = run(text, tmp_path / "cache")
    assert last.found and not last.compiled
    assert not list((tmp_path / "cache").glob("*/.unfinished-*"))


def test_choices_that_were_tuned_are_those_of_the_first_process(tmp_path) -> None:
    text = PROGRAMS["a function"].replace("backend=BACKEND", "mode='max-autotune'")
    twice(text, tmp_path / "cache")


GRAPHS = {
    "cond": """
def f(x):
    return torch.cond(x.sum() > 0, lambda x: (x @ x).sin(), lambda x: x.cos() + 1, (x,)) * 2
""",
    "cond in cond": """
def f(x):
    def some(x):
        return torch.cond(x.sum() > 9, lambda x: x.exp(), lambda x: x.sin(), (x,))
    return torch.cond(x.sum() > 0, some, lambda x: x.cos(), (x,)) * 2
""",
    "while_loop": """
from torch._higher_order_ops.while_loop import while_loop
def f(x):
    count = torch.zeros((), dtype=torch.int64)
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x.sin() * 2), (count, x))[1]
""",
    "scan": """
from torch._higher_order_ops.scan import scan
def f(x):
    return scan(lambda carry, row: (carry + row, carry * row.sin()), x[0].clone(), x)[1]
""",
    "constants in both": """
def f(x):
    table = torch.arange(1200.0)
    return torch.cond(x.sum() > 0, lambda x: x + table[:3], lambda x: x * table[3:6], (x,))
""",
}
CALLS = """
def main():
    compiled, found = tg.compile(f, backend=BACKEND), []
    for x in (torch.ones(3, 3), -torch.ones(3, 3)):
        x.requires_grad_()
        y = compiled(x)
        y.sum().backward()
        found += [y, x.grad]
    return found
"""


@pytest.mark.parametrize("backend", ["glass", pytest.param("aot_eager", marks=pytest.mark.slow), "eager"])
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_that_call_graphs(tmp_path, name: str, backend: str) -> None:
    """pt#123325: forward and backward, each with its sub-graphs."""
    _, second = twice(HEAD + GRAPHS[name] + CALLS.replace("BACKEND", repr(backend)), tmp_path / "cache")
    plain = run(HEAD + GRAPHS[name] + CALLS.replace("tg.compile(f, backend=BACKEND)", "f"), None)
    for ours, theirs in zip(second.result, plain.result, strict=True):
        assert ours.allclose(theirs, atol=1e-5)


def test_a_sub_graph_whose_library_is_damaged(tmp_path) -> None:
    text = HEAD + GRAPHS["cond"] + CALLS.replace("BACKEND", "'glass'")
    first = run(text, tmp_path / "cache")
    (path,) = tmp_path.glob("cache/*/*/graph_0/forward_cond_true_kernels.so")
    path.write_bytes(path.read_bytes()[:100])
    again = run(text, tmp_path / "cache")
    assert again.compiled and same(first.result, again.result)


def test_an_operator_in_a_sub_graph_that_has_changed(tmp_path) -> None:
    """The schema and the derivative of a custom operator count wherever it is called."""
    text = (
        HEAD
        + """
@torch.library.custom_op("warm::twice", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2
@double.register_fake
def _(x):
    return torch.empty_like(x)
def setup(ctx, inputs, output):
    pass
def backward(ctx, grad):
    return grad * FACTOR
double.register_autograd(backward, setup_context=setup)
def f(x):
    return torch.cond(x.sum() > 0, lambda x: double(x), lambda x: x.cos(), (x,))
"""
        + CALLS.replace("BACKEND", "'glass'")
    )
    first, second = (run(text.replace("FACTOR", factor), tmp_path / "cache") for factor in ("2", "5"))
    assert not any("0 was kept in" in line for line in second.found)
    assert first.result[1].eq(2).all() and second.result[1].eq(5).all()
