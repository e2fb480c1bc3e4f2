"""full_code.py and edits of entries whose sizes are left open: what is read is what runs, for all sizes."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.dynamic.changing_programs import PROGRAMS
from tests.dynamic.test_changing_sizes import SIZES, assert_equal
from tests.inspector.test_edits import edit, run
from torch.utils._pytree import tree_leaves

import torchglass as tg


def leaf(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, requires_grad=True)


def dictionary(given):
    return given["x"] * 2 + given["y"], {"rows": given["x"].shape[0], "sum": given["y"].sum()}


def listed(tensors, flag=True):
    total = tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor * tensor.shape[0]
    return [total, len(tensors)]


def breaks(x):
    y = x * x.shape[0]
    if y.sum() > 0:
        y = y + x.shape[1]
    print(end="")
    return y.sum(0), x.shape


def breaks_in_a_loop(x):
    for _ in range(2):
        x = x * x.shape[0]
        tg.graph_break()
        x = x + x.size(1)
    return x.mean(1)


def closure():
    ones = torch.ones(3)

    def inner(x):
        return x.repeat(2, 1)[: x.shape[0]] + ones.sum() + min(x.shape[0], 7)

    return inner


def numbers(x, n, scale):
    return x[:n].sum() + n * scale + (1.0 if scale < 0.5 else 2.0) + n % 4


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = torch.relu(self.linear(x)).reshape(-1, x.shape[0])
        return y + (x.shape[0] // 2 - x.shape[0] % 3) if x.shape[0] < 100 else y


CALLS: dict[str, tuple[Any, Callable[[int], tuple[Any, ...]]]] = {
    "dictionary": (dictionary, lambda n: ({"x": leaf(n, 3), "y": leaf(n, 3)},)),
    "listed": (listed, lambda n: ([leaf(n, 3), leaf(n, 3), leaf(n, 3)],)),
    "breaks": (breaks, lambda n: (leaf(n, 3),)),
    "breaks_in_a_loop": (breaks_in_a_loop, lambda n: (leaf(n, 3),)),
    "closure": (closure(), lambda n: (leaf(n, 3),)),
    "numbers": (numbers, lambda n: (leaf(n + 20), n, n / 10)),
    "module": (Net(), lambda n: (leaf(n, 4),)),
}


def full_code(program: Any, calls: list[tuple[Any, ...]], folder: Path, backend: str) -> Callable[..., Any]:
    """The function of full_code.py after these calls; it fails where no entry fits."""
    tg.reset()
    with tg.prepare_debug(folder):
        compiled = tg.compile(program, backend=backend)
        for args in calls:
            compiled(*args)
    file = min(folder.rglob("full_code.py"), key=lambda path: len(path.parts))
    spec = importlib.util.spec_from_file_location("full_code", file)
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SyntaxWarning)
        spec.loader.exec_module(module)
    module.program.miss = lambda *_: pytest.fail("no entry fits")
    dispatcher = getattr(module, file.parent.name.replace(".", "_"))
    return lambda *args: dispatcher(*([program] if isinstance(program, torch.nn.Module) else []), *args)


def gradients(results: Any, inputs: Any) -> Any:
    """Of what tensors come to."""
    total = sum(t.sum() for t in tree_leaves(results) if isinstance(t, torch.Tensor) and t.requires_grad)
    return torch.autograd.grad(total, [t for t in tree_leaves(inputs) if isinstance(t, torch.Tensor)])


@pytest.mark.parametrize("backend", ["eager", "glass"])
@pytest.mark.parametrize("name", CALLS)
def test_full_code(name: str, backend: str, tmp_path: Path) -> None:
    program, made = CALLS[name]
    calls = [made(n) for n in (5, 8, 3, 11, 6)]
    function = full_code(program, calls, tmp_path, backend)
    for args in calls:
        ours, eager = function(*args), program(*args)
        torch.testing.assert_close(tree_leaves(ours), tree_leaves(eager), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(gradients(ours, args), gradients(eager, args), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", PROGRAMS)
def test_full_code_of_operators(name: str, tmp_path: Path) -> None:
    row = PROGRAMS[name]
    function = full_code(row.function, [row.made(*sizes, n) for n, sizes in enumerate(SIZES)], tmp_path, "eager")
    for n, sizes in enumerate(SIZES):
        assert_equal(function(*row.made(*sizes, n)), row.function(*row.made(*sizes, n)))


PROGRAM = """
import torch, torchglass as tg

@tg.compile
def f(x):
    half = x.shape[0] // 2
    return torch.sin(x[:half]) * 3 + x.shape[0]

for n in (8, 6, 11):
    x = torch.zeros(n, requires_grad=True)
    y = f(x)
    y.sum().backward()
    print(y[0].item(), x.grad[0].item(), end=" ")
"""


@pytest.mark.slow
def test_edits(tmp_path: Path) -> None:
    program, graph = tmp_path / "program.py", tmp_path / "glass/f/entry_1/graph_0"
    program.write_text(PROGRAM)

    def printed() -> str:
        done = run(program)
        assert "cannot be used" not in done.stderr and "failed" not in done.stderr, done.stderr
        return done.stdout

    assert printed() == "8.0 3.0 6.0 3.0 11.0 3.0 "
    edit(graph / "forward.py", "(mul, x_shape_0)", "(mul, s0 + s0 // 3)")
    edit(graph / "backward.py", "(tangent_add, 3)", "(tangent_add, 4)")
    assert printed() == "8.0 3.0 8.0 4.0 14.0 4.0 "
    edit(graph / "captured.py", "sin * 3", "sin * (s0 + 1)")
    assert printed() == "8.0 3.0 6.0 7.0 11.0 12.0 "
