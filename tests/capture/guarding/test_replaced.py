"""Functions of libraries, of PyTorch's classes and of builtins, replaced after compiling: the next call uses them."""

import builtins
import math
import string
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchglass as tg

x = torch.arange(4.0).reshape(2, 2)
linear = nn.Linear(2, 2)
net = nn.Sequential(linear, nn.ReLU())


def twice(*args, **kwargs):
    return args[0] * 2


def seven(*args, **kwargs):
    return 7


PROGRAMS = {
    "a function of torch.nn.functional": (lambda x: F.relu(x - 1), F, "relu", twice),
    "a function of torch": (lambda x: torch.sin(x), torch, "sin", twice),
    "a function of math": (lambda x: x * math.sqrt(4.0), math, "sqrt", seven),
    "a Python function of a library": (lambda x: x + len(string.capwords("a b")), string, "capwords", lambda text: "."),
    "a builtin": (lambda x: x + round(2.4), builtins, "round", seven),
    "the forward of a module of PyTorch's": (lambda x: linear(x), nn.Linear, "forward", lambda self, x: x * 3),
    "what a module of PyTorch's calls": (lambda x: net(x), F, "linear", twice),
    "a module of PyTorch's, by its base": (lambda x: net(x), nn.ReLU, "forward", lambda self, x: x * 5),
    "a method of tensors": (lambda x: x.relu(), torch.Tensor, "relu", twice),
    "a new method of tensors": (lambda x: x.foo() if hasattr(x, "foo") else x, torch.Tensor, "foo", twice),
    "a class of a library": (lambda x: nn.Identity()(x - 1), nn, "Identity", nn.ReLU6),
    "a module of a library": (
        lambda x: torch.nn.functional.relu(x - 1),
        torch.nn,
        "functional",
        SimpleNamespace(relu=twice),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("backend", ["eager", "glass"])
def test_what_is_replaced_after_compiling(name, backend, monkeypatch):
    function, owner, attribute, other = PROGRAMS[name]
    compiled = tg.compile(function, backend=backend, fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(x), function(x))
    with monkeypatch.context() as patch:
        patch.setattr(owner, attribute, other, raising=False)
        expected, found = function(x), compiled(x)
    assert torch.equal(found, expected)
    assert torch.equal(compiled(x), function(x)) and not torch.equal(expected, function(x))
    assert len(tg.explain(compiled).entries) == 2


OPERATORS = {
    "__add__": lambda x: x + 1,
    "__radd__": lambda x: 1 + x,
    "__rsub__": lambda x: 1 - x,
    "__mul__": lambda x: x * 3,
    "__pow__": lambda x: x**2,
    "__matmul__": lambda x: x @ x,
    "__neg__": lambda x: -x,
    "__getitem__": lambda x: x[0],
}


def replaced(name, backend):
    function = OPERATORS[name]
    compiled = tg.compile(function, backend=backend)
    assert torch.equal(compiled(x), function(x))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, name, lambda *args: torch.full((2,), 77.0))
        assert compiled(x).tolist() == [77, 77]
        assert tg.compile(lambda x: function(x), backend=backend)(x).tolist() == [77, 77]
    assert torch.equal(compiled(x), function(x))


@pytest.mark.parametrize("backend", ["eager", pytest.param("glass", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_of_tensors(name, backend):
    """A class that has had a ``__getitem__`` of Python's is a sequence to C ever after: torch.tensor([x.sum(), 2.0])
    asks tensors for their length then, in all that this process does later.
    """
    if name != "__getitem__":
        return replaced(name, backend)
    program = f"""if True:
        from tests.capture.guarding.test_replaced import replaced
        from tests.complaints import complaints

        with complaints() as texts:
            replaced({name!r}, {backend!r})
        assert not texts, texts
    """
    run = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[3], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])
def test_data_that_functions_of_a_library_write(backend):
    """``parametrize.cached`` sets globals of its module."""
    calls = []

    class Tril(nn.Module):
        def forward(self, weight):
            calls.append(1)
            return weight.tril()

    module = nn.Linear(2, 2)
    nn.utils.parametrize.register_parametrization(module, "weight", Tril())
    counts = []
    for function in (lambda x: module(x), tg.compile(lambda x: module(x), backend=backend)):
        calls.clear()
        torch.testing.assert_close(function(x), module(x))
        with nn.utils.parametrize.cached():
            for _ in range(3):
                function(x)
        function(x)
        counts.append(len(calls))
    assert counts[0] == counts[1]
